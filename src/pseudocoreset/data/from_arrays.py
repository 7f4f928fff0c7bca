"""Arrays, tensors or lists as `Data`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pseudocoreset.data.assemble import blame, make_image_data, make_table_data
from pseudocoreset.data.columns import Column, canonical
from pseudocoreset.data.content_split import choose_test, digest_of
from pseudocoreset.data.dataset import Data, Split, Task, check_task
from pseudocoreset.data.npz import channels_first
from pseudocoreset.data.targets import (
    name_classes,
    number_classes,
    sort_classes,
    warn_of_task,
)
from pseudocoreset.errors import UserError

Array = npt.NDArray[Any]


def from_arrays(
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    name: str = "arrays",
    task: Task | None = None,
    class_names: Sequence[str] | None = None,
) -> Data:
    """Make a data set from arrays, tensors or lists.

    Args:
        X: images as uint8, n×h×w, n×h×w×c or n×c×h×w with 1 or 3 channels; or the numbers of a
            table, n×f, whose columns are then called x0, x1, …
        y: a whole number or a text for each point (classification), or one or several
            floating-point numbers, n or n×k (regression)
        X_test: test inputs; by default about a fifth of the points (of each class), chosen by their
            content, so that adding points does not move others to another split
        y_test: the targets of the test inputs
        name: a name for the data
        task: "classification" or "regression", if `y` could be either
        class_names: a name for each class; whole numbers in `y` are then indices into this list. By
            default the sorted values of `y`
    """
    if task is not None:
        check_task(task)
    if (X_test is None) != (y_test is None):
        missing, given = ("y_test", "X_test") if y_test is None else ("X_test", "y_test")
        raise UserError(f"`{given}` is given without `{missing}`: give both or none.", missing)
    inputs = _inputs(X, "X")
    if task is None and _is_one_hot(_array(y, "y")):
        raise UserError(
            "`y` has a row of zeros and a single one for each point: give classes, y.argmax(1); "
            "or `task` regression if these are numbers to predict.",
            "y",
        )
    values = _values(y, "y", len(inputs))
    chosen = task or ("regression" if values.dtype.kind == "f" else "classification")
    if task is None and values.ndim == 1 and inputs.ndim == 2:
        warn_of_task(values.tolist(), chosen, "`y`")
    names: list[str] = []
    if chosen == "classification":
        names = _class_names(values, class_names)
    elif class_names is not None:
        raise UserError("`class_names` are for classification: leave them out.", "class_names")
    targets = _targets(values, "y", names, class_names is not None)
    if X_test is None:
        tested = _choose_test(name, inputs, values, targets, names)
        parts = [(inputs[rows], targets[rows]) for rows in (~tested, tested)]
    else:
        others = _inputs(X_test, "X_test")
        if others.shape[1:] != inputs.shape[1:]:
            raise UserError(
                f"`X_test` has points of {_shape(others[0])} and `X` of {_shape(inputs[0])}: give "
                "both the same shape.",
                "X_test",
            )
        other_values = _values(y_test, "y_test", len(others))
        other_targets = _targets(other_values, "y_test", names, class_names is not None)
        if other_targets.shape[1:] != targets.shape[1:]:
            raise UserError("`y_test` has a different number of targets than `y`.", "y_test")
        parts = [(inputs, targets), (others, other_targets)]
    train, test = (
        Split(torch.from_numpy(_as_stored(i)), torch.from_numpy(np.ascontiguousarray(t)))
        for i, t in parts
    )
    with blame("y" if class_names is None else "class_names"):
        if inputs.ndim == 4:
            return make_image_data(name, name, train, test, names)
        columns = tuple(Column(f"x{place}", "number") for place in range(inputs.shape[1]))
        return make_table_data(name, name, train, test, names, columns)


def _array(values: Any, parameter: str) -> Array:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
        return np.asarray(values.numpy())
    try:
        array = np.asarray(values)
    except ValueError:
        raise UserError(
            f"`{parameter}` has rows of different lengths: give an array.", parameter
        ) from None
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        return array.astype(str)
    return array


def _inputs(values: Any, parameter: str) -> Array:
    """Images as n×c×h×w bytes, or a table as n×f float64."""
    array = _array(values, parameter)
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        try:
            images = channels_first(parameter, "images", array)
        except UserError:
            raise UserError(
                f"`{parameter}` has the shape {_shape(array)}: give square images, n×h×w, n×h×w×c "
                "or n×c×h×w with 1 or 3 channels.",
                parameter,
            ) from None
        return _not_empty(images, parameter)
    if array.ndim in (3, 4) and array.dtype.kind == "f":
        raise UserError(
            f"`{parameter}` is {array.dtype} of shape {_shape(array)}: give images as uint8, 0 to "
            f"255; for values from 0 to 1, ({parameter} * 255).round().astype('uint8').",
            parameter,
        )
    if array.ndim != 2 or array.dtype.kind not in "biuf" or array.shape[1] == 0:
        raise UserError(
            f"`{parameter}` is {array.dtype} of shape {_shape(array)}: give images as uint8, "
            "n×h×w[×c] or n×c×h×w, or a table's numbers, n×f.",
            parameter,
        )
    table = _not_empty(array, parameter).astype(np.float64)
    _check_finite(table, parameter)
    return table


def _not_empty(array: Array, parameter: str) -> Array:
    if len(array) == 0:
        raise UserError(f"`{parameter}` is empty: give at least two points.", parameter)
    return array


def _check_finite(numbers: Array, parameter: str) -> None:
    with np.errstate(over="ignore"):
        wrong = np.argwhere(~np.isfinite(numbers.astype(np.float32)))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise UserError(
            f"`{parameter}`[{row}, {column}] is {numbers[row, column]}: give finite numbers that "
            "float32 can hold.",
            parameter,
        )


def _values(values: Any, parameter: str, number: int) -> Array:
    """Whole numbers, texts or truth values, n; or floats, n or n×k."""
    array = _array(values, parameter)
    flat = array.ndim == 1 and array.dtype.kind in "biuU"
    if not flat and not (array.ndim in (1, 2) and array.dtype.kind == "f" and array.size):
        raise UserError(
            f"`{parameter}` is {array.dtype} of shape {_shape(array)}: give a whole number or a "
            "text for each point, or floating-point numbers, n or n×k.",
            parameter,
        )
    if len(array) != number:
        inputs = "X_test" if parameter == "y_test" else "X"
        raise UserError(
            f"`{parameter}` has {len(array)} values and `{inputs}` {number} points: give one value "
            "for each point.",
            parameter,
        )
    if array.dtype.kind == "f":
        _check_finite(array.reshape(number, -1), parameter)
    return array


def _is_one_hot(values: Array) -> bool:
    several = values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf"
    return several and bool(((values == 0) | (values == 1)).all() and (values.sum(1) == 1).all())


def _class_names(values: Array, given: Sequence[str] | None) -> list[str]:
    if values.ndim != 1:
        raise UserError("`y` has several numbers per point: give one class for each.", "y")
    if given is None:
        return sort_classes(name_classes(values.tolist()))
    return [str(name) for name in given]


def _targets(values: Array, parameter: str, class_names: Sequence[str], as_places: bool) -> Array:
    """The class of each value, or, if there are no classes, numbers, n×k.

    With `as_places`, whole numbers are places among the class names, else names.
    """
    if not class_names:
        if values.dtype.kind not in "biuf":
            raise UserError(
                f"`task` is regression and `{parameter}` holds text: give numbers.", "task"
            )
        return values.reshape(len(values), -1).astype(np.float32)
    if values.ndim != 1:
        raise UserError(f"`{parameter}` has several values per point: give one class.", parameter)
    found = name_classes(values.tolist())
    if as_places and values.dtype.kind in "iu":
        inside = (values >= 0) & (values < len(class_names))
        places = np.where(inside, values.astype(np.int64), -1)
    else:
        places = number_classes(found, class_names)
    wrong = np.flatnonzero(places < 0)
    if len(wrong):
        raise UserError(
            f"`{parameter}` has {found[wrong[0]]!r} at place {wrong[0]}, which is not one of the "
            f"{len(class_names)} classes.",
            parameter,
        )
    return places


def _choose_test(
    name: str, inputs: Array, values: Array, targets: Array, class_names: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """By an image's bytes; by a row's numbers and its target, as in a CSV file."""
    if inputs.ndim == 4:
        digests = [digest_of(np.ascontiguousarray(image).data) for image in inputs]
    else:
        rows = zip(inputs.tolist(), values.reshape(len(values), -1).tolist(), strict=True)
        digests = [digest_of(repr((*map(canonical, [*x, *y]),)).encode()) for x, y in rows]
    labels = targets.tolist() if class_names else [0] * len(targets)
    what = "image" if inputs.ndim == 4 else "row"
    with blame("y" if class_names else "X"):
        return choose_test(
            name,
            digests,
            labels,
            class_names,
            what,
            ", or give `X_test` and `y_test`"
            if values.dtype.kind == "U"
            else ", give `X_test` and `y_test`, or give `task` regression if `y` is a quantity",
        )


def _as_stored(inputs: Array) -> Array:
    return np.ascontiguousarray(inputs if inputs.ndim == 4 else inputs.astype(np.float32))


def _shape(array: Array) -> str:
    return "×".join(map(str, array.shape)) or "a single value"
