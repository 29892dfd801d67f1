"""What the fields of a study's config are asked for by: itself, or a function of the file."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from train.study.experiment import NEEDED
from zoo import checks
from zoo.messages import did_you_mean

if TYPE_CHECKING:
    from train.study.study import Study

FUNCTIONS = (*NEEDED, "validation", "score", "task", "rows")
_GIVEN = {  # what the first arguments of a function get from the study, by their place
    "make": ("width", "depth"), "optimizer": ("net",), "loss": ("outputs", "targets"), "score": ("outputs", "targets"),
}  # fmt: skip
_TRACED = ("make", "optimizer")  # which get what is swept, run by run
READ = (
    "name", "dial", "values", "widths", "depths", "grid", "seeds", "seed", "steps", "scored", "variants", "axes", "target",
    "limit", "together", "precision", "also",
)  # fmt: skip


LIMIT = {"samples": checks.count(), "replicas": checks.count(), "order": checks.choice(1, 2)}  # as in `twin(net).rich`


def check_limit(how: Any) -> None:
    """Raises where the config's `limit` has what is not read."""
    checks.table("config.limit", how)
    for name in how:
        if name not in LIMIT:
            raise ValueError(f"config.limit has no field {name}. {did_you_mean(name, LIMIT)}")
        LIMIT[name](f"config.limit.{name}", how[name])


def check_asked(study: "Study") -> None:
    """Raises where a variant, an axis or the dial says what is not read, or not by all that ask for it."""
    asked = study.experiment.asked_for(FUNCTIONS)
    check_given(study, "dial", [study.dial])
    others = [name for name in FUNCTIONS if name not in _TRACED and study.experiment.asks_for(study.dial, (name,))]
    if others:
        raise ValueError(
            f'config.dial = "{study.dial}" is asked for by {" and ".join(others)} too, which do not get the values swept: make '
            "and optimizer do. Take another dial, and give this one as one of the config's `axes`."
        )
    variants: Mapping[str, Any] = study.config.get("variants", {})
    for label, each in variants.items():
        checks.table(f"config.variants.{label}", each)
    for where, fields in (*(("variants." + label, each) for label, each in variants.items()), ("axes", study.axes)):
        check_given(study, where, fields)
        for name in fields:
            if name in READ:
                raise ValueError(
                    f"config.{where}.{name}: {name} is the study's own, the same for everything that is compared. Leave it out "
                    "here, or give the functions of the file another name for what they are to do with it."
                )
            if name not in asked:
                raise ValueError(
                    f"config.{where}.{name} is not read: no function of {study.experiment.path.name} has an argument of that "
                    f"name. {did_you_mean(name, sorted(asked))}"
                )


def check_given(study: "Study", where: str, names: Iterable[str]) -> None:
    """Raises where one of these names is that of an argument that gets something else: a size, the network, outputs."""
    for function, given in _GIVEN.items():
        parameters = study.experiment.parameters(function)[: len(given)]
        for name in (each for each in names if each in parameters):
            if function == "make":
                raise ValueError(
                    f"config.{where}: {name} would not be read: make has its {' and '.join(parameters)} from config.widths and "
                    "config.depths. Leave it out here, and give sizes there."
                )
            first = "first argument" if len(given) == 1 else f"first {len(given)} arguments"
            verb = "is" if len(given) == 1 else "are"
            raise ValueError(
                f"config.{where}: {name} would not be read: the {first} of {function} (here {' and '.join(parameters)}) {verb} "
                f"for {' and '.join(given)}, by their place. Leave it out here, or write "
                f"def {function}({', '.join([*given, name])})."
            )


def unread(study: "Study") -> list[str]:
    """Fields of the config that neither the study nor a function of the file reads."""
    return sorted(set(study.config) - {*READ} - study.experiment.asked_for(FUNCTIONS))
