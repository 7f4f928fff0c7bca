"""The run-time type checker of the tests; as for mypy, an int will do for a float."""

from collections.abc import Callable
from dataclasses import is_dataclass
from inspect import isfunction
from typing import Any, Self, get_args

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

# Methods are decorated one by one, without their class: what Self is, is not known.
overrides = FrozenDict({Self: Any})
conf = BeartypeConf(
    is_pep484_tower=True, hint_overrides=overrides, violation_type=jaxtyping.TypeCheckError
)
check = beartype(conf=conf)
with_shapes = jaxtyping.jaxtyped


def install() -> None:
    """Check every annotated shape and type of the package, which is not imported yet.

    What jaxtyping does to compare shapes takes longer than a check of types, so it does it only to
    functions whose annotations have shapes.
    """
    jaxtyping.jaxtyped = checked
    jaxtyping.install_import_hook("pseudocoreset", "typechecker.check")


def checked(*, typechecker: Any) -> Callable[[Any], Any]:
    """In the place of `jaxtyping.jaxtyped`, which the import hook decorates everything with."""

    def decorate(what: Any) -> Any:
        function = what.__init__ if is_dataclass(what) else what
        if not isfunction(function) or any(map(has_shape, function.__annotations__.values())):
            return with_shapes(what, typechecker=typechecker)
        if function is what:
            return check(function)
        what.__init__ = check(function)
        return what

    return decorate


def has_shape(hint: Any) -> bool:
    """Whether it is an array, or made of one, or not known yet."""
    known = not isinstance(hint, str)
    array = isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)
    return not known or array or any(map(has_shape, get_args(hint)))
