"""Kernels of the plain modules of tests/limits/program by brute force, over many random networks; writes modules.json here.

`python3 make_modules.py [NAME ...]` measures (all modules without names); `--table` prints what is there.
NTK = Σ_θ rate_θ ∂f ∂f', rate the variance of what is drawn at random and 1 for what starts at one value.
NNGP = E[f f'] given the features: the readout's variance times φ·φ', where φ is the gradient in the readout's kernel.
"""

import itertools
import json
import math
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "limits" / "program"))

from images import ON_POSITIONS  # pyright: ignore[reportMissingImports]
from modules import MODULES, NOTE, REFUSED  # pyright: ignore[reportMissingImports]

GOLDEN = HERE / "modules.json"
ENOUGH = 0.004  # largest standard error, relative to the diagonal
FEWEST, SECONDS = 64, 45.0  # networks; of one width
STD = (1.0, 0.5)  # of weights whose variance does not go by their shape
WIDTHS = dict.fromkeys(ON_POSITIONS, 256) | dict.fromkeys(REFUSED, 256) | {"CNN": 256, "Tokens": 512}
WIDTHS |= {"FixedMixer": 512, "Transformer": 512} | {name: 1024 for name in NOTE if name not in ("CNN", "Tokens")}


def variance(name, draws):
    """0 for what starts at one value, else std² or 1 / (a product of axes), by values; draws [networks, *shape]."""
    if np.ptp(draws, 0).max() == 0:
        return 0.0
    shape = draws.shape[1:]
    products = [math.prod(axes) for k in range(len(shape) + 1) for axes in itertools.combinations(shape, k)]
    candidates = {1.0 / p for p in products} | {std**2 for std in STD}
    measured, error = float(np.mean(draws.astype(float) ** 2)), math.sqrt(2 / draws.size)
    best = min(candidates, key=lambda v: abs(math.log(measured / v)))
    if abs(measured / best - 1) > 5 * error:
        raise ValueError(f"{name} has variance {measured:.6g} ± {error:.1%}, nearest {best:.6g}: add its std to STD.")
    return best


def variances(init, x):
    """Of each parameter, from twelve networks."""
    draws = jax.jit(lambda keys: jax.lax.map(lambda key: init(key, x), keys))(jax.random.split(jax.random.key(7), 12))
    return jax.tree_util.tree_map_with_path(lambda p, leaf: variance(jax.tree_util.keystr(p), np.asarray(leaf)), draws)


def is_readout(path):
    """Whether this is the kernel of the last layer."""
    name = jax.tree_util.keystr(path)
    return "'readout'" in name and "'kernel'" in name


def sampler(module, x):
    """keys -> NNGP and NTK of their networks, [keys, 2, n, n]."""
    drawn = variances(module.init, x)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(drawn)]
    assert sum(map(is_readout, paths)) == 1
    rates = [v or 1.0 for v in jax.tree.leaves(drawn)]

    def one(key):
        _, pull = jax.vjp(lambda variables: module.apply(variables, x)[:, 0], module.init(key, x))
        jacobian = [j.reshape(len(x), -1) for j in jax.tree.leaves(jax.vmap(pull)(jnp.eye(len(x)))[0])]
        parts = [rate * j @ j.T for rate, j in zip(rates, jacobian, strict=True)]
        nngp = next(part for path, part in zip(paths, parts, strict=True) if is_readout(path))
        return jnp.stack([nngp, sum(parts)])

    return jax.jit(lambda keys: jax.lax.map(one, keys))


def relative(mean, sem):
    """The standard error over √(k k'), the largest of all entries."""
    diagonal = np.sqrt(np.diagonal(mean, axis1=-2, axis2=-1))
    return float(np.max(sem / (diagonal[..., :, None] * diagonal[..., None, :])))


def moments(samples):
    """Mean and standard error over networks."""
    return samples.mean(0), samples.std(0, ddof=1) / math.sqrt(len(samples))


def measure(make, x, width, networks=None):
    """Networks until ENOUGH (or so many), in chunks."""
    chunk, start, samples = 16, time.time(), []
    kernels = sampler(make(width), jnp.asarray(x))
    while True:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(width), len(samples)), chunk)
        samples.append(np.asarray(kernels(keys), float))
        found, late = np.concatenate(samples), time.time() - start > SECONDS
        if len(found) >= (networks or FEWEST) and (networks or late or relative(*moments(found)) < ENOUGH):
            break
    mean, sem = moments(found)
    rounded = {"mean": mean.round(8).tolist(), "sem": sem.round(8).tolist()}
    return {"width": width, "networks": len(found)} | {
        f"{kernel}_{key}": value[i] for i, kernel in enumerate(("nngp", "ntk")) for key, value in rounded.items()
    }


def update(name, runs):
    """Adds a module to the file."""
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    GOLDEN.write_text(
        json.dumps(known | {name: runs}, indent=None, separators=(",", ":")).replace('}],"', '}],\n"') + "\n"
    )


def arrays(run):
    """Mean and standard error [2, n, n]."""
    return tuple(np.array([run[f"nngp_{key}"], run[f"ntk_{key}"]]) for key in ("mean", "sem"))


def row(name, runs):
    """Widths, networks, largest error, drift in errors, ratio of spreads (√2 with a limit, 1 without), z of the note."""
    (half, half_sem), (full, full_sem) = map(arrays, runs)
    upper = np.triu_indices(3)
    drift = np.abs(full - half)[:, *upper] / np.hypot(full_sem, half_sem)[:, *upper].clip(1e-12)
    spreads = [sem[1] * math.sqrt(run["networks"]) for sem, run in zip((half_sem, full_sem), runs, strict=True)]
    ratio = np.exp(np.mean(np.log(spreads[0] / spreads[1])[upper]))
    text = f"{name:16} {runs[1]['width']:5} {runs[0]['networks']:5} {runs[1]['networks']:5} "
    text += f"{100 * relative(full, full_sem):6.2f} {drift[0].max():6.1f} {drift[1].max():6.1f} {ratio:6.2f}"
    if name in NOTE:
        note, value, error = np.array(NOTE[name]).reshape(2, 3), 2 * full - half, np.hypot(2 * full_sem, half_sem)
        for mean, sem in ((full, full_sem), (value, error)):
            z = ((mean[:, 0] - note) / sem[:, 0].clip(1e-6)).ravel()
            text += "  " + " ".join(f"{number:5.1f}" for number in z)
    return text


def main(names):
    """Measures these modules."""
    known = MODULES | REFUSED
    for name in names or known:
        start, (make, x, *_) = time.time(), known[name]
        width = WIDTHS.get(name, 512)
        few = 128 if name in REFUSED else None
        try:
            update(name, runs := [measure(make, x, n, few) for n in (width // 2, width)])
            print(row(name, runs), f" {time.time() - start:.0f} s", flush=True)
        except ValueError as error:
            print(name, error, flush=True)


if __name__ == "__main__":
    jax.config.update("jax_default_prng_impl", "rbg")
    if sys.argv[1:] == ["--table"]:
        print("module           width  half  full  sem %  drift nngp, ntk  spreads  z of the note at N, at infinity")
        print("\n".join(row(name, runs) for name, runs in json.loads(GOLDEN.read_text()).items()))
    else:
        main(sys.argv[1:])
