"""Senseless values of every flag are refused, by the flag's name."""

import io
import sys

import pytest
from absl import flags
from absl.testing import flagsaver

from launch import (  # noqa: F401  # noqa: F401
    analyze,
    bench,
    common,
    compare,
    distributed,
    limit,
    pack,
    predict,
    reproduce,
    sample,
    train,
    transfer,
    unpack,
)

WORDS = ("wrod", "", "-3", "0", "2.5", "nan", "inf", "1e300", "3", str(10**30), "('wrod',)", "=3", "3/2", "None")
WHOLE = {"3", str(10**30)}
SWITCHES = {
    "debug",
    "list",
    "pmap",
    "accept_changes",
    "keep_compiled",
    "dry_run",
    "from_limit",
    "live",
    "checkpoints",
    "cells",
}
# What of WORDS each flag takes. Names of configs, folders and variants are looked up when the program has begun.
TAKEN = {
    "points": WHOLE, "test_points": WHOLE | {"0"}, "n": WHOLE, "rounds": WHOLE, "initialization_timeout": WHOLE,
    "learning_rate": WHOLE | {"2.5", "1e300"}, "momentum": {"0"}, "parts": set(), "loss": set(), "what": set(), "size": set(),
    "prompt": set(WORDS), "tokens": WHOLE, "draws": WHOLE, "temperature": WHOLE | {"0", "2.5", "1e300"},
    **{name: WHOLE | {"0"} for name in ("seed", "step", "member")},
    "distributed": set(), "oracle": set(), "against": set(), "shard": set(), "level": set(), "set": set(), "workdir": set(WORDS),
    **{name: set(WORDS) for name in ("only", "archive")}, **dict.fromkeys(("width", "depth", "largest"), WHOLE),
    "live_port": {"0", "3"}, "budget": set(WORDS), "precision": WHOLE | {"0", "2.5", "1e300"},
    **{name: {"0"} for name in SWITCHES},
}  # fmt: skip


def ours():
    """Every flag that a program of the package defines."""
    modules = {name: each for name, each in flags.FLAGS.flags_by_module_dict().items() if name.startswith("launch.")}
    return {flag.name for each in modules.values() for flag in each if not flag.name.startswith("config")}


def test_senseless_values():
    assert ours() == set(TAKEN)
    tried = 0
    for name, taken in TAKEN.items():
        for word in WORDS:
            tried += 1
            with flagsaver.flagsaver():
                said = refusal(f"--{name}={word}")
            assert (said is None) == (word in taken), (name, word)
            assert said is None or f"--{name}" in said
    assert tried > 250


def refusal(argument):
    try:
        flags.FLAGS(["program", argument])
    except flags.Error as error:
        return str(error)


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--config.steps=abc", "it must be a whole number"),
        ("--config.steps=1.5", "it must be a whole number"),
        ("--config.learning_rate=abc", "it must be a number"),
        ("--config.centred=maybe", "it must be true or false"),
        ("--config.task=3", "it has fields"),
        ("--config.steps", "Missing value"),
        (
            "--config.widths.first.first=3",
            'field "config.widths.first.first": config.widths is (32, 64, 128, 256, 512), which has no fields of its own',
        ),
        ("--shard=2/2", "with i from 0 to n − 1"),
        ("--worddir=x", "Unknown command line flag"),
    ],
)
def test_a_flag_that_cannot_be_read_is_one_sentence(argument, said, monkeypatch, capsys):
    """They ended in absl's "FATAL Flags parsing error", and for numbers in Python's words."""
    monkeypatch.setattr(sys, "argv", ["program", "--config=mlp", argument])
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as ended:
        common.start(lambda: None, "")
    words = str(ended.value)
    assert words.startswith("error: ")
    assert said in words
    assert argument.partition("=")[0].lstrip("-") in words
    assert "FATAL" not in capsys.readouterr().err


def test_signs_that_a_terminal_lacks_end_no_program(monkeypatch):
    """Of Latin letters: a report was lost to a UnicodeEncodeError at the first ∞, after all was computed."""
    bytes_ = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(bytes_, encoding="latin-1"))
    monkeypatch.setattr(sys, "argv", ["program", "--help"])
    with pytest.raises(SystemExit):
        common.start(lambda: None, "Widths to ∞, μP.")
    assert bytes_.getvalue().startswith(b"Widths to ?, \xb5P.".replace(b"\xb5", b"?"))
