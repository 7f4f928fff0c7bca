"""How far the coreset's posterior is from the data's; one method a file."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor

from pseudocoreset.divergences.base import (
    Context,
    Divergence,
    Estimate,
    MethodSettings,
    Points,
)
from pseudocoreset.divergences.bpc_fkl import BPCForwardKL
from pseudocoreset.divergences.bpc_rkl import BPCReverseKL
from pseudocoreset.divergences.bpc_w import BPCWasserstein
from pseudocoreset.divergences.fbpc import FBPC
from pseudocoreset.divergences.multi import Multi
from pseudocoreset.engine.plugins import described, imported, is_plugin_name
from pseudocoreset.errors import UserError

__all__ = [
    "FBPC",
    "METHODS",
    "BPCForwardKL",
    "BPCReverseKL",
    "BPCWasserstein",
    "Context",
    "Divergence",
    "Estimate",
    "MethodSettings",
    "Multi",
    "Points",
    "check_estimate",
    "factory_of",
    "make_divergence",
]

METHODS: dict[str, Callable[[Context], Divergence]] = {
    "fbpc": FBPC,
    "fbpc-isotropic": partial(FBPC, isotropic=True),
    "bpc-fkl": BPCForwardKL,
    "bpc-rkl": BPCReverseKL,
    "bpc-w": BPCWasserstein,
}
"""The methods by name; `random` is none of them: it makes no update."""


def factory_of(name: str) -> Callable[[Context], Divergence]:
    """What makes the method of this name, or a person's own."""
    if name in METHODS:
        return METHODS[name]
    if is_plugin_name(name):
        return imported(name, "method")
    known = ", ".join(["random", *METHODS])
    raise UserError(
        f"no method is called {name!r}: use {known}, or your own as package.module:factory."
    )


def make_divergence(name: str, contexts: Sequence[Context]) -> Divergence:
    """The method of this name, or a person's own; one context an architecture, summed."""
    factory = factory_of(name)
    parts = [_made(name, factory, context) for context in contexts]
    return parts[0] if len(parts) == 1 else Multi(parts)


def _made(name: str, factory: Callable[[Context], Divergence], context: Context) -> Divergence:
    try:
        made = factory(context)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the method factory {name}, called with a Context, failed with {described(error)}: "
            "let it take one."
        ) from error
    if not isinstance(made, Divergence):
        raise UserError(
            f"the method factory {name} returned a {type(made).__name__}: let it return an object "
            "with the methods start() and gradient(coreset, state, rng)."
        )
    return made


def check_state(state: Mapping[str, object]) -> None:
    """Refuse what a method keeps between updates and a checkpoint can't hold."""
    for name, kept in state.items():
        if not isinstance(kept, Tensor):
            raise UserError(
                f"the method keeps a {type(kept).__name__}, {name}: let it be a tensor."
            )


def check_estimate(estimate: object, coreset: Points) -> None:
    """Refuse a method's estimate that does not fit the coreset, by what is wrong with it."""
    if not isinstance(estimate, Estimate):
        raise UserError(
            f"the method's gradient gave {type(estimate).__name__}: let it give an Estimate."
        )
    check_state(estimate.state)
    for name, told in estimate.info.items():
        if not isinstance(told, int | float):
            raise UserError(
                f"the method tells a {type(told).__name__}, {name}: let it be a number."
            )
    wanted = {"images": coreset.images}
    if coreset.labels.is_floating_point():
        wanted["labels"] = coreset.labels
    for name, values in wanted.items():
        gradient = estimate.gradients.get(name)
        if gradient is None or gradient.shape != values.shape:
            found = "none" if gradient is None else "×".join(map(str, gradient.shape))
            raise UserError(
                f"the method's estimate has {found} as the gradient of {name}: let it give one of "
                f"{'×'.join(map(str, values.shape))}."
            )
