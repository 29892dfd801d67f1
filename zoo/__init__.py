"""Finite networks: definitions that say their width and depth, and how every parameter scales with them."""

import warnings

from zoo import rooms as _rooms
from zoo import threefry as _threefry
from zoo.activations import PiecewiseLinear as PiecewiseLinear
from zoo.activations import Quadratic as Quadratic
from zoo.activations import activation_function as activation_function
from zoo.attention import Attention as Attention
from zoo.attention import Embed as Embed
from zoo.attention import FeedForward as FeedForward
from zoo.cnn import CNN as CNN
from zoo.explain import Explanation as Explanation
from zoo.explain import explain as explain
from zoo.fused import fused_attention as fused_attention
from zoo.gpt import GPT as GPT
from zoo.infer import infer_roles as infer_roles
from zoo.inferred import Roles as Roles
from zoo.layers import Conv as Conv
from zoo.layers import Dense as Dense
from zoo.layers import Norm as Norm
from zoo.mlp import MLP as MLP
from zoo.parameterization import ROLES as ROLES
from zoo.parameterization import Parameterization as Parameterization
from zoo.parameterization import parameterization as parameterization
from zoo.plain import in_parameterization as in_parameterization
from zoo.rescaled import Rescaled as Rescaled
from zoo.resnet import HeResNet as HeResNet
from zoo.resnet import ResNet as ResNet
from zoo.roles import factors as factors
from zoo.roles import learning_rate_factors as learning_rate_factors
from zoo.roles import roles as roles
from zoo.roles import scale_gradients as scale_gradients
from zoo.rooms import ROOM as ROOM
from zoo.scaled import scaled as scaled
from zoo.variants import VARIANTS as VARIANTS
from zoo.variants import variant as variant
from zoo.vit import ViT as ViT

_threefry.register()
if _flaw := _rooms.replaced(["limits"]):  # which zoo can do without
    warnings.warn(_flaw, stacklevel=2)
