"""Code of your own, named `package.module:factory`.

Reading a file never imports code. A name in a file is used only if the user has named the same
object in this process, or trusts the code of the file.
"""

import functools
import hashlib
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

Factory = Callable[..., Any]

_WORD = r"[^\W\d]\w*"
_IMPORTABLE = re.compile(rf"{_WORD}(\.{_WORD})*:{_WORD}(\.{_WORD})*")
_NAMED = re.compile(rf"{_WORD}(\.{_WORD})*:({_WORD}|<{_WORD}>)(\.({_WORD}|<{_WORD}>))*")

_PARAMETERS = {"network": "net"}
"""The parameter that names such a thing, where it is called otherwise."""

_allowed: dict[tuple[str, str], Factory | None] = {}
"""What the user named in this process, by kind and name; None stands for what its name leads to.

An object that no name leads to (a local class, a lambda) is kept itself.
"""


def is_plugin_name(spec: str) -> bool:
    """Whether the text has the form `package.module:factory`, as a user writes or `name_of` does.

    Args:
        spec: any text
    """
    return _NAMED.fullmatch(spec) is not None


def must_be_given(spec: str) -> bool:
    """Whether another process can't find this code by its name, so that the user must give it.

    Args:
        spec: a name as `name_of` gives it
    """
    return _IMPORTABLE.fullmatch(spec) is None or spec.startswith("__main__:")


def imported(
    spec: str, what: str, *, source: Path | str | None = None, trust_code: bool = False
) -> Factory:
    """The factory that `spec` names.

    Modules of the current folder are found too, as they are by `python -m`. With `source`, nothing
    is imported, and the search path stays as it is, before the name is known to be allowed.

    Args:
        spec: `package.module:factory`
        what: what it makes ("network", "method", "sampler"); errors name this as the parameter
        source: the file that holds the name; None where the user gave it
        trust_code: whether the user lets the file's code run
    """
    parameter = _PARAMETERS.get(what, what)
    if not is_plugin_name(spec):
        raise UserError(
            f"{printable(spec)} is not the name of a {what}: write it as package.module:factory.",
            parameter=parameter,
        )
    key = (what, spec)
    if source is not None and key not in _allowed and not trust_code:
        if must_be_given(spec):
            raise UserError(
                f"{printable(source)} was made with the {what} {printable(spec)}, which no other "
                f"program can import: give the same `{parameter}` again.",
                parameter=parameter,
            )
        raise UserError(
            f"{printable(source)} names the {what} {printable(spec)}, which is not part of "
            f"pseudocoreset: give the same `{parameter}`, or `trust_code`, to run that code.",
            parameter=parameter,
        )
    given = _allowed.get(key)
    if given is not None:
        return given
    factory = _imported(spec, what, parameter)
    _allowed[key] = None
    return factory


def remembered(factory: Factory, what: str) -> str:
    """The name of a factory that the user gave as an object; from now on files may name it.

    Args:
        factory: a class or a function
        what: what it makes, as for `imported`
    """
    spec = name_of(factory)
    _allowed[what, spec] = None if _found(spec) is factory else factory
    return spec


def name_of(factory: Factory) -> str:
    """`module:qualname` of a class or function.

    If no import leads to it under that name, the name has a part in angle brackets, as Python's own
    `<locals>` and `<lambda>`.

    Args:
        factory: a class, a function, or anything else that can be called
    """
    named: Any = factory
    arguments = []
    while isinstance(named, functools.partial):
        arguments.append((named.args, sorted(named.keywords.items())))
        named = named.func
    if not isinstance(getattr(named, "__qualname__", None), str):
        named = type(named)
    spec = f"{getattr(named, '__module__', None) or '__main__'}:{named.__qualname__}"
    if not is_plugin_name(spec):
        spec = "__main__:<unnamed>"
    if arguments:  # others make another network
        digest = hashlib.blake2b(repr(arguments).encode("utf-8", "replace"), digest_size=4)
        return f"{spec}.<partial_{digest.hexdigest()}>"
    if _IMPORTABLE.fullmatch(spec) and _found(spec) is not factory:
        spec += ".<given>"
    return spec


def described(error: BaseException) -> str:
    """An exception in one line.

    Args:
        error: any, also of code that is not ours
    """
    return printable(" ".join(f"{type(error).__name__}: {error}".split()), longest=400)


def _imported(spec: str, what: str, parameter: str) -> Factory:
    module_name, _, name = spec.partition(":")
    if must_be_given(spec) and _found(spec) is None:
        raise UserError(
            f"The {what} {printable(spec)} can't be imported: give the class or function itself.",
            parameter=parameter,
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UserError(
            f"The module of the {what} {printable(spec)} can't be imported ({described(error)}): "
            "check its name and that its folder is on PYTHONPATH.",
            parameter=parameter,
        ) from error
    factory: Factory | None = _found(spec)
    if not callable(factory):
        raise UserError(
            f"The module {printable(module_name)} has no class or function called "
            f"{printable(name)}: name a {what} as package.module:factory.",
            parameter=parameter,
        )
    return factory


def _found(spec: str) -> Any:
    """What a name leads to among the modules that are imported already; None if nothing."""
    module_name, _, name = spec.partition(":")
    found: Any = sys.modules.get(module_name)
    for part in name.split("."):
        try:
            found = None if found is None else getattr(found, part, None)
        except Exception:  # a module's own __getattr__
            return None
    return found
