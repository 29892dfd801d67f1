import jax
import matplotlib as mpl
import pytest

mpl.use("agg")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Most of the time goes into compiling small programs. Tests that start programs of their own have them optimised as users do.
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
