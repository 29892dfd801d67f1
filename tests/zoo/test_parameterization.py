import dataclasses

import jax
import numpy as np
import pytest

from zoo import ROLES, Parameterization, parameterization

N, D, W, B, GAMMA = 64, 9, 1.5, 0.4, 2.0
FAMILY = [Parameterization.family(a, d) for a in (0.0, 0.25, 0.3, 0.5, 0.7) for d in (0.0, 0.25, 0.5)]

# (member, role): standard deviation at initialisation, forward multiplier, SGD's learning rate over η₀.
TABLE = {
    ("standard", "input"): (W / D**0.5, 1.0, GAMMA**2),
    ("standard", "hidden"): (W / N**0.5, 1.0, GAMMA**2),
    ("standard", "readout"): (W / N**0.5, 1.0, GAMMA**2),
    ("standard", "bias"): (B, 1.0, GAMMA**2),
    ("ntk", "input"): (1.0, W / D**0.5, GAMMA**2),
    ("ntk", "hidden"): (1.0, W / N**0.5, GAMMA**2),
    ("ntk", "readout"): (1.0, W / N**0.5, GAMMA**2),
    ("ntk", "bias"): (1.0, B, GAMMA**2),
    ("mup", "input"): (1.0, W / D**0.5, GAMMA**2 * N),
    ("mup", "hidden"): (1.0, W / N**0.5, GAMMA**2 * N),
    ("mup", "readout"): (1.0, W / N**0.5, GAMMA**2 * N),
    ("mup", "bias"): (1.0, B, GAMMA**2 * N),
}


@pytest.mark.parametrize(("member", "role"), TABLE)
def test_scales_and_learning_rates_of_the_members(member, role):
    p = parameterization(member)
    fan_in, std = {"input": (D, W), "bias": (1, B)}.get(role, (N, W))
    found = (*p.scales(role, fan_in, N, std), p.learning_rate_factor(role, N, GAMMA))
    np.testing.assert_allclose(found, TABLE[member, role], rtol=1e-14)


@pytest.mark.parametrize(("member", "scale"), [("standard", GAMMA), ("ntk", GAMMA), ("mup", GAMMA * N**0.5)])
def test_output_scale(member, scale):
    assert parameterization(member).output_scale(N, GAMMA) == pytest.approx(scale, rel=1e-15)


def test_a_fan_in_that_differs_from_the_width_enters_as_the_square_root_of_the_ratio():
    hidden = Parameterization.ntk.scales("hidden", 4 * N, N, W)[1]
    assert hidden == pytest.approx(W / (4 * N) ** 0.5, rel=1e-15)


@pytest.mark.parametrize("p", FAMILY, ids=lambda p: p.name)
def test_family_members_have_features_predictions_and_all_layers_of_order_one(p):
    assert 2 * p.a + p.b == pytest.approx(1, abs=1e-15)
    assert 2 * p.a_in + p.b_in == pytest.approx(0, abs=1e-15)
    assert 2 * p.a + p.c == pytest.approx(1, abs=1e-15)
    assert 2 * p.a_in + p.c == pytest.approx(0, abs=1e-15)
    # Exactly zero, since the twin takes anything below for a frozen layer.
    assert {p.tangent_exponent(role) for role in ROLES} == {0.0}


@pytest.mark.parametrize("p", FAMILY, ids=lambda p: p.name)
def test_sizes_and_speeds_do_not_depend_on_the_family_member(p):
    mup = Parameterization.mup
    for role in ROLES:
        fan_in = D if role == "input" else N
        (std, multiplier), (plain_std, plain) = (q.scales(role, fan_in, N, W) for q in (p, mup))
        assert std * multiplier == pytest.approx(plain_std * plain, rel=1e-13)
        # What an update does to a pre-activation: learning rate × multiplier², over γ².
        speed = p.learning_rate_factor(role, N, 1.0) * multiplier**2 / p.output_scale(N, 1.0) ** 2
        assert speed == pytest.approx(plain**2, rel=1e-13)


def test_named_members_are_members_of_the_family():
    exponents = lambda p: dataclasses.replace(p, name="")  # noqa: E731
    assert exponents(Parameterization.ntk) == exponents(Parameterization.family(a=0.5, d=0.0))
    assert exponents(Parameterization.mup) == exponents(Parameterization.family(a=0.5, d=0.5))
    assert (Parameterization.ntk.name, Parameterization.mup.name) == ("ntk", "mup")
    assert Parameterization.standard.tangent_exponent("hidden") == 1
    assert Parameterization.standard.tangent_exponent("bias") == 0


@pytest.mark.parametrize(("alpha", "power"), [(0.0, 0), (0.5, 0), (1.0, 1), (0.75, 0.5)])
def test_learning_rate_of_branches_grows_with_depth_where_alpha_is_above_one_half(alpha, power):
    p = Parameterization.family(0.5, 0.5, alpha=alpha)
    branch = p.learning_rate_factor("branch", N, GAMMA, depth=16)
    assert branch == pytest.approx(GAMMA**2 * N * 16.0**power, rel=1e-14)
    assert p.learning_rate_factor("hidden", N, GAMMA, depth=16) == pytest.approx(GAMMA**2 * N, rel=1e-14)


def test_rates_scale_in_all_members_whatever_sums_of_decimals_round_to():
    members = [Parameterization.family(a / 100, d=0.5) for a in range(-50, 151)]
    assert all(p.learning_rates_scale for p in members)
    assert {p.tangent_exponent(role) for p in members for role in ("input", "hidden")} == {0}
    assert not Parameterization.standard.learning_rates_scale
    assert not Parameterization.mup.replace(c=0.01).learning_rates_scale


@pytest.mark.parametrize("name", ["standard", "mup"])
def test_the_factor_of_a_tied_readout_is_the_same_number_where_exponents_are_traced(name):
    p = parameterization(name)
    expected = {"standard": 1.0, "mup": 1 / 8}[name]
    assert p.tied_factor(N) == expected
    assert jax.jit(lambda p: p.tied_factor(N))(jax.tree.map(float, p)) == expected


def test_a_changed_copy_is_named_custom_and_keeps_the_rest():
    changed = Parameterization.mup.replace(c=0.5)
    assert (changed.name, changed.c, changed.d, changed.a) == ("custom", 0.5, 0.5, 0.5)
    assert Parameterization.mup.c == 0


def test_unknown_parameterization_is_answered_with_the_nearest():
    with pytest.raises(
        ValueError, match=r'Unknown parameterization "mpu"\. Did you mean "mup"\? Known: mup, ntk, stand'
    ):
        parameterization("mpu")
    assert parameterization(Parameterization.mup) is Parameterization.mup
