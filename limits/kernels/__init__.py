"""The algebra that carries NNGP and NTK through a network, layer by layer."""

from limits.kernels.activations import closed_form as closed_form
from limits.kernels.blocks import pairwise as pairwise
from limits.kernels.duals import dual as dual
from limits.kernels.duals import dual_for as dual_for
from limits.kernels.hermite import rms as rms
from limits.kernels.state import Affine as Affine
from limits.kernels.state import State as State
from limits.kernels.state import activate as activate
from limits.kernels.state import dense as dense
from limits.kernels.state import diagonal_inputs as diagonal_inputs
from limits.kernels.state import inputs as inputs
