"""The algebra that carries NNGP and NTK through a network, layer by layer."""

from limits.kernels.activations import closed_form as closed_form
from limits.kernels.attention import Attention as Attention
from limits.kernels.attention import attend as attend
from limits.kernels.blocks import block_rows as block_rows
from limits.kernels.blocks import padded as padded
from limits.kernels.blocks import pairwise as pairwise
from limits.kernels.compiled import compiled as compiled
from limits.kernels.duals import dual as dual
from limits.kernels.duals import dual_for as dual_for
from limits.kernels.hermite import rms as rms
from limits.kernels.kept import KeptKernels as KeptKernels
from limits.kernels.positions import Positions as Positions
from limits.kernels.positions import images as images
from limits.kernels.positions import layer_norm as layer_norm
from limits.kernels.positions import variances as variances
from limits.kernels.state import Affine as Affine
from limits.kernels.state import State as State
from limits.kernels.state import activate as activate
from limits.kernels.state import add as add
from limits.kernels.state import dense as dense
from limits.kernels.state import diagonal_inputs as diagonal_inputs
from limits.kernels.state import inputs as inputs
from limits.kernels.windows import convolve as convolve
from limits.kernels.windows import over_positions as over_positions
from limits.kernels.windows import pool as pool
