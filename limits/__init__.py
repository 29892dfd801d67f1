"""Infinite-size twins of the networks in `zoo`."""

from zoo import rooms as _rooms
from zoo.rooms import ROOM as ROOM

_rooms.require("zoo")

from limits.cnn import CNNTwin as CNNTwin
from limits.combination import Combination as Combination
from limits.convergence import Convergence as Convergence
from limits.convergence import convergence as convergence
from limits.finite.random_features import random_features as random_features
from limits.finite.tangent import empirical_ntk as empirical_ntk
from limits.finite.tangent import linearize as linearize
from limits.finite.tangent_operator import TangentOperator as TangentOperator
from limits.fit import Fit as Fit
from limits.fit import fit as fit
from limits.gpt import GPTTwin as GPTTwin
from limits.initial import Initial as Initial
from limits.kept.identity import identity as identity
from limits.kept.identity import numerics as numerics
from limits.kept.store import Store as Store
from limits.kernel_function import KernelFunction as KernelFunction
from limits.kernel_function import KernelPair as KernelPair
from limits.kernel_function import kernel_function as kernel_function
from limits.kernel_twin import KernelTwin as KernelTwin
from limits.kernels.kept import Share as Share
from limits.kernels.kept import UnfinishedError as UnfinishedError
from limits.lazy import lazy as lazy
from limits.mlp import MLPTwin as MLPTwin
from limits.resnet import HeResNetTwin as HeResNetTwin
from limits.resnet import ResNetTwin as ResNetTwin
from limits.sampled_twin import SampledTwin as SampledTwin
from limits.training import Training as Training
from limits.trajectory import Trajectory as Trajectory
from limits.twin import Twin as Twin
from limits.twin import register_twin as register_twin
from limits.twin import twin as twin
from limits.types import AbsentError as AbsentError
from limits.types import Kernels as Kernels
from limits.types import Provenance as Provenance
from limits.types import Task as Task
from limits.vit import ViTTwin as ViTTwin
