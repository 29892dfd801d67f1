from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from definitions import definitions, small

from zoo import (
    MLP,
    Dense,
    Parameterization,
    ViT,
    activation_function,
    explain,
    factors,
    learning_rate_factors,
    roles,
    scaled,
)

SIZES: dict[str, Any] = {"width": 4, "depth": 1}


# field: (what it may be, values that are something else)
WRONG: dict[str, tuple[str, tuple]] = {
    "width": ("integer of at least 1", (0, 2.0, True)),
    "depth": ("integer of at least 1", (0,)),
    "outputs": ("integer of at least 1", (-1,)),
    "w_std": ("number > 0", (0.0, float("nan"))),
    "b_std": ("number ≥ 0", (-0.1, float("inf"))),
    "gamma": ("number > 0", (0,)),
    "dtype": ('float type such as "bfloat16"', ("bfloat", "int32")),
    "bias_init": ('"normal", "zeros"', ("zero",)),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, (_, wrong) in WRONG.items() for value in wrong])
def test_a_bad_value_of_any_definition_is_named_with_its_field(field, value):
    for cls in definitions():
        if field in cls.__dataclass_fields__:
            with pytest.raises(
                ValueError, match=f"^{cls.__name__}: {field} must be .*{WRONG[field][0]}.* got {value!r}"
            ):
                small(cls, **{field: value})


@pytest.mark.parametrize(
    ("field", "value", "meant"), [("activation", "rleu", "relu"), ("parameterization", "mpu", "mup")]
)
def test_an_unknown_name_is_answered_with_the_one_meant(field, value, meant):
    for cls in definitions():
        with pytest.raises(ValueError, match=rf'Unknown {field} "{value}"\. Did you mean "{meant}"\?'):
            small(cls, **{field: value})


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("W_std", r"^MLP has no argument W_std: use w_std\.$"),
        ("num_classes", "MLP has no argument num_classes: use outputs"),
        ("activatoin", r'MLP has no argument "activatoin"\. Did you mean "activation"\? Known: activation, b_std,'),
        ("zzz", r'MLP has no argument "zzz"\. Known: '),
    ],
)
def test_an_unknown_argument_is_answered_with_the_one_meant(argument, message):
    arguments: Any = SIZES | {argument: 1.0}
    with pytest.raises(TypeError, match=message):
        MLP(**arguments)


@pytest.mark.parametrize(
    ("theirs", "ours"), [("patch_size", "patch"), ("num_heads", "heads"), ("num_classes", "outputs")]
)
def test_names_of_other_packages_are_answered_with_ours(theirs, ours):
    arguments: Any = {theirs: 2}
    with pytest.raises(TypeError, match=f"ViT has no argument {theirs}: use {ours}"):
        ViT(8, 1, **arguments)


def test_a_missing_argument_is_pythons_own_error():
    with pytest.raises(TypeError, match="depth"):
        MLP(width=4)  # pyright: ignore[reportCallIssue]


def test_zero_bias_and_flax_arguments_are_accepted():
    net = MLP(**SIZES, b_std=0.0, name="net")
    assert net.name == "net"
    assert net.clone(width=7).width == 7


def test_a_dense_layer_of_unknown_role_is_refused():
    layer = Dense(3, role="hiden", width=3, parameterization=Parameterization.ntk)
    with pytest.raises(ValueError, match=r'role must be one of input, hidden, .*, got "hiden"'):
        layer.init(jax.random.key(0), jnp.ones((1, 3)))


def test_roles_are_found_again_while_a_compiled_init_is_alive():
    net, x = MLP(width=4, depth=1), jnp.ones((1, 3))
    init = jax.jit(net.init)
    init(jax.random.key(0), x)
    assert roles(net, x) == roles(net, x)


def test_roles_of_foreign_layers_are_refused_by_name():
    with pytest.raises(ValueError, match=r"No role is known for bias, kernel: build .* or let zoo.in_parameterization"):
        roles(nn.Dense(2), jnp.ones((1, 3)))


class Told(nn.Module):
    """A plain module that must be told whether it is trained."""

    width: int = 8

    @nn.compact
    def __call__(self, x, train):
        return nn.Dense(1)(nn.Dropout(0.1, deterministic=not train)(nn.Dense(self.width)(x)))


class ToldDefinition(Told):
    """It says its parameterization."""

    parameterization: str = "ntk"


_CALLS: list[tuple[str, Any]] = [
    ("explain", lambda net, x: explain(net, x=x, show=False)),
    ("explain", lambda net, _: explain(net, show=False)),
    ("scaled", lambda net, x: scaled("adam", net, x, learning_rate=0.1)),
    ("factors", lambda net, x: factors(net, {"kernel": x}, x)),
    ("learning_rate_factors", learning_rate_factors),
]


@pytest.mark.parametrize(("caller", "call"), _CALLS)
@pytest.mark.parametrize("net", [Told(), nn.Dense(2)])
def test_a_plain_module_is_sent_to_where_its_width_is_said(net, caller, call):
    """They were AttributeErrors and TypeErrors, or said to build the network otherwise."""
    said = rf'{caller}: {type(net).__name__} is a plain module.*zoo.in_parameterization\(net, "mup"\)'
    with pytest.raises(ValueError, match=said):
        call(net, jnp.ones((1, 3)))


@pytest.mark.parametrize(("caller", "call"), _CALLS)
def test_a_definition_is_called_with_inputs_alone(caller, call):
    """They were TypeErrors of Flax."""
    with pytest.raises(ValueError, match=rf'{caller}: ToldDefinition must be given "train" .* a default, train=…'):
        call(ToldDefinition(), jnp.ones((1, 3)))


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (Told(), r'roles: Told is a plain module.*zoo.in_parameterization\(net, "mup"\)'),
        (ToldDefinition(), 'roles: ToldDefinition must be given "train" .* a default, train=…'),
    ],
)
def test_roles_are_those_of_definitions_that_are_called_with_inputs_alone(net, said):
    """They were TypeErrors of Flax."""
    with pytest.raises(ValueError, match=said):
        roles(net, jnp.ones((1, 3)))


@pytest.mark.parametrize("name", ["Leaky ReLU", "leaky-relu", "LEAKY_RELU"])
def test_activation_names_may_be_spelled_freely(name):
    assert activation_function(name) == activation_function("leaky_relu")


@pytest.mark.parametrize(
    ("foreign", "name"),
    [
        (jax.nn.relu, "relu"),
        (jax.nn.tanh, "tanh"),
        (jax.lax.erf, "erf"),
        (jax.scipy.special.erf, "erf"),
        (jnp.abs, "abs"),
    ],
)
def test_jaxs_own_activations_become_ours(foreign, name):
    assert activation_function(foreign) is activation_function(name)


def test_any_callable_passes_through():
    def mine(x):
        return x**3

    class Unhashable:
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __call__(self, x):
            return x

    unhashable = Unhashable()
    assert activation_function(mine) is mine
    assert activation_function(unhashable) is unhashable
