"""The phase diagram against the phases and recursions of single networks."""

import math

import numpy as np
import pytest

from limits.depth import deep_pair, edge_of_chaos, phase, phase_diagram, plot_phase_diagram


@pytest.fixture(scope="module")
def tanh():
    return phase_diagram("tanh", w_std=[0.8, 1.3, 2.0, 2.9], b_std=[0.1, 0.6], depth=30)


@pytest.mark.slow
def test_every_point_is_the_phase_of_its_network(tanh):
    for i, j in ((0, 0), (1, 3)):
        w, b = tanh.w_std[j], tanh.b_std[i]
        at = phase("tanh", w, b)
        assert tanh.variance[i, j] == pytest.approx(at.q, rel=1e-6)
        assert tanh.chi[i, j] == pytest.approx(at.chi, rel=1e-6)
        assert tanh.depth_scale[i, j] == pytest.approx(min(at.depth_scale, at.gradient_depth_scale), rel=1e-5)
        k = deep_pair([0.5, 1.0], [30], "tanh", w, b, q=at.q)
        assert tanh.ratio[i, j] == pytest.approx(np.exp(k.log_ntk[0, 0] - k.log_ntk[0, 1]), rel=1e-5)


@pytest.mark.slow
def test_edge_and_condition(tanh):
    assert tanh.edge == pytest.approx([edge_of_chaos("tanh", b) for b in (0.1, 0.6)])
    assert (tanh.trains() == (6 * tanh.depth_scale > 30)).all()
    assert tanh.trains(1).all()
    # The eigenvalues of m inputs, all at one correlation: 1 + (m − 1) ρ and 1 − ρ.
    rho = tanh.ratio[0, 1]
    kernel = np.full((10, 10), rho) + (1 - rho) * np.eye(10)
    assert tanh.condition(10)[0, 1] == pytest.approx(np.linalg.cond(kernel), rel=1e-6)
    assert tanh.condition()[1, 0] > 1e10  # ordered
    assert tanh.condition()[1, 3] < 10  # chaotic: well conditioned, and says nothing about other points


def test_relu():
    relu = phase_diagram("relu", w_std=[1.0, 2.0], b_std=[0.0, 0.5], depth=3000)
    assert relu.chi[0].tolist() == [0.5, 2.0]
    assert relu.edge[0] == pytest.approx(math.sqrt(2))
    assert np.isnan(relu.edge[1])
    k = deep_pair([0.5, 1.0], [3000], "relu", 2.0, 0.0)
    assert relu.ratio[0] == pytest.approx(
        np.exp(k.log_ntk[0, 0] - k.log_ntk[0, 1]), rel=1e-9
    )  # the same at every w_std
    assert relu.ratio[1, 0] == 1


@pytest.mark.slow
def test_a_repelling_edge_is_none():
    gelu = phase_diagram("gelu", w_std=[1.0, 2.5], b_std=[0.1], depth=10)
    assert np.isnan(gelu.ratio[0, 1])
    assert np.isnan(gelu.edge[0])  # that point repels


def test_picture(tanh, tmp_path):
    figure = plot_phase_diagram(tanh, depths=(10, 30))
    figure.savefig(tmp_path / "diagram.png", dpi=40)
    assert len(figure.axes) == 4  # two panels, two colour bars
    for axis in figure.axes[:2]:
        line = axis.lines[0]
        np.testing.assert_allclose(np.asarray(line.get_xdata()), tanh.edge)
    plot_phase_diagram(phase_diagram("relu", [1.0, 1.5, 2.0], [0.1, 0.3], 10)).savefig(tmp_path / "relu.png", dpi=40)


def test_mistakes_are_answered():
    with pytest.raises(ValueError, match="w_std"):
        phase_diagram("tanh", w_std=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"depth must be .* got 0"):
        phase_diagram("tanh", depth=0)
    for w, b, name in (([math.nan, 2.0], [0.1], "w_std"), ([1.0], [0.1, math.nan], "b_std"), ([1.0], [-0.1], "b_std")):
        with pytest.raises(ValueError, match=f"phase_diagram: {name} must be .* finite number"):
            phase_diagram("tanh", w, b)
    with pytest.raises(ValueError, match="points"):
        phase_diagram("relu", [1.0], [0.1], 3).condition(-5)
    with pytest.raises(ValueError, match=r"w_std must be .* one or more"):
        phase_diagram("tanh", [], [0.1])


@pytest.mark.slow  # that of single networks is in test_phases
def test_large_and_small_variances():
    found = phase_diagram("tanh", w_std=[0.5, 1.5], b_std=[0.0, 1e-5, 120.0], depth=10)
    for i, j in ((1, 0), (1, 1), (2, 0), (2, 1)):
        at = phase("tanh", found.w_std[j], found.b_std[i])
        assert found.variance[i, j] == pytest.approx(at.q, rel=1e-6)
        assert found.chi[i, j] == pytest.approx(at.chi, rel=1e-6)
    assert found.variance[0, 0] == 0  # without bias and w_std < 1 signals die, all at one angle
    assert found.chi[0, 0] == pytest.approx(0.25)
    assert found.ratio[0, 0] == pytest.approx(0.5)
