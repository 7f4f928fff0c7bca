"""Options: fields of frozen dataclasses with a default, limits and a help text.

    @dataclass(frozen=True)
    class FBPC(Method):
        gamma: float = option(0.1, "training loss at which the MAP solution is reached", above=0)

The command line, YAML files, recipes, documentation and error messages are made from the fields.
"""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from math import isfinite
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from pseudocoreset.engine.search import Search
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

_KEY = "option"
LARGEST = 10**100
"""The largest whole number that is allowed."""


@dataclass(frozen=True)
class Limits:
    """The help text and the limits of an option."""

    help: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] | None = None
    extendable: bool = False
    """Whether a resumed run may have another value."""
    search: Search | None = None
    """The values that `tune` tries; None if it does not search the option."""

    def problem(self, value: Any) -> str | None:
        """A description of what was expected, or None if the value is allowed."""
        if self.choices is not None:
            return None if value in self.choices else f"one of {', '.join(self.choices)}"
        if isinstance(value, str):
            return None
        if isinstance(value, float) and not isfinite(value):
            return "a finite number"
        expected = {
            "at least": (self.at_least, operator.ge),
            "above": (self.above, operator.gt),
            "at most": (self.at_most, operator.le),
            "below": (self.below, operator.lt),
        }
        limits = [
            (word, limit, good) for word, (limit, good) in expected.items() if limit is not None
        ]
        if all(good(value, limit) for _, limit, good in limits):
            return None
        words = [f"{word} {limit:g}" for word, limit, _ in limits]
        return f"a number {' and '.join(words)}"


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Iterable[str] | None = None,
    extendable: bool = False,
    search: Search | None = None,
) -> Any:
    """A field with a default, a help text and limits. Use it in your own methods and samplers.

    Args:
        default: the default value
        help: one line of help
        at_least: smallest value
        above: the value must be larger
        at_most: largest value
        below: the value must be smaller
        choices: the allowed texts
        extendable: whether a resumed run may have another value
        search: the values that `tune` tries: `Around`, `Among` or `Epochs`
    """
    allowed = None if choices is None else tuple(choices)
    limits = Limits(help, at_least, above, at_most, below, allowed, extendable, search)
    return field(default=default, metadata={_KEY: limits})


@dataclass(frozen=True)
class Options:
    """A dataclass of options that remembers which of them were given.

    `resolved` fills in the others from a recipe.
    """

    given: ClassVar[frozenset[str]] = frozenset()

    def __new__(cls, *positional: Any, **named: Any) -> Self:  # noqa: D102
        self = super().__new__(cls)
        places = [each.name for each in fields(cls)] if is_dataclass(cls) else []
        names = frozenset([*places[: len(positional)], *named])
        object.__setattr__(self, "given", names)
        return self

    def __post_init__(self) -> None:
        for each in fields(self):
            self._check(each)

    def _check(self, each: "Field[Any]") -> None:
        value, hint = _plain(getattr(self, each.name)), type_of(type(self), each.name)
        object.__setattr__(self, each.name, value)
        if not has_type(value, hint):
            raise UserError(
                f"`{each.name}` is {printable(repr(value))}: give {_in_words(hint)}.", each.name
            )
        problem = None if value is None else limits_of(each).problem(value)
        if problem is not None:
            raise UserError(f"`{each.name}` is {printable(value)}: give {problem}.", each.name)

    def check(self) -> None:
        """Raise an error for values that do not fit together. Called by `resolved`."""

    def resolved(self, values: Mapping[str, Any]) -> Self:
        """A complete copy: missing options are taken from `values`, or else their default.

        Args:
            values: values of a recipe by name; unknown names are ignored
        """
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        added = {k: v for k, v in values.items() if k in own and k not in self.given}
        complete = type(self)(**{**own, **added})
        complete.check()
        return complete

    def as_dict(self) -> dict[str, Any]:
        """All options by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def _plain(value: object) -> object:
    """A number of another library, such as NumPy, as one of Python's."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def limits_of(each: "Field[Any]") -> Limits:
    """The limits and the help of a field."""
    found = each.metadata.get(_KEY)
    return found if isinstance(found, Limits) else Limits(each.name)


def default_of(each: "Field[Any]") -> Any:
    """The default of a field; None if it has none."""
    return None if each.default is MISSING else each.default


@cache
def _hints(options: type) -> dict[str, Any]:
    return get_type_hints(options)


def type_of(options: type, name: str) -> Any:
    """The annotated type of an option."""
    return _hints(options)[name]


def parsed(options: type, name: str, value: object) -> Any:
    """The value of an option, converted from a text or a YAML value.

    Args:
        options: the dataclass
        name: the option's name
        value: what was given
    """
    hint = type_of(options, name)
    found = _parsed(hint, value)
    if found is MISSING:
        raise UserError(f"`{name}` is {printable(value)}: give {_in_words(hint)}.", name)
    return found


def _parsed(hint: Any, value: object) -> Any:
    kinds = _kinds(hint)
    if hint == tuple[str, ...]:
        several = value if isinstance(value, list | tuple) else [value]
        good = all(isinstance(part, str) for part in several)
        return tuple(map(str, several)) if good else MISSING
    if value is None or (value in ("none", "null") and NoneType in kinds and str not in kinds):
        return None if NoneType in kinds else MISSING
    if isinstance(value, bool):
        return value if bool in kinds else MISSING
    if int in kinds and (number := _int(value)) is not None:
        return number
    if float in kinds and (real := _float(value)) is not None:
        return real
    if bool in kinds and value in ("true", "false"):
        return value == "true"
    if str in kinds and isinstance(value, str | int | float):
        return str(value)
    return MISSING


def _int(value: object) -> int | None:
    try:
        number = int(value) if isinstance(value, str | int) else None
    except ValueError:
        return None
    return None if number is None or abs(number) > LARGEST else number


def _float(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        return None


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def has_type(value: object, hint: Any) -> bool:
    """Whether a value has the annotated type of an option; whole numbers are numbers.

    Args:
        value: what was given
        hint: the type
    """
    kinds = _kinds(hint)
    if hint == tuple[str, ...]:
        return isinstance(value, tuple) and all(isinstance(part, str) for part in value)
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int) and float in kinds:
        return True
    return isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type)))


def _in_words(hint: Any) -> str:
    if hint == tuple[str, ...]:
        return "texts"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    kinds = [kind for kind in _kinds(hint) if kind is not NoneType]
    return " or ".join(words.get(kind, getattr(kind, "__name__", str(kind))) for kind in kinds)
