from typing import Any

import jax
import jax.numpy as jnp
import pytest

from zoo import MLP, Dense, Parameterization, activation_function, roles

SIZES: dict[str, Any] = {"width": 4, "depth": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0}, "MLP: width must be an integer of at least 1, got 0"),
        ({"depth": 0}, "MLP: depth must be an integer of at least 1, got 0"),
        ({"outputs": -1}, "MLP: outputs must be an integer of at least 1, got -1"),
        ({"width": 2.0}, "MLP: width must be an integer of at least 1, got 2.0"),
        ({"width": True}, "MLP: width must be an integer of at least 1, got True"),
        ({"activation": "rleu"}, r'Unknown activation "rleu"\. Did you mean "relu"\?.* Any callable will do too'),
        ({"parameterization": "mpu"}, r'Unknown parameterization "mpu"\. Did you mean "mup"\?'),
        ({"w_std": 0.0}, "MLP: w_std must be a finite number > 0, got 0.0"),
        ({"w_std": float("nan")}, "MLP: w_std must be a finite number > 0, got nan"),
        ({"b_std": -0.1}, "MLP: b_std must be a finite number ≥ 0, got -0.1"),
        ({"b_std": float("inf")}, "MLP: b_std must be a finite number ≥ 0, got inf"),
        ({"gamma": 0}, "MLP: gamma must be a finite number > 0, got 0"),
        ({"dtype": "bfloat"}, 'MLP: dtype must be a float type such as "bfloat16" or "float32", got \'bfloat\''),
        ({"dtype": "int32"}, 'MLP: dtype must be a float type such as "bfloat16" or "float32", got \'int32\''),
        ({"bias_init": "zero"}, """MLP: bias_init must be one of "normal", "zeros"; got 'zero'"""),
    ],
)
def test_a_bad_value_is_named_with_its_field(arguments, message):
    with pytest.raises(ValueError, match=message):
        MLP(**(SIZES | arguments))


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
    import flax.linen as nn

    with pytest.raises(ValueError, match="No role is known for bias, kernel: build the network from zoo's layers"):
        roles(nn.Dense(2), jnp.ones((1, 3)))


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
