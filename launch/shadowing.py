"""`python -m` puts the current folder first: a user's own train.py or configs/ there would be imported in place of ours."""

import importlib.util
import sys
import warnings
from pathlib import Path

ROOMS = ("zoo", "limits", "train", "configs")


def refuse_shadowed_rooms() -> None:
    """Exits with the file that stands in the way, and the command that works."""
    home = Path(__file__).resolve().parent.parent
    for room in ROOMS:
        found = importlib.util.find_spec(room)
        place = Path(found.origin).resolve() if found and found.origin else None
        if found and place is None and found.submodule_search_locations:  # a folder without __init__.py
            place = Path(next(iter(found.submodule_search_locations))).resolve()
        if place and place != home / room and home / room not in place.parents:
            raise SystemExit(
                f"limit-zoo: {place} hides limit-zoo's own package '{room}', since `python -m` looks in the current folder "
                "first. Run `limit-zoo COMMAND …` instead (it works from any folder), or change to another folder."
            )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is not limit-zoo's")  # which zoo says too
        from zoo.rooms import namesake_warning, replaced  # not before zoo is known to be ours

    if flaw := replaced(ROOMS):
        raise SystemExit(f"limit-zoo: {flaw}")
    if warning := namesake_warning((*ROOMS, "launch")):
        print(f"limit-zoo: {warning}", file=sys.stderr)
