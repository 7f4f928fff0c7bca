"""Find methods and samplers by name; your own are named `package.module:Class`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pseudocoreset.engine.options import Options
from pseudocoreset.engine.plugins import imported, is_plugin_name
from pseudocoreset.engine.text import did_you_mean, printable
from pseudocoreset.errors import UserError

T = TypeVar("T", bound=Options)


def class_named(
    name: str,
    what: str,
    known: Mapping[str, type[T]],
    base: type[T],
    *,
    source: Path | str | None = None,
    trust_code: bool = False,
) -> type[T]:
    """The class of this name.

    Args:
        name: one of `known`, or `package.module:Class`
        what: "method" or "sampler"; errors name it as the parameter
        known: our own classes by name
        base: what a user's own must derive from
        source: the file that named it, if a file did
        trust_code: run code that a file names
    """
    if name in known:
        return known[name]
    if not is_plugin_name(name):
        raise UserError(
            f"`{what}` {printable(name)} is not known{did_you_mean(name, known)}: give "
            f"{', '.join(known)}, or your own as package.module:Class.",
            what,
        )
    found = imported(name, what, source=source, trust_code=trust_code)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UserError(
            f"{name} is not a {what}: it must be a frozen dataclass that derives from "
            f"pseudocoreset.{base.__name__}.",
            what,
        )
    return found


def name_of_class(options: Options, name: str, known: Mapping[str, type[T]]) -> str:
    """The name of a method or sampler in files and on the command line.

    Args:
        options: the method or sampler
        name: its name, if it is one of ours; a user's own may derive from one of ours
        known: our own classes by name
    """
    kind = type(options)
    return name if known.get(name) is kind else f"{kind.__module__}:{kind.__qualname__}"
