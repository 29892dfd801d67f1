import flax.linen as nn
import numpy as np
import pytest

from limits import AbsentError, Kernels, MLPTwin, Twin, register_twin, twin
from zoo import MLP, Parameterization

X = np.sin(1.7 * np.arange(4)[:, None] * np.arange(1, 6) + 0.4)
W, B = 1.4, 0.3


def limit_of(**options):
    return twin(MLP(8, 2, **{"activation": "erf", "w_std": W, "b_std": B, **options}))


def test_standard_has_an_nngp_and_no_tangent_kernel():
    kernels = limit_of(parameterization="standard").kernels(X)
    np.testing.assert_allclose(kernels.nngp, limit_of().kernels(X).nngp, rtol=1e-13)
    with pytest.raises(
        AbsentError, match=r'standard parameterization grows as N\^1 .* Use parameterization="ntk" or "mup"'
    ):
        _ = kernels.ntk
    assert (kernels.has("nngp"), kernels.has("ntk")) == (True, False)
    assert (kernels.provenance["nngp"].kind, kernels.provenance["ntk"].kind) == ("exact", "absent")
    assert repr(kernels) == "Kernels(nngp: (4, 4), ntk: absent)"


def test_kernels_of_a_definition_do_not_depend_on_its_width():
    assert np.array_equal(limit_of().kernels(X).ntk, twin(MLP(999, 2, 3, "erf", W, B)).kernels(X).ntk)


@pytest.mark.parametrize(
    ("form", "gamma", "share"),
    [("ntk", 1.0, 1.0), ("ntk", 3.0, 1 / 9), ("mup", 1.0, 1.0), ("mup", 3.0, 1.0), ("standard", 3.0, 1 / 9)],
)
def test_gamma_divides_the_output_and_leaves_the_tangent_kernel(form, gamma, share):
    # `mup`: the output's own covariance vanishes; nngp is the last features' kernel through the readout, without γ.
    plain, limit = limit_of().kernels(X), limit_of(parameterization=form, gamma=gamma)
    kernels = limit.kernels(X)
    np.testing.assert_allclose(kernels.nngp, plain.nngp * share, rtol=1e-13)
    np.testing.assert_allclose(limit.kernels(X, diagonal=True).nngp, np.diag(plain.nngp) * share, rtol=1e-13)
    if form != "standard":
        np.testing.assert_allclose(kernels.ntk, plain.ntk, rtol=1e-13)
    np.testing.assert_allclose(limit.initial(X).covariance, kernels.nngp if form != "mup" else 0 * plain.nngp)


@pytest.mark.parametrize("a", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("d", [0.0, 0.5])
def test_all_members_of_the_family_have_one_limit(a, d):
    kernels, plain = limit_of(parameterization=Parameterization.family(a=a, d=d)).kernels(X), limit_of().kernels(X)
    np.testing.assert_allclose(kernels.nngp, plain.nngp, rtol=1e-13)
    np.testing.assert_allclose(kernels.ntk, plain.ntk, rtol=1e-13)


def layer_sum(limit, weight=1.0, first=1.0, bias=1.0):
    """Σ_l G^l (w² Φ^(l−1) + b²), with the share of the first layer's weights, of the later ones', of the biases."""
    features, gradients = limit.layers(X)
    features, gradients = [X @ X.T / X.shape[1], *features], [*gradients, np.ones((4, 4))]
    shares = [first, *[weight] * (len(gradients) - 1)]
    return sum(
        g * (share * W**2 * phi + bias * B**2) for g, share, phi in zip(gradients, shares, features, strict=True)
    )


@pytest.mark.parametrize("bias_init", ["normal", "zeros"])
@pytest.mark.parametrize("form", ["ntk", "mup"])
def test_tangent_kernel_is_the_sum_over_layers(form, bias_init):
    limit = limit_of(parameterization=form, bias_init=bias_init)
    assert [len(part) for part in limit.layers(X)] == [2, 2]
    np.testing.assert_allclose(limit.kernels(X).ntk, layer_sum(limit), rtol=1e-12)


def test_first_features_are_those_of_the_docstring():
    features, gradients = limit_of().layers(X)
    q = W**2 * X @ X.T / 5 + B**2
    root = np.sqrt(1 + 2 * np.diag(q))
    np.testing.assert_allclose(features[0], 2 / np.pi * np.arcsin(2 * q / np.outer(root, root)), rtol=1e-12)
    np.testing.assert_allclose(limit_of().readout(features[1]), limit_of().kernels(X).nngp, rtol=1e-12)
    q = W**2 * features[0] + B**2
    slope = 4 / np.pi / np.sqrt(np.outer(1 + 2 * np.diag(q), 1 + 2 * np.diag(q)) - 4 * q * q)
    np.testing.assert_allclose(gradients[1], W**2 * slope, rtol=1e-12)


@pytest.mark.parametrize(("form", "gamma"), [("ntk", 2.0), ("mup", 2.0)])
@pytest.mark.parametrize("bias_init", ["normal", "zeros"])
def test_readout_carries_the_last_features_to_the_nngp(form, gamma, bias_init):
    limit = limit_of(parameterization=form, gamma=gamma, bias_init=bias_init)
    np.testing.assert_allclose(limit.readout(limit.layers(X)[0][-1]), limit.kernels(X).nngp, rtol=1e-12)


def test_biases_that_start_at_zero_are_in_the_tangent_kernel_alone():
    zeros, none = limit_of(bias_init="zeros"), limit_of(b_std=0.0)
    # What is carried is 1 − c, so that an entry of a small c is exact to 1e-16 of the variances, not of itself.
    np.testing.assert_allclose(zeros.kernels(X).nngp, none.kernels(X).nngp, rtol=1e-13, atol=4e-16)
    _, gradients = none.layers(X)
    expected = none.kernels(X).ntk + B**2 * (gradients[0] + gradients[1] + 1)
    np.testing.assert_allclose(zeros.kernels(X).ntk, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("exponents", "shares"),
    [
        ({"a": 0.75, "b": -0.5}, {"weight": 0.0}),  # hidden layers and readout learn at rate N^(-1/2): not at all
        ({"a_in": 0.25, "b_in": -0.5}, {"first": 0.0, "bias": 0.0}),
        ({"c": 0.5}, {"first": 0.0, "weight": 0.0, "bias": 0.0}),
    ],
)
def test_layers_whose_learning_rate_vanishes_are_left_out(exponents, shares):
    limit = limit_of(parameterization=Parameterization.mup.replace(**exponents))
    np.testing.assert_allclose(limit.kernels(X).ntk, layer_sum(limit_of(), **shares), rtol=1e-12, atol=1e-15)


def test_a_layer_whose_learning_rate_grows_makes_the_tangent_kernel_absent():
    kernels = limit_of(parameterization=Parameterization.mup.replace(c=-0.5)).kernels(X)
    with pytest.raises(AbsentError, match=r"custom parameterization grows as N\^0\.5"):
        _ = kernels.ntk


@pytest.mark.parametrize("exponents", [{"b": 1.0}, {"b_in": 1.0}])
def test_features_of_another_order_have_no_limit(exponents):
    with pytest.raises(ValueError, match=r"custom parameterization has no infinite-width limit.*2a \+ b = 1"):
        limit_of(parameterization=Parameterization.ntk.replace(**exponents)).kernels(X)


def test_depth_of_the_twin():
    assert twin(MLP(8, 2), depth=2).net.depth == 2
    with pytest.raises(AbsentError, match=r"MLP has no infinite-depth limit.*set the definition's depth"):
        twin(MLP(8, 2), depth=np.inf)
    with pytest.raises(ValueError, match=r"the depth belongs to the definition; use MLP\(…, depth=3\)"):
        twin(MLP(8, 2), depth=3)
    for depth in (-np.inf, np.nan):
        with pytest.raises(ValueError, match="depth must be None or inf, got"):
            twin(MLP(8, 2), depth=depth)


def test_a_user_can_register_a_twin_for_an_own_definition():
    class Own(nn.Module):
        width: int = 3

    with pytest.raises(ValueError, match=r"twin: Own is a plain module.*in_parameterization"):
        twin(Own())

    @register_twin(Own)
    class OwnTwin(Twin):
        def kernels(self, x1, x2=None):
            return Kernels(x1, x1)

    class Child(Own):
        pass

    assert type(twin(Own())) is OwnTwin
    assert type(twin(Child())) is OwnTwin
    assert twin(Own()).kernels(2).ntk == 2
    with pytest.raises(AbsentError, match="Twin has no closed kernels"):
        Twin(Own()).kernels(X)


def test_subclasses_of_a_definition_have_its_twin_unless_they_have_their_own():
    class Mine(MLP):
        pass

    class Other(MLP):
        pass

    @register_twin(Other)
    class OtherTwin(MLPTwin):
        pass

    assert (type(twin(Mine(8, 1))), type(twin(Other(8, 1)))) == (MLPTwin, OtherTwin)


def test_an_activation_that_cannot_be_hashed_is_refused():
    class Square:
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __call__(self, x):
            return x * x

    with pytest.raises(ValueError, match="wrap it in a function"):
        twin(MLP(width=4, depth=1, activation=Square())).kernels(np.eye(2))


def test_members_of_the_family_whose_exponents_round_have_the_limit_of_the_others():
    x = np.array([[1.0, 2.0], [0.5, -1.0]])
    found = [
        twin(MLP(width=8, depth=2, b_std=0.3, parameterization=Parameterization.family(a, d=0.5))).kernels(x)
        for a in (-0.2, 0.5)  # 2a + c is 1 − 1e-16 and 1
    ]
    np.testing.assert_allclose(found[0].nngp, found[1].nngp, rtol=1e-12)
    np.testing.assert_allclose(found[0].ntk, found[1].ntk, rtol=1e-12)
