"""Methods that make coresets, one per file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from pseudocoreset.engine.classes import class_named, name_of_class
from pseudocoreset.engine.plugins import described
from pseudocoreset.errors import UserError
from pseudocoreset.methods.base import Context, Divergence, Estimate, Method, Points
from pseudocoreset.methods.bpc_cd import BPCContrastive
from pseudocoreset.methods.bpc_fkl import BPCForwardKL
from pseudocoreset.methods.bpc_rkl import BPCReverseKL
from pseudocoreset.methods.bpc_w import BPCWasserstein
from pseudocoreset.methods.fbpc import FBPC, FBPCIsotropic
from pseudocoreset.methods.multi import Multi
from pseudocoreset.methods.random import Random
from pseudocoreset.methods.unrolled import Unrolled
from pseudocoreset.methods.vbpc import VBPC

__all__ = [
    "FBPC",
    "METHODS",
    "VBPC",
    "BPCContrastive",
    "BPCForwardKL",
    "BPCReverseKL",
    "BPCWasserstein",
    "Context",
    "Divergence",
    "Estimate",
    "FBPCIsotropic",
    "Method",
    "Multi",
    "Points",
    "Random",
    "Unrolled",
    "check_estimate",
    "check_state",
    "method_class",
    "method_name",
    "prepare",
]

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Random,
        FBPC,
        FBPCIsotropic,
        BPCForwardKL,
        BPCReverseKL,
        BPCWasserstein,
        BPCContrastive,
        VBPC,
        Unrolled,
    )
}


def method_class(
    name: str, *, source: Path | str | None = None, trust_code: bool = False
) -> type[Method]:
    """The class of a method, by name.

    Args:
        name: one of METHODS, or `package.module:Class`
        source: the file that contains the name, if it comes from a file
        trust_code: run code that a file names
    """
    return class_named(name, "method", METHODS, Method, source=source, trust_code=trust_code)


def method_name(method: Method) -> str:
    """The name of a method in files and on the command line."""
    return name_of_class(method, method.name, METHODS)


def prepare(method: Method, contexts: Sequence[Context]) -> Divergence:
    """Prepare a method for one or several networks; their gradients are added."""
    parts = [_prepared(method, context) for context in contexts]
    return parts[0] if len(parts) == 1 else Multi(parts)


def _prepared(method: Method, context: Context) -> Divergence:
    name = method_name(method)
    if name in METHODS:
        return method.prepare(context)
    try:
        made = method.prepare(context)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the method {name} failed in prepare(context) with {described(error)}.", "method"
        ) from error
    if not isinstance(made, Divergence):
        raise UserError(
            f"the method {name} gave a {type(made).__name__} in prepare(context): it must return "
            "an object with the methods start() and gradient(coreset, state, rng).",
            "method",
        )
    return made


def check_state(state: Mapping[str, object]) -> None:
    """Raise an error if a method's state can't be stored in a checkpoint."""
    for name, kept in state.items():
        if not isinstance(kept, Tensor):
            raise UserError(
                f"the method keeps a {type(kept).__name__}, {name}: it must be a tensor.", "method"
            )


def check_estimate(estimate: object, coreset: Points) -> None:
    """Raise an error if a method's estimate does not fit the coreset."""
    if not isinstance(estimate, Estimate):
        raise UserError(
            f"the method's gradient gave {type(estimate).__name__}: it must return an Estimate.",
            "method",
        )
    check_state(estimate.state)
    for name, value in estimate.info.items():
        if not isinstance(value, int | float):
            raise UserError(
                f"the method's info has a {type(value).__name__}, {name}: it must be a number.",
                "method",
            )
    wanted = {"inputs": coreset.inputs}
    if coreset.targets.is_floating_point():
        wanted["targets"] = coreset.targets
    for name, values in wanted.items():
        gradient = estimate.gradients.get(name)
        if gradient is None or gradient.shape != values.shape:
            found = "none" if gradient is None else "×".join(map(str, gradient.shape))
            raise UserError(
                f"the method's estimate has {found} as the gradient of {name}: it must have the "
                f"shape {'×'.join(map(str, values.shape))}.",
                "method",
            )
