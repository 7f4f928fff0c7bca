"""A person's own code, by the name `package.module:factory`."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pseudocoreset.errors import UserError


def is_plugin_name(spec: str) -> bool:
    """Whether the text has the form `package.module:factory`."""
    return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", spec) is not None


def imported(spec: str, what: str) -> Callable[..., Any]:
    """The factory that `spec` names; `what` ("network") is how an error speaks of it.

    Modules of the current folder are found too, as they are by `python -m`.
    """
    module_name, _, name = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(
            f"the module of the {what} {spec} can't be imported ({described(error)}): check its "
            "name and that its folder is on PYTHONPATH."
        ) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise UserError(
            f"the module {module_name} has no function called {name}: name a {what} as "
            "package.module:factory."
        )
    return factory  # type: ignore[no-any-return]


def described(error: Exception) -> str:
    """An exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
