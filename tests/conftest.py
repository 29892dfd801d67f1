import jax
import matplotlib as mpl
import pytest

mpl.use("agg")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
