"""Read JSON files and check their content."""

import json
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn

from pseudocoreset.engine.text import printable

LONGEST_INTEGER = 300
"""The largest number of digits of an integer."""

Shape = type | UnionType | list[Any] | dict[str, Any]
"""A type; a list of one shape, which all its values have; or shapes by the names that must be
there. `float` stands for any number."""


def parse_json(text: str) -> Any:
    """JSON of finite numbers; anything else is a ValueError.

    Args:
        text: what a file holds
    """
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_float, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Any:
    """The same of a file.

    Args:
        path: the file
    """
    return parse_json(path.read_text(encoding="utf-8"))


def _refused(text: str) -> NoReturn:
    raise ValueError(f"it holds the number {printable(text, 20)}")


def _float(text: str) -> float:
    return float(text) if isfinite(float(text)) else _refused(text)


def _integer(text: str) -> int:
    return int(text) if len(text) <= LONGEST_INTEGER else _refused(text)


def check_shape(value: Any, shape: Shape, name: str = "content") -> None:
    """Raise ValueError where a value is not of a shape.

    Args:
        value: what a file says
        shape: what it must be
        name: what to call it
    """
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"its {name} is {printable(value, 40)}")
        for key, inner in shape.items():
            if key not in value:
                raise ValueError(f"its {name} has no {key}")
            check_shape(value[key], inner, key)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"its {name} is {printable(value, 40)}")
        for each in value:
            check_shape(each, shape[0], name)
    else:
        good = isinstance(value, bool) if shape is bool else not isinstance(value, bool)
        wide: Any = int | float if shape is float else shape
        if not good or not isinstance(value, wide):
            raise ValueError(f"its {name} is {printable(value, 40)}")
