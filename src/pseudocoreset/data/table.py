"""`table:FILE.csv`, and the two tables that come with the package."""

import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from pseudocoreset.data.assemble import make_table_data
from pseudocoreset.data.columns import Cells, Column, as_number, canonical, numbers_of, read_csv
from pseudocoreset.data.content_split import choose_test, digest_of
from pseudocoreset.data.dataset import Data, Split, Task
from pseudocoreset.data.targets import (
    guess_task,
    name_classes,
    number_classes,
    sort_classes,
    warn_of_task,
)
from pseudocoreset.engine.text import did_you_mean, printable
from pseudocoreset.errors import UserError


def read_table(
    path: Path, target: str | None = None, task: Task | None = None, name: str | None = None
) -> Data:
    """A CSV file with a header; its columns are divided by comma, semicolon or tab.

    A column whose values are all numbers is one input; any other is a category, an input for each
    category. Missing values (empty, NA, NaN, ?) are refused. About a fifth of the rows, of each
    class if there are classes, is for testing: the same rows however many are added or removed.

    Args:
        path: the file
        target: the column to predict, by default the last one
        task: by default, a target of whole numbers or texts is for classification, one of other
            numbers for regression
        name: of the data, by default `table:` and the file's name
    """
    cells = read_csv(path)
    names = list(cells.columns)
    if len(names) < 2:
        raise UserError(f"{path}: has one column; expected inputs and a target.", "data")
    target = names[-1] if target is None else target
    if target not in names:
        raise UserError(
            f"`target` {printable(target)} is not a column of {path}{did_you_mean(target, names)}: "
            f"give one of {printable(', '.join(names))}.",
            "target",
        )
    inputs_named = [each for each in names if each != target]
    if all(as_number(each) is not None and not each.isdecimal() for each in inputs_named):
        warnings.warn(
            f"{path}: the columns are named by numbers ({printable(', '.join(inputs_named[:3]))}), "
            "so its first row may have been taken for a header: add a header.",
            RuntimeWarning,
            stacklevel=2,
        )
    for column_name in names:
        cells.refuse_missing(column_name)
    columns = tuple(Column.of(cells, column) for column in names if column != target)
    inputs = torch.from_numpy(np.concatenate([column.encode(cells) for column in columns], axis=1))
    chosen = task or guess_task(cells.columns[target])
    if task is None:
        warn_of_task(cells.columns[target], chosen, f"{path}: column {target!r}")
    class_names: list[str] = []
    if chosen == "regression":
        targets = torch.from_numpy(_numbers(cells, target))
        labels = np.zeros(len(inputs), np.int64)
    else:
        named = name_classes(cells.columns[target])
        class_names = sort_classes(named)
        labels = number_classes(named, class_names)
        targets = torch.from_numpy(labels)
    tested = choose_test(
        path,
        row_digests(cells, target),
        labels.tolist(),
        class_names,
        "row",
        ", give another `target`, or give `task` regression if it is a quantity",
    )
    train, test = (
        Split(inputs[torch.from_numpy(rows)], targets[torch.from_numpy(rows)])
        for rows in (~tested, tested)
    )
    return make_table_data(name or f"table:{path.stem}", path, train, test, class_names, columns)


def _numbers(cells: Cells, target: str) -> npt.NDArray[np.float32]:
    try:
        return numbers_of(cells, target)
    except UserError as error:
        raise UserError(f"{error} Regression needs numbers.", "task") from None


def row_digests(cells: Cells, target: str) -> list[int]:
    """A digest of each row's values, the target's last, however its numbers are written."""
    order = [*(name for name in cells.columns if name != target), target]
    texts = [[canonical(value) for value in cells.columns[name]] for name in order]
    return [digest_of(repr(row).encode()) for row in zip(*texts, strict=True)]


def read_diabetes() -> Data:
    """442 patients, 10 measurements, the progression of their disease: a regression.

    tables.LICENSE.txt says where it comes from.
    """
    return read_table(_embedded("diabetes"), task="regression", name="diabetes")


def read_breast_cancer() -> Data:
    """569 tumours, 30 measurements of their cells, benign or malignant.

    tables.LICENSE.txt says where it comes from.
    """
    return read_table(_embedded("breast-cancer"), name="breast-cancer")


def _embedded(stem: str) -> Path:
    return Path(__file__).with_name(f"{stem}.csv")
