"""How far the coreset's posterior is from the data's; one method a file."""

from collections.abc import Callable, Sequence
from functools import partial

from pseudocoreset.divergences.base import (
    Context,
    Divergence,
    Estimate,
    MethodSettings,
    Points,
)
from pseudocoreset.divergences.fbpc import FBPC
from pseudocoreset.divergences.multi import Multi
from pseudocoreset.engine.plugins import imported, is_plugin_name
from pseudocoreset.errors import UserError

__all__ = [
    "FBPC",
    "METHODS",
    "Context",
    "Divergence",
    "Estimate",
    "MethodSettings",
    "Multi",
    "Points",
    "make_divergence",
]

METHODS: dict[str, Callable[[Context], Divergence]] = {
    "fbpc": FBPC,
    "fbpc-isotropic": partial(FBPC, isotropic=True),
}
"""The methods by name; `random` is none of them: it makes no update."""


def make_divergence(name: str, contexts: Sequence[Context]) -> Divergence:
    """The method of this name, or a person's own; one context an architecture, summed."""
    if name in METHODS:
        factory = METHODS[name]
    elif is_plugin_name(name):
        factory = imported(name, "method")
    else:
        known = ", ".join(["random", *METHODS])
        raise UserError(
            f"no method is called {name!r}: use {known}, or your own as package.module:factory."
        )
    parts = [factory(context) for context in contexts]
    return parts[0] if len(parts) == 1 else Multi(parts)
