"""Targets: classes or numbers."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pseudocoreset.data.columns import FEW_CATEGORIES, as_number, as_text
from pseudocoreset.data.dataset import Task


def guess_task(values: Sequence[Any]) -> Task:
    """Whole numbers and texts are classes, other numbers are for regression."""
    if all(_as_whole(value) is not None for value in values):
        return "classification"
    numbers = all(as_number(value) is not None for value in values)
    return "regression" if numbers else "classification"


def warn_of_task(values: Sequence[Any], task: Task, what: str) -> None:
    """Warn where a task that was guessed from the targets of a table may be the wrong one.

    Many different whole numbers may be a quantity. A few in decimals may be classes: pandas writes
    1 as 1.0 if a value of the column was missing.

    Args:
        values: the targets
        task: what was guessed
        what: names the targets
    """
    numbers = {as_number(value) for value in values}
    if not all(number is not None and number.is_integer() for number in numbers):
        return
    if task == "regression" and 1 < len(numbers) <= min(FEW_CATEGORIES, len(values) // 2):
        taken = "numbers in decimals, which are taken as a quantity to predict"
    elif task == "classification" and len(numbers) > FEW_CATEGORIES:
        taken = "whole numbers, which are taken as classes"
    else:
        return
    warnings.warn(
        f"{what} has {len(numbers)} different {taken}. Give `task` classification or regression "
        "to choose.",
        RuntimeWarning,
        stacklevel=3,
    )


def name_classes(values: Sequence[Any]) -> list[str]:
    """The class of each value: whole numbers without leading zeros, numbers, else the text."""
    whole = [_as_whole(value) for value in values]
    if all(number is not None for number in whole):
        return [str(number) for number in whole]
    numbers = [as_number(value) for value in values]
    if all(number is not None for number in numbers) and not isinstance(values[0], bool):
        return [repr(number) for number in numbers]
    return [as_text(value) for value in values]


def sort_classes(names: Sequence[str]) -> list[str]:
    """Each name once, in the order of numbers if all are numbers, else of texts."""
    once = set(names)
    if all(as_number(name) is not None for name in once):
        return sorted(once, key=lambda name: (as_number(name), name))
    return sorted(once)


def number_classes(names: Sequence[str], class_names: Sequence[str]) -> npt.NDArray[np.int64]:
    """The place of each name among the class names; −1 for one that is not there."""
    places = {name: place for place, name in enumerate(class_names)}
    return np.array([places.get(name, -1) for name in names], np.int64)


def _as_whole(value: Any) -> int | None:
    if isinstance(value, bool | float) or (isinstance(value, str) and "_" in value):
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
