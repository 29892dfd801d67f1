"""A model of your own that starts as its roles ask."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo import checks
from zoo.infer import infer_roles
from zoo.inferred import Roles
from zoo.modules import check_told, is_nnx, pair_of, spread, takes_rngs, told


@checks.arguments(
    net=checks.Check("a model with init and apply", lambda v: callable(v.init) and callable(v.apply)),
    roles=checks.a(Roles, "Roles, as zoo.infer_roles returns"),
)
@dataclasses.dataclass(frozen=True)
class Rescaled:
    """A model (with init and apply) and its roles: `init` returns what `Roles.rescale` makes of the model's parameters.

    Takes the place of the model in `train.coord_check`, `train.transfer.transfer`, and in make(width, depth) of a config of
    launch.train and launch.transfer; `scaled` and `explain` take it for its roles.

    >>> import flax.linen as nn
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import optax
    >>> from zoo import scaled
    >>> class Net(nn.Module):
    ...     width: int
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         for layer in ("first", "second"):
    ...             x = nn.tanh(nn.Dense(self.width, name=layer)(x))
    ...         return nn.Dense(1, name="readout")(x)
    >>> x = jnp.ones((4, 3))
    >>> net = Rescaled.of(Net, x, base={"width": 8}, target={"width": 32})
    >>> {name: place.role for name, place in net.roles.places.items() if "kernel" in name}
    {'first.kernel': 'input', 'readout.kernel': 'readout', 'second.kernel': 'hidden'}
    >>> variables, tx = net.init(jax.random.key(0), x), scaled(optax.adam(1e-3), net)
    >>> net.apply(variables, x).shape
    (4, 1)
    """

    net: Any
    roles: Roles

    @classmethod
    def of(
        cls, make: Callable, inputs: Any, base: Mapping[str, Any], target: Mapping[str, Any], **options: Any
    ) -> "Rescaled":
        """make(**target), with roles inferred against make(**base); options go to `infer_roles`, inputs to their `init`.

        Of an NNX module make takes rngs too: make(width, rngs). A tuple of inputs is that of a module called with as many.
        """
        nnx = takes_rngs(make)

        def model(**sizes: Any) -> Any:
            made = pair_of(make, sizes, "Rescaled.of") if nnx else make(**sizes)
            if is_nnx(made):
                raise ValueError(
                    f"Rescaled.of: make returns the NNX module {type(made).__name__}, which has its parameters already: give "
                    "make an argument rngs, make(width, rngs)."
                )
            return made

        shapes = [isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(inputs)]
        x = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), inputs) if any(shapes) else inputs

        def given(made: Any) -> tuple[Any, ...]:
            if not isinstance(made, nn.Module):
                return (x,)
            inputs = spread(made.__call__, x)
            check_told(made.__call__, len(inputs), what=f"Rescaled.of: {type(made).__name__}")
            return inputs

        def init(key: Any, **sizes: Any) -> Any:
            made = model(**sizes)
            how: Any = told(made.__call__, None) if isinstance(made, nn.Module) else {}
            return parameters(made.init(key, *given(made), **how))

        def apply(params: Any, **sizes: Any) -> Any:
            made = model(**sizes)
            return made.apply(params, *(given(made) if isinstance(x, Mapping | tuple) else (jnp.asarray(x),)))

        seen = {"apply": apply} if nnx else {}
        return cls(model(**target), infer_roles(init, base, target, **{**seen, **options}))

    def init(self, *arguments: Any, **options: Any) -> Any:
        """The model's variables, with rescaled parameters."""
        variables = self.net.init(*arguments, **options)
        if parameters(variables) is variables:
            return self.roles.rescale(variables)
        return {**variables, "params": self.roles.rescale(variables["params"])}

    def apply(self, *arguments: Any, **options: Any) -> Any:
        """The model's own."""
        return self.net.apply(*arguments, **options)

    def factors(self, params: Any) -> Any:
        """The `zoo.Factors` of every parameter."""
        return self.roles.factors(params)


def parameters(variables: Any) -> Any:
    """What is trained, of Linen's variables; of anything else, all of it."""
    return variables["params"] if isinstance(variables, Mapping) and "params" in variables else variables


def within(net: Any) -> Any:
    """The model itself, where it is wrapped."""
    return net.net if isinstance(net, Rescaled) else net
