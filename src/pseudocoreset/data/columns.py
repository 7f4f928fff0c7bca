"""Cells of tables, and how columns become inputs."""

import csv
import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pseudocoreset.errors import UserError

DELIMITERS = (",", ";", "\t")
MISSING = ("", "na", "nan", "?")
COMMA = r"[+-]?\d+(,\d+)+(\.\d+)?"
"""1,5 and 1,000.5"""
FEW_CATEGORIES = 20
MOST_CATEGORIES = 1000
"""A column of more different texts is a name or a remark, not a category."""


@dataclass(frozen=True)
class Cells:
    """A table by column, in order, with what names a row in a message.

    Args:
        source: where the table comes from
        columns: by name, the value of every row
        lines: the line of the file that each row ends on; empty if there is no file
        parameter: the parameter to blame
    """

    source: str
    columns: dict[str, Sequence[Any]]
    lines: Sequence[int] = ()
    parameter: str = "data"

    @property
    def number(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.columns.values())))

    def refuse(self, name: str, place: int, reason: str) -> UserError:
        """The error that names a cell."""
        line = f" (line {self.lines[place]})" if self.lines else ""
        return UserError(
            f"{self.source}: row {place + 1}{line}, column {name!r}: {reason}.", self.parameter
        )

    def refuse_missing(self, name: str) -> None:
        """Refuse a column with a missing value."""
        for place, value in enumerate(self.columns[name]):
            if is_missing(value):
                raise self.refuse(
                    name, place, "the value is missing; fill it in or remove the row or the column"
                )


@dataclass(frozen=True)
class Column:
    """How a column of a table becomes inputs.

    Args:
        name: in the table's header
        kind: "number", one input; or "category", an input for each, 1 for the row's own
        categories: the texts that a category can be, sorted
    """

    name: str
    kind: Literal["number", "category"]
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many inputs it becomes."""
        return 1 if self.kind == "number" else len(self.categories)

    def as_json(self) -> dict[str, Any]:
        """The column as a JSON object."""
        return {"name": self.name, "kind": self.kind, "categories": list(self.categories)}

    @staticmethod
    def from_json(content: Any) -> "Column":
        """The column of a JSON object; anything else is a `ValueError`.

        Args:
            content: what `as_json` gave
        """
        if not isinstance(content, dict) or content.keys() != {"name", "kind", "categories"}:
            raise ValueError("a column is an object of name, kind and categories")
        name, kind, categories = content["name"], content["kind"], content["categories"]
        texts = isinstance(categories, list) and all(isinstance(c, str) for c in categories)
        if not isinstance(name, str) or kind not in ("number", "category") or not texts:
            raise ValueError("a column has a name, a known kind, and texts as categories")
        if (kind == "category") != bool(categories):
            raise ValueError("a column of categories has some, and another has none")
        return Column(name, kind, tuple(categories))

    @staticmethod
    def of(cells: Cells, name: str) -> "Column":
        """Numbers if all values are numbers, else categories.

        Args:
            cells: the table
            name: of the column
        """
        values = cells.columns[name]
        if all(as_number(value) is not None for value in values):
            return Column(name, "number")
        found = {as_text(value) for value in values}
        _refuse_nearly_numbers(cells, name, len(found))
        if len(found) > MOST_CATEGORIES:
            raise UserError(
                f"{cells.source}: column {name!r} has {len(found)} different texts, more than "
                f"the limit of {MOST_CATEGORIES} categories; remove the column or group its "
                "values.",
                cells.parameter,
            )
        if len(found) > max(FEW_CATEGORIES, len(values) // 2):
            warnings.warn(
                f"{cells.source}: column {name!r} has {len(found)} different texts in "
                f"{len(values)} rows, and each becomes an input. Remove the column if it only "
                "names the rows.",
                RuntimeWarning,
                stacklevel=2,
            )
        return Column(name, "category", tuple(sorted(found)))

    def encode(self, cells: Cells) -> npt.NDArray[np.float32]:
        """The inputs that a table's rows give, n × `width`.

        Args:
            cells: a table that has this column
        """
        cells.refuse_missing(self.name)
        if self.kind == "number":
            return numbers_of(cells, self.name)
        inputs = np.zeros((cells.number, len(self.categories)), np.float32)
        known = {category: place for place, category in enumerate(self.categories)}
        for place, value in enumerate(cells.columns[self.name]):
            text = as_text(value)
            if text not in known:
                raise cells.refuse(self.name, place, f"{text!r} is none of the known categories")
            inputs[place, known[text]] = 1
        return inputs


def _refuse_nearly_numbers(cells: Cells, name: str, different: int) -> None:
    """Refuse numbers with a comma, and a column of many numbers and a few other texts."""
    others = [n for n, v in enumerate(cells.columns[name]) if as_number(v) is None]
    with_comma = [n for n in others if re.fullmatch(COMMA, as_text(cells.columns[name][n]))]
    mostly = len(others) <= len(cells.columns[name]) / 10 and different > FEW_CATEGORIES
    if len(with_comma) < len(others) and not mostly:
        return
    value = as_text(cells.columns[name][others[0]])
    reason = f"{value!r} is not a number, and nearly all others of the column are; correct it"
    if len(with_comma) == len(others):
        reason = f"{value!r} is a number with a comma; write a point for decimals and nothing else"
    raise cells.refuse(name, others[0], reason)


def encode_rows(
    columns: Sequence[Column],
    rows: "str | Path | Sequence[Mapping[str, Any]] | Sequence[Sequence[Any]] | Any",
) -> npt.NDArray[np.float32]:
    """New rows as inputs, n×f, encoded as the rows of `data.columns` were.

    Args:
        columns: the columns of the data, `data.columns`
        rows: the path of a CSV file, or a list of dictionaries, whose columns are found by their
            names and may hold others too; or rows of values in the order of `columns`
    """
    if isinstance(rows, str | Path):
        cells = read_csv(Path(rows), "rows")
    else:
        cells = _cells_of(columns, rows)
    missing = [column.name for column in columns if column.name not in cells.columns]
    if missing:
        raise UserError(f"{cells.source}: has no column {missing[0]!r}.", "rows")
    return np.concatenate([column.encode(cells) for column in columns], axis=1)


def _cells_of(columns: Sequence[Column], rows: Any) -> Cells:
    rows = [*(rows.tolist() if hasattr(rows, "tolist") else rows)]
    if not rows:
        raise UserError("`rows` is empty: give at least one row.", "rows")
    names = [column.name for column in columns]
    found: dict[str, list[Any]] = {name: [] for name in names}
    for place, row in enumerate(rows):
        if isinstance(row, Mapping):
            absent = [name for name in names if name not in row]
            if absent:
                raise UserError(f"`rows`: row {place + 1} has no column {absent[0]!r}.", "rows")
            row = [row[name] for name in names]
        elif isinstance(row, str) or not isinstance(row, Sequence) or len(row) != len(names):
            raise UserError(
                f"`rows`: row {place + 1} is not a row of {len(names)} values: give one a column, "
                f"in the order {', '.join(names)}.",
                "rows",
            )
        for name, value in zip(names, row, strict=True):
            found[name].append(value)
    return Cells("`rows`", {**found}, parameter="rows")


def read_csv(path: Path, parameter: str = "data") -> Cells:
    """A CSV file with a header, its columns divided by comma, semicolon or tab.

    The delimiter is the one that divides the header into the most columns.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a CSV file with a header.", parameter)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8 text; save it as UTF-8.", parameter) from None
    try:
        return _parse(path, text, parameter)
    except csv.Error as error:
        raise UserError(f"{path}: can't be read as CSV ({error}).", parameter) from None


def _parse(path: Path, text: str, parameter: str) -> Cells:
    names = max((_header(text, delimiter) for delimiter in DELIMITERS), key=len)
    delimiter = next(d for d in DELIMITERS if _header(text, d) == names)
    if not any(names):
        raise UserError(
            f"{path}: has no header; give a CSV file that names its columns.", parameter
        )
    for place, name in enumerate(names):
        if not name:
            raise UserError(
                f"{path}: column {place + 1} has no name in the header; name or remove it.",
                parameter,
            )
        if name in names[:place]:
            raise UserError(f"{path}: two columns are called {name!r}; rename one.", parameter)
    rows: list[list[str]] = []
    lines: list[int] = []
    reader = _reader(text, delimiter)
    for row in reader:
        if not row:
            continue
        if len(row) != len(names):
            raise UserError(
                f"{path}: line {reader.line_num} has {len(row)} values and the header "
                f"{len(names)}; correct it.",
                parameter,
            )
        rows.append([value.strip() for value in row])
        lines.append(reader.line_num)
    if len(rows) < 2:
        raise UserError(f"{path}: has no rows below its header.", parameter)
    columns = zip(*rows[1:], strict=True)
    return Cells(str(path), dict(zip(names, columns, strict=True)), lines[1:], parameter)


def _reader(text: str, delimiter: str) -> Any:
    stream = io.StringIO(text, newline="")
    return csv.reader(stream, delimiter=delimiter, strict=True, skipinitialspace=delimiter != "\t")


def _header(text: str, delimiter: str) -> list[str]:
    try:
        first: list[str] = next((row for row in _reader(text, delimiter) if row), [])
    except csv.Error:  # quotes that make no sense with this delimiter
        return []
    return [name.strip() for name in first]


def is_missing(value: Any) -> bool:
    """Whether a cell has no value."""
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def as_number(value: Any) -> float | None:
    """The number that a cell holds, if it is one."""
    if isinstance(value, str) and "_" in value:  # Python's own way to write 1_000
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def as_text(value: Any) -> str:
    """A cell as text."""
    return str(value).strip()


def canonical(value: Any) -> str:
    """A cell as text that is the same for all ways to write a number: 1, 1.0, 1e0."""
    number = as_number(value)
    return as_text(value) if number is None else repr(number + 0.0)  # −0.0 + 0.0 is 0.0


def numbers_of(cells: Cells, name: str, advice: str = "") -> npt.NDArray[np.float32]:
    """A column of numbers, n×1."""
    numbers = [as_number(value) for value in cells.columns[name]]
    for place, number in enumerate(numbers):
        if number is None:
            value = as_text(cells.columns[name][place])
            raise cells.refuse(name, place, f"{value!r} is not a number{advice}")
    with np.errstate(over="ignore"):
        column = np.array(numbers, np.float64).astype(np.float32)
    infinite = np.flatnonzero(~np.isfinite(column))
    if len(infinite):
        place = int(infinite[0])
        raise cells.refuse(name, place, f"{as_text(cells.columns[name][place])} is too large")
    return column[:, None]
