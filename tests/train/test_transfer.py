"""Learning-rate sweeps: what they train, what they record of divergence, and what they make of the curves."""

from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train.transfer import Sweep, Transfer, loss_at, optimum, sweep_rates, train_runs, transfer
from train.transfer.kept import KeptRuns
from train.transfer.numbers import numbers
from train.transfer.outcome import Outcome, target
from train.transfer.runs import shuffled
from zoo import MLP, Parameterization, scaled

RNG = np.random.default_rng(0)
X, Y = (jnp.asarray(RNG.normal(size=(12, 8, size)), "float32") for size in (5, 1))


def make(width: int, depth: int) -> MLP:
    return MLP(width, depth, activation="tanh", parameterization=Parameterization.mup.based(8))


def adam(net: Any, rate: Any) -> Any:
    return scaled(optax.adam(rate), net)


def loss(f: Any, y: Any) -> Any:
    return jnp.mean((f - y) ** 2)


def test_batches_may_come_in_the_same_memory():
    """As loaders give them that fill one array again and again."""

    def own(seed: int) -> Any:
        x, y = np.empty_like(X[0]), np.empty_like(Y[0])
        for x[:], y[:] in zip(X, Y, strict=True):
            yield x, y

    def curves(batches: Any) -> Any:
        return train_runs(lambda job: (make(8, 1), optax.sgd(0.1)), loss, batches, len(X), {}, [0])

    np.testing.assert_array_equal(curves(own), curves(zip(X, Y, strict=True)))
    in_its_order = curves(shuffled(zip(X, Y, strict=True), len(X), 0))
    np.testing.assert_array_equal(curves(lambda seed: shuffled(own(seed), len(X), seed)), in_its_order)


def test_every_run_is_that_of_a_loop_of_its_own():
    rates = [0.003, 0.03]
    found = sweep_rates(make, adam, loss, (X, Y), 16, 2, rates, seeds=3)
    net = make(16, 2)
    own = list(shuffled(zip(X, Y, strict=True), len(X), 2))  # the order of the third seed
    for i, rate in enumerate(rates):
        key = jax.random.fold_in(jax.random.key(0), 2)
        params = jax.jit(net.init)(key, X[0])
        tx = adam(net, rate)
        state = tx.init(params)

        @jax.jit
        def step(params: Any, state: Any, x: Any, y: Any, tx: Any = tx) -> Any:
            value, slope = jax.value_and_grad(lambda params: loss(net.apply(params, x), y))(params)
            updates, state = tx.update(slope, state, params)
            return optax.apply_updates(params, updates), state, value

        for t, (x, y) in enumerate(own):
            params, state, value = step(params, state, x, y)
            np.testing.assert_allclose(found.curves[i, 2, t], value, rtol=2e-4)
    assert abs(found.curves[0] - found.curves[1])[:, -1].max() > 0.01


def test_a_size_compiles_once_whatever_the_number_of_rates_and_seeds():
    seen: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **more: seen.append(event) if "backend_compile" in event else None
    )
    counts = []
    for rates, seeds in ((2, 2), (9, 3)):
        sweep_rates(make, adam, loss, (X, Y), 8, 2, np.geomspace(0.001, 0.1, rates).tolist(), seeds)
        seen.clear()
        sweep_rates(make, adam, loss, (X, Y), 12, 2, np.geomspace(0.002, 0.1, rates).tolist(), seeds)
        counts.append(len(seen))
    assert 1 <= counts[1] <= counts[0] <= 3


def test_what_diverges_is_recorded_and_does_not_come_back():
    found = sweep_rates(
        make, lambda net, rate: scaled(optax.sgd(rate), net), loss, (X, Y), 8, 2, [0.1, 1e6, 1e20], seeds=2
    )
    assert found.diverged.tolist() == [0, 2, 2]
    broken = ~np.isfinite(found.curves)
    assert np.array_equal(np.maximum.accumulate(broken, axis=2), broken)
    assert found.optimum().rate == pytest.approx(0.1)
    assert found.optimum().edge


def test_a_run_that_ends_far_above_its_start_has_diverged_and_a_spike_has_not():
    curves = np.ones((3, 2, 20))
    curves[1, 0, 5] = 1e6  # a spike
    curves[2, 1, 12:] = 11.0
    found = Sweep(8, 2, np.array([0.1, 0.2, 0.4]), curves)
    assert found.diverged.tolist() == [0, 0, 1]
    assert found.until(12)[2, 1] == 1
    assert found.optimum().loss == 1


def test_a_neighbour_that_explodes_does_not_enter_the_loss():
    best = optimum([0.1, 0.2, 0.4], np.array([0.06, 0.05, 1e6]))
    assert best.loss == 0.05
    assert np.log2(0.1) < best.log_rate <= np.log2(0.2)


def test_a_size_at_which_everything_diverges_has_no_optimum():
    rates = np.array([0.1, 0.2, 0.4])
    fine = Sweep(8, 2, rates, np.repeat(np.array([2.0, 1.0, 2.0])[:, None, None], 20, 2).repeat(3, 1))
    none = Sweep(16, 2, rates, np.full((3, 3, 20), np.inf))
    assert np.isnan(none.optimum().rate)
    assert none.settled() == 20
    found = Transfer("width", (fine, none))
    assert "At width 16 (depth 2) every value diverges" in found.sentence
    assert found.rows()[1][2] == "none: all diverge"
    assert found.regret()[0] == np.inf
    assert Transfer("width", (none, fine)).regret()[0] == np.inf
    single = [Sweep(width, 2, rates[:1], fine.curves[:1]) for width in (8, 16)]
    assert Transfer("width", tuple(single)).sentence.startswith("Only one value was tried, 0.1")


def test_a_loss_that_is_always_the_same_has_no_optimum():
    curves = np.full((3, 2, 10), 1.5)
    sweeps: Any = {(width, 1): Sweep(width, 1, np.array([0.1, 0.2, 0.4]), curves) for width in (8, 16)}
    sentence = Transfer("width", tuple(sweeps.values())).sentence
    assert sentence.startswith("At width 8, 16 (depth 1) all runs end with the same loss: nothing tells values apart.")
    advice = target(Outcome("learning_rate", {"": sweeps}), 64, 1).advice
    assert "of width 8, depth 1 end with the same loss: any value is as good" in advice
    assert "grid" not in sentence + advice  # it said: at an end of the grid, try values beyond it
    curves = curves + np.arange(3)[:, None, None]
    assert not Sweep(8, 1, np.array([0.1, 0.2, 0.4]), curves).flat


def test_divergence_beside_the_optimum_is_not_divergence_at_it():
    rates, losses = np.array([0.1, 0.2, 0.4]), np.array([1.2, 1.0, np.inf])
    assert loss_at(rates, losses, np.log2(0.21)) == 1.0
    assert loss_at(rates, losses, np.log2(0.39)) == np.inf


def test_weights_of_bfloat16_with_a_traced_momentum():
    def build(job: Any) -> Any:
        net = make(8, 1)

        class Half:
            apply = net.apply

            def init(self, key: Any, x: Any) -> Any:
                return jax.tree.map(lambda a: a.astype("bfloat16"), net.init(key, x))

        return Half(), optax.sgd(0.1, job["momentum"])

    curves = train_runs(build, loss, zip(X, Y, strict=True), 4, {"momentum": [0.5, 0.9]}, [0, 0])
    assert np.isfinite(curves).all()
    with pytest.raises(ValueError, match="one shape"):
        train_runs(build, loss, [(X[0], Y[0]), (X[0][:2], Y[0][:2])], 2, {"momentum": [0.5]}, [0])
    for batch, message in (
        ((np.array(["a", "b"]), Y[0]), "batch 1 gives inputs that are an array of <U1"),
        ((X[0], Y[0][:2]), f"batch 1 gives {len(X[0])} inputs with 2 targets"),
    ):
        with pytest.raises(ValueError, match=message):
            train_runs(build, loss, [batch], 1, {"momentum": [0.5]}, [0])


def test_the_optimum_of_a_curve():
    rates = 2.0 ** np.arange(-6, 3)
    best = optimum(rates, (np.log2(rates) + 2.3) ** 2 + 0.7)
    assert (best.loss, best.edge) == (pytest.approx(0.79), False)  # the least loss is that at −2
    assert best.log_rate == pytest.approx(-2.3, abs=0.03)  # no shape is taken for exact: its logarithm has several
    assert optimum(rates, np.log2(rates)).edge
    beside = np.where(rates > 0.25, np.inf, -np.log2(rates))  # the best rate is the last that does not diverge
    assert (optimum(rates, beside).rate, optimum(rates, beside).edge) == (0.25, False)
    assert not np.isfinite(optimum(rates, np.full(9, np.inf)).loss)
    assert loss_at(rates, np.arange(9.0), -5.5) == 0.5


def sweeps(exponent: float, seeds: int = 6) -> Transfer:
    """Loss (log₂ rate − optimum)² + 1 with the optimum at width^exponent, and seeds that scatter by a tenth of an octave."""
    rng, rates = np.random.default_rng(1), 2.0 ** np.arange(-8, 3, 0.25)
    found = []
    for width in (64, 128, 256, 512):
        best = -2 + exponent * np.log2(width / 64) + 0.1 * rng.normal(size=seeds)
        losses = (np.log2(rates)[:, None] - best) ** 2 + 1
        found.append(Sweep(width, 2, rates, losses[..., None]))
    return Transfer("width", tuple(found))


@pytest.mark.parametrize("exponent", [0.0, -0.5, -1.0])
def test_the_shift_of_the_optimum_over_sizes(exponent):
    found = sweeps(exponent)
    slope, low, high = found.slope()
    assert low < exponent < high
    assert abs(slope - exponent) < 0.06
    assert high - low < 0.2
    assert found.shift()[0] == pytest.approx(3 * exponent, abs=0.15)
    cost, least, most = found.regret()
    assert least <= cost <= most
    assert cost == pytest.approx((3 * exponent) ** 2, abs=0.15)


def test_sizes_are_kept_and_gone_on_from(tmp_path, monkeypatch):
    how: dict[str, Any] = {"rates": [0.01, 0.1, 1.0], "seeds": 2, "folder": tmp_path}
    with pytest.raises(ValueError, match="width 8 and depth 1 alone leave nothing to compare"):
        transfer(make, adam, loss, (X, Y), (8,), (1,), **how)
    whole = transfer(make, adam, loss, (X, Y), (8, 16), (1, 2), **how)
    assert [each.over for each in whole] == ["width", "depth"]
    assert sorted(file.name.rpartition("_")[0] for file in tmp_path.glob("*.npz")) == [
        "width_16_depth_1", "width_8_depth_1", "width_8_depth_2",
    ]  # fmt: skip
    trained = []
    curves = whole[0].sweeps[0].curves
    monkeypatch.setattr(
        "train.transfer.cells.curves_of", lambda *a: trained.append(len(a[-1])) or np.resize(curves, (len(a[-1]), 12))
    )
    again = transfer(make, adam, loss, (X, Y), (8, 16), (1, 2), **how)
    np.testing.assert_array_equal(again[0].sweeps[1].curves, whole[0].sweeps[1].curves)
    assert not trained  # again
    others: list[Any] = [
        (make, adam, loss, (X, Y + 1)), (make, adam, lambda f, y: 2 * loss(f, y), (X, Y)),
        (make, lambda net, rate: adam(net, 2 * rate), loss, (X, Y)), (lambda *size: make(*size), adam, loss, (X, Y)),
    ]  # fmt: skip
    for other in others:
        make_, optimizer, loss_, batches = other
        transfer(make_, optimizer, loss_, batches, (8, 16), (1, 2), **how)
    assert trained == [3 * 2] * 3 * len(others)
    trained.clear()
    transfer(make, adam, loss, (X, Y), (8, 16), (1, 2), **{**how, "seeds": 3})
    transfer(make, adam, loss, (X, Y), (8, 16), (1, 2), **{**how, "seeds": 3, "rates": [0.01, 0.1, 0.3, 1.0]})
    assert trained == [3] * 3 + [3] * 3  # a seed more at three rates, then a rate more with three seeds


@pytest.mark.slow
def test_batches_that_do_not_fit_at_once_and_a_device_for_many_runs_change_nothing(monkeypatch):
    how = lambda together: train_runs(  # noqa: E731
        lambda job: (make(8, 2), adam(make(8, 2), job["rate"])), loss, zip(X, Y, strict=True), len(X),
        {"rate": [0.01, 0.02, 0.03]}, [0, 1, 2], together,
    )  # fmt: skip
    whole = how(None)
    monkeypatch.setattr("train.transfer.runs._CHUNK_BYTES", 5 * X[0].nbytes)
    np.testing.assert_allclose(how(None), whole, rtol=2e-5)
    np.testing.assert_allclose(how(2), whole, rtol=2e-4)
    with pytest.raises(ValueError, match="end after 12 of 13 steps"):
        train_runs(lambda job: (make(8, 2), optax.sgd(0.1)), loss, zip(X, Y, strict=True), 13, {}, [0])


def test_a_run_that_was_infinite_once_stays_so():
    def loss_with_a_hole(f: Any, y: Any) -> Any:
        return loss(f, y) + jnp.where(y[0, 0] == Y[3, 0, 0], jnp.inf, 0.0)

    curves = train_runs(lambda job: (make(8, 1), optax.sgd(0.01)), loss_with_a_hole, zip(X, Y, strict=True), 6, {}, [0])
    assert np.isfinite(curves[0]).tolist() == [True] * 3 + [False] * 3


def test_regret_is_that_of_the_largest_size():
    rates = 2.0 ** np.arange(-6, 3)
    small, large = (
        Sweep(width, 2, rates, np.repeat((steep * (np.log2(rates) - best) ** 2 + 1)[:, None, None], 3, 1))
        for width, steep, best in ((8, 1.0, -2.0), (16, 4.0, -1.0))
    )
    cost, low, high = Transfer("width", (small, large)).regret()
    assert cost == pytest.approx(4.0, rel=0.01)
    # Optima are known to less than a third of the grid's spacing, although there is no noise, and the cost is 4 (1 ± that)².
    assert 4 * 0.7**2 < low < 0.9 * cost < 1.1 * cost < high < 4 * 1.3**2


def test_regret_of_losses_that_are_not_positive_is_a_difference():
    rates, found = 2.0 ** np.arange(-6, 3), []
    for floor in (1.0, -3.0):
        curves = [((np.log2(rates) - best) ** 2 + floor)[:, None, None] for best in (-2.0, -1.0)]
        small, large = (
            Sweep(width, 2, rates, np.repeat(each, 3, 1)) for width, each in zip((8, 16), curves, strict=True)
        )
        found.append(Transfer("width", (small, large)))
    (cost, low, high), words = found[1].regret(), found[1].sentence
    assert cost == pytest.approx(1.0, rel=0.01)
    assert 0 < low < cost < high < 2
    assert "in loss, which is not always positive" in words
    assert "of its loss" in found[0].sentence


def test_every_seed_has_an_order_of_the_batches_of_its_own():
    seen: dict[int, list] = {}
    x = jnp.arange(6.0)[:, None, None] * jnp.ones((6, 2, 5))
    found = sweep_rates(
        make, lambda net, rate: optax.sgd(rate), lambda f, y: jnp.mean(y), (x, x), 8, 1, [1e-9, 1e-8], seeds=3
    )
    for seed in range(3):
        seen[seed] = found.curves[0, seed].tolist()  # the loss is the number of the batch
        assert sorted(seen[seed]) == list(range(6))
        assert found.curves[1, seed].tolist() == seen[seed]  # the same at every rate
    assert len({tuple(order) for order in seen.values()}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rates": [0.1, 0.1]}, "rates must be .* each once.* got .0.1, 0.1"),
        ({"rates": [0.1, -0.1]}, "rates must be .* finite number > 0"),
        ({"rates": [0.1, 0.0]}, "rates must be .* finite number > 0"),
        ({"rates": [0.1, float("nan")]}, "rates must be .* finite number > 0"),
        ({"rates": []}, "rates must be .* 2 or more of them"),
        ({"widths": (8, 8)}, "widths must be .* each once"),
        ({"depths": ()}, "depths must be .* one or more of them"),
        ({"widths": (8, 0)}, "widths must be .* integer of at least 1"),
        ({"seeds": 1}, "seeds must be an integer of at least 2"),
    ],
)
def test_grids_that_make_no_sense(change, message):
    how: dict[str, Any] = {"widths": (8, 16), "depths": (1,), "rates": [0.01, 0.1], "seeds": 2, **change}
    with pytest.raises(ValueError, match=message):
        transfer(make, adam, loss, (X, Y), **how)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_interval_holds_the_optimum_also_at_an_end_of_the_grid(sign):
    """The curve's minimum lies before the end, which is nearer to it than the value beside."""
    x, noise = np.arange(-4.0, 5.0), 0.01 * np.random.default_rng(0).normal(size=(9, 4))
    losses = np.exp(0.5 * (x[:, None] - sign * 3.52) ** 2 + noise)
    sweep = Sweep(8, 1, 2.0**x, np.repeat(losses[..., None], 10, axis=-1))
    best, (low, high) = sweep.optimum(), sweep.interval()
    assert (best.edge, best.log_rate) == (True, 4 * sign)
    assert low <= best.rate <= high
    assert 0.1 < np.log2(high / low) < 1


def test_a_first_batch_without_loss_is_no_measure_of_divergence():
    """Hinge losses, and those that are clipped, may be 0 at the start of a run that learns well."""
    good, fair = [0.0, 0.02, 0.01, 0.004], [0.3, 0.2, 0.1, 0.1]
    found = Sweep(8, 1, np.array([0.1, 0.2]), np.array([[good] * 2, [fair] * 2]))
    assert found.diverged.tolist() == [0, 0]
    assert found.optimum().rate == pytest.approx(0.1)
    small = Sweep(8, 1, np.array([0.1, 0.2]), np.array([[[1e-4, *good[1:]]], [fair]]))
    assert small.diverged.tolist() == [0, 0]
    zero = Sweep(8, 1, np.array([0.1, 0.2]), np.array([[good], [[0.0, 1.0, 2.0, 3.0]]]))
    assert zero.diverged.tolist() == [0, 1]
    sizes = Sweep(8, 1, np.array([0.1, 0.2, 0.4]), np.array([[[1.0, 50.0]], [[0.5, 0.5]], [[1000.0, 2.0]]]))
    assert sizes.diverged.tolist() == [1, 0, 0]  # as of an initialisation's size: one large start hides nothing
    kept = KeptRuns(
        {"learning_rate": np.array([0.1, 0.2])}, np.zeros(2, int), np.array([good, fair]), *[np.zeros(0)] * 3
    )
    assert kept.losses.tolist() == pytest.approx([0.004, 0.1])


def test_rates_are_put_in_order():
    rates, curves = np.array([0.4, 0.1, 0.2]), np.random.default_rng(0).uniform(1, 2, (3, 2, 5))
    found = Sweep(8, 1, rates, curves, curves[..., -1])
    assert found.rates.tolist() == [0.1, 0.2, 0.4]
    np.testing.assert_array_equal(found.losses, curves[[1, 2, 0], :, -1])
    assert optimum(rates, np.array([2.0, 2.0, 1.0])).rate == optimum(rates[[1, 2, 0]], np.array([2.0, 1.0, 2.0])).rate
    with pytest.raises(ValueError, match="rates must be positive numbers"):
        Sweep(8, 1, np.array([0.0, 1.0, 2.0]), curves)
    with pytest.raises(ValueError, match="one row for each of 2 rates"):
        Sweep(8, 1, rates[:2], curves)


def test_a_target_that_was_not_reached_is_still_the_target():
    """Of a search some sizes and values may be missing: what is at an end of those that are there is not at the grid's."""
    rates = np.array([0.1, 0.2, 0.4])
    small = Sweep(8, 1, rates, np.repeat(np.array([3.0, 2.0, 1.0])[:, None, None], 3, 1))
    outcome = Outcome("learning_rate", {"": {(8, 1): small}})
    whole, more = (target(outcome, 16, 1, values) for values in (rates, [*rates, 0.8]))
    assert (whole.width, more.width) == (16, 16)
    assert "at an end of the grid: try values beyond 0.4" in whole.advice
    assert "at an end of the runs that are there: others ended early or are to come, beyond 0.4" in more.advice


def noisy(seeds: int) -> Outcome:
    """Two sizes whose optimum is the same, with noise that moves where one seed's losses are least."""
    x, random = np.arange(-6.0, 1.0), np.random.default_rng(5)
    sweeps: dict[tuple[float, int], Sweep] = {}
    for width in (32, 128):
        values = 0.15 * (x[:, None] + 3.2) ** 2 + 0.2 * random.normal(size=(7, seeds))
        sweeps[width, 2] = Sweep(width, 2, 2.0**x, np.exp(values)[:, :, None])
    return Outcome("learning_rate", {"": sweeps}, settings={"": {"setting": ""}})


def test_with_one_seed_it_is_not_known_whether_the_optimum_moves():
    outcome = noisy(1)
    (series,) = outcome.series("")
    for low, high in (sweep.interval() for sweep in series.sweeps):
        assert (low, high) == (0, np.inf)
    for found in (series.shift, series.slope):
        assert found()[1:] == (-np.inf, np.inf)
    assert abs(series.shift()[0]) > 0.5
    assert series.regret()[1:] == (0, np.inf)
    assert "it is not known whether the optimum moves: with one seed" in series.sentence
    document = numbers(outcome, {})
    assert [each["interval"] for each in document["sweeps"]] == [None, None]
    for name in ("shift", "slope", "regret"):
        assert document["series"][0][name]["low"] is document["series"][0][name]["high"] is None
    for width in (128, 256):
        found = target(outcome, width, 2)
        assert found.value == pytest.approx(series.sweeps[0].optimum().rate)
        assert "with one seed it is not known whether it moves from width 32 to" in found.advice
    assert all(low > 0 and np.isfinite(high) for low, high in (s.interval() for s in noisy(4).series("")[0].sweeps))


def test_what_ends_of_grids_hide_is_not_taken_into_account():
    x = np.arange(-6.0, 1.0)
    noise = 0.01 * np.random.default_rng(0).normal(size=(2, 7, 4))
    sweeps: dict[tuple[float, int], Sweep] = {
        (width, 2): Sweep(width, 2, 2.0**x, np.exp(0.3 * (x[:, None] - best) ** 2 + each)[:, :, None])
        for width, best, each in zip((32, 128), (-2.3, -6.4), noise, strict=True)
    }
    for width in (128, 256):
        found = target(Outcome("learning_rate", {"": sweeps}), width, 2)
        assert "at an end of the grid, so that the drift from width 32 to" in found.advice
        assert found.value == pytest.approx(sweeps[32, 2].optimum().rate)


def test_a_target_goes_on_from_the_smallest_size_in_whatever_order_sizes_are_given():
    x, random, sweeps = np.arange(-6.0, 3.0), np.random.default_rng(0), {}
    for width in (32, 8, 16):
        losses = np.exp(0.2 * (x[:, None] + 2.3) ** 2 + 0.02 * random.normal(size=(9, 3)))
        sweeps[width, 1] = Sweep(width, 1, 2.0**x, losses[..., None])
    assert "of width 8, depth 1" in target(Outcome("learning_rate", {"": sweeps}), 64, 1).advice
