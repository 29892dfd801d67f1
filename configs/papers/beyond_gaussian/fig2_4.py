"""Figure 2.4: the XOR task learned from means, from covariances and from samples: what changes when the coding is switched.

The thesis does not say what becomes of Adam's running averages at the switch. They are begun anew here; kept, they divide by the
gradients' size at convergence, and every switch starts with large steps (given as a claim of its own).

small: 40 seconds on two cores, busy with other work; no data.
paper: 100 networks.
found: 4 of 5 claims hold; not: from means to samples |Δθ|² is .24 of the first steps', not a tenth or less.
"""

import numpy as np

from configs.papers.beyond_gaussian.mixtures import BLUE, GREEN, network, spread, xor_task
from limits.cumulants import pooled, xor_mixture
from train.cumulants import train_samples, train_statistics
from train.study.figure import Finding, Settings, every, exact, mean, panels

WAYS = ("covariance → mean", "covariance → sample", "mean → sample")
FIRST = 20  # looks (of 10 steps each) that count as the beginning of a phase

get_config = Settings(
    "fig2_4",
    {"width": 10, "depth": 1, "switch": 2000, "steps": 2000, "samples": 10_000, "batch": 10, "members": 20},
    {"members": 100},
)


def run(config, screen):
    net, task = network(config.width, config.depth), xor_task(config.samples, config.seed)
    codings = {"covariance": pooled(xor_mixture()), "mean": xor_mixture()}
    arrays = {"switch": np.array(config.switch)}

    def go(coding, steps, start=None):
        screen.print(f"{coding} coding", highlight=False)
        options = {
            "steps": steps,
            "members": config.members,
            "seed": config.seed,
            "start": start,
            "progress": not screen.quiet,
        }
        if coding == "sample":
            return train_samples(net, task, batch=config.batch, **options)
        return train_statistics(net, codings[coding], **options)

    before = {coding: go(coding, config.switch) for coding in codings}
    for coding, trained in before.items():
        arrays[f"{coding} accuracy"] = trained.accuracy(task.x_test, task.y_test)
    for way in WAYS:
        first, second = way.split(" → ")
        arrays[f"{way} kept"] = go(second, 10 * FIRST, before[first]).moved
        after = go(second, config.steps, before[first].restarted())
        for name in ("loss", "moved"):
            arrays[f"{way} {name}"] = np.concatenate([getattr(before[first], name), getattr(after, name)], axis=1)
        arrays[f"{way} times"] = np.concatenate([before[first].times, config.switch + after.times])
        arrays[f"{way} accuracy"] = after.accuracy(task.x_test, task.y_test)
    return arrays


def sizes(arrays, way):
    """|Δθ|² of every network: largest in the first steps, just before the switch, and largest in the steps after it."""
    moved, at = arrays[f"{way} moved"], int(arrays["switch"]) // 10
    return moved[:, :FIRST].max(1), np.median(moved[:, at - FIRST : at], axis=1), moved[:, at : at + FIRST].max(1)


def claims(arrays):
    accuracy = np.concatenate([arrays[f"{c} accuracy"] for c in ("covariance", "mean")])
    yield Finding(
        "Before the switch every network solves the task: accuracy of at least 91 %",
        exact(accuracy).above(0.91),
        f"covariance coding {spread(arrays['covariance accuracy'])}, mean coding {spread(arrays['mean accuracy'])}, "
        f"lowest {accuracy.min():.2%}",
    )
    with np.errstate(divide="ignore"):
        logs = {way: [np.log10(each) for each in sizes(arrays, way)] for way in WAYS}
        kept = {way: np.log10(arrays[f"{way} kept"].max(1)) for way in WAYS}
    first = {way: mean(at_first) for way, (at_first, _, _) in logs.items()}
    jumps = {way: mean(after) for way, (_, _, after) in logs.items()}
    figures = "; ".join(f"{way}: at first {first[way]:.1f}, after {jumps[way]:.1f}" for way in WAYS)
    back, still = (mean(logs[way][2] - logs[way][0]) for way in (WAYS[0], WAYS[2]))
    yield Finding(
        "From covariances to means |Δθ|² comes back to the order of magnitude of the first steps: within a factor of 10",
        back.near(0, 1),
        f"log₁₀ of after over first: {back:.2f}",
    )
    yield Finding(
        "|Δθ|² after the switch: covariance → mean > covariance → sample > mean → sample",
        ordered(jumps),
        f"means of log₁₀: {figures}",
    )
    yield Finding(
        "From means to samples it changes negligibly: a tenth of the first steps' or below",
        still.below(-1),
        f"log₁₀ of after over first: {still:.2f}",
    )
    kept = {way: mean(each) for way, each in kept.items()}
    yield Finding(
        "The order is the same where Adam's running averages are kept over the switch",
        ordered(kept),
        "means of log₁₀: " + "; ".join(f"{way}: {value:.2f}" for way, value in kept.items()),
    )


def ordered(by_way):
    """Whether the three ways fall in this order."""
    first, second, third = (by_way[way] for way in WAYS)
    return every((first - second).above(0), (second - third).above(0))


def figures(arrays):
    figure, axes = panels(2, 3, 4.0, 2.8)
    for column, way in zip(axes.T, WAYS, strict=True):
        times, at = arrays[f"{way} times"], int(arrays["switch"])
        for axis, name, colour, words in zip(
            column, ("loss", "moved"), (BLUE, GREEN), ("loss", "|Δθ|² in 10 steps"), strict=True
        ):
            values = arrays[f"{way} {name}"]
            axis.fill_between(times, *np.quantile(values, (0.25, 0.75), axis=0), color=colour, alpha=0.25, lw=0)
            axis.plot(times, values[0], color=colour, lw=0.9)
            axis.axvline(at, color="0.45", lw=0.8, ls="--")
            axis.set(xlabel="step", ylabel=words, yscale="log")
        column[0].set_title(way)
        column[1].set_ylim(1e-10, 0.1)
    text = "Lines: one network; bands: quartiles. Dashed: the switch, where the optimiser begins anew."
    return [("Switching between codings", text, figure)]
