"""The bars of a run, and of work in parts: what was there before counts as done, and time left comes from what is done now."""

from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


def parts_bar(console: Any) -> Progress:
    """A bar for parts that may each take hours: rich alone forgets after 30 s how fast it went."""
    return Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console, speed_estimate_period=1e9)


def add_parts(bar: Progress, description: str, total: float, done: float = 0.0) -> TaskID:
    """A task of which `done` was there before; time left is known from its first part on."""
    task = bar.add_task(description, total=total)
    bar.update(task, completed=done)
    bar.advance(task, 0)  # the moment from which speed is measured
    return task


def training_bar(console: Any, hidden: bool = False) -> Progress:
    """A bar for the steps of one run, with fields `loss` and `left`."""
    text = TextColumn("{task.completed} of {task.total}, loss {task.fields[loss]}, {task.fields[left]}")
    columns = TextColumn("{task.description}"), BarColumn(), text, TimeElapsedColumn()
    return Progress(*columns, console=console, disable=hidden)
