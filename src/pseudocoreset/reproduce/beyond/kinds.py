"""The kinds of coresets: the best of a size, controls of the same storage, an ablation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any, NamedTuple

from pseudocoreset.data import Data
from pseudocoreset.distillation import DistillOptions
from pseudocoreset.forms import parse_form
from pseudocoreset.methods import method_class
from pseudocoreset.posterior import SAMPLERS, Sampler, named_sampler
from pseudocoreset.recipes import recipe_for

BEST: dict[int, tuple[str, ...]] = {
    1: ("fbpc-isotropic",),
    10: ("fbpc-isotropic",),
    50: ("fbpc-isotropic",),
}
"""The methods of the best coreset by stored images per class, one after another: each begins with
what the one before it made."""
FINISH = "unrolled"
LONGEST = 40
"""The longest part of a folder's name that describes changes of a recipe."""
ABLATED = 10
"""Stored images per class of the ablation."""
JPEG_QUALITY = 25
"""Of the JPEG files, on libjpeg's scale from 1 to 95; the same at all sizes."""
SCORED_BY: dict[str, Mapping[str, Any]] = {"sghmc": {}, "last-layer": {"every": 1000}}
"""The samplers that coresets are scored with, by their differences from the protocol `tuned`. A
chain of `last-layer` trains one network, with as many epochs as SGHMC."""
CHAINS_BY_SIZE: dict[int, Mapping[str, Any]] = {1: {}, 10: {}, 50: {}}
"""The same for SGHMC by stored images per class, whatever the coreset."""


@dataclass(frozen=True)
class Kind:
    """A way to make a coreset.

    `methods` follow one another; `changes` are options that the first has otherwise than in its
    recipe.
    """

    title: str
    methods: tuple[str, ...]
    recipe: str = "best"
    changes: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "half"
    """As which it is rounded before it is scored."""
    experts: bool = True
    """Whether it needs experts."""
    repeated: bool = False
    """Whether it is made several times, of different seeds."""
    shipped: str | None = None
    """The coreset that is scored again rather than made, if it comes with the results."""
    headline: bool = False
    """Whether it is scored by all posteriors of `SCORED_BY`, not by SGHMC alone."""
    fills: bool = False
    """Whether it has as many images as the best coreset has room for."""
    jpeg: bool = False

    def made_as(self, stage: int) -> str:
        """A name for what its first methods make, the same for kinds that make the same."""
        changes = ",".join(f"{k}={v}" for k, v in sorted(self.changes.items())).replace(":", "")
        if len(changes) > LONGEST:
            changes = blake2b(changes.encode(), digest_size=4).hexdigest()
        parts = ["+".join(self.methods[: stage + 1]), self.recipe, changes]
        return "-".join(part for part in parts if part)


class Budget(NamedTuple):
    """What the best coreset of a size takes."""

    numbers: int
    bytes: int
    """At one byte a pixel, soft labels in half precision and classes as files have them."""


def kinds(data: str, ipc: int) -> dict[str, Kind]:
    """All that is measured at a size, by name."""
    found = {
        "best": Kind("best", BEST[ipc], repeated=True, headline=True),
        "best-bytes": Kind("best, one byte a pixel", BEST[ipc], precision="byte", shipped="best"),
        **controls(data, ipc),
    }
    return {**found, **ablation(data)} if ipc == ABLATED else found


def controls(data: str, ipc: int) -> dict[str, Kind]:
    """Coresets of the same storage that are not distilled, and distilled ones as published."""
    drawn: dict[str, Any] = {"methods": ("random",), "repeated": True}
    experts = {"labels": "experts"}
    mosaic = {"form": best_values(data, ipc).get("form", "pixels"), **experts}
    plain = {"form": "pixels", "labels": "hard"}
    return {
        "random": Kind("random images", **drawn, experts=False, fills=True),
        "random+experts": Kind(
            "random images, experts' labels", **drawn, changes=experts, fills=True
        ),
        "mosaic+experts": Kind("random mosaic, experts' labels", **drawn, changes=mosaic),
        "jpeg+experts": Kind(
            f"random images as JPEG of quality {JPEG_QUALITY}, experts' labels",
            **drawn,
            changes=experts,
            precision="full",
            jpeg=True,
        ),
        "vbpc": Kind(
            "VBPC, pixels, learned labels",
            ("vbpc",),
            "tuned",
            {"form": "pixels", "labels": "learned"},
            experts=False,
            headline=True,
        ),
        "fbpc": Kind(
            "FBPC, pixels, hard labels",
            ("fbpc",),
            "tuned",
            plain,
            shipped="fbpc",
            headline=True,
        ),
    }


def ablation(data: str) -> dict[str, Kind]:
    """The best settings without one ingredient, with another, and with one more."""
    isotropic = ("fbpc-isotropic",)
    plain = {"form": "pixels", "labels": "hard"}
    return {
        "ablation-pixels": Kind("FBPC-isotropic, pixels, hard labels", isotropic, "tuned", plain),
        "ablation-mosaic": Kind(
            "best settings, hard labels", isotropic, changes={"labels": "hard"}
        ),
        "ablation-learned": Kind("best settings: learned labels", isotropic),
        "ablation-experts": Kind(
            "the same, experts' labels instead", isotropic, changes={"labels": "experts"}
        ),
        "ablation-covariance": Kind(
            "best settings, empirical covariance (FBPC)", ("fbpc",), changes=as_isotropic(data)
        ),
        "ablation-finish": Kind("best settings, unrolled finish", (*isotropic, FINISH)),
    }


def as_isotropic(data: str) -> dict[str, Any]:
    """What FBPC takes from the best settings of FBPC-isotropic, where it has no best of its own."""
    best, own = (recipe_for(data, ABLATED, f"fbpc{kind}", "best") for kind in ("-isotropic", ""))
    if best.section != "best" or own.section == "best":
        return {}
    return {name: value for name, value in best.values.items() if name in options_of("fbpc")}


def options_of(method: str) -> set[str]:
    """The options of a method and of the updates."""
    return {each.name for of in (method_class(method), DistillOptions) for each in fields(of)}


def best_values(data: str, ipc: int) -> Mapping[str, Any]:
    """What the recipe `best` says of the first method of the best coreset."""
    return recipe_for(data, ipc, BEST[ipc][0], "best").values


def budget(data: Data, ipc: int) -> Budget:
    """The storage of the best coreset, as its recipe has it."""
    values = best_values(data.name, ipc)
    stored = ipc * data.classes
    pixels = stored * data.train.inputs[0].numel()
    if values.get("labels", "hard") == "hard":
        return Budget(pixels + stored, pixels + 8 * stored)
    labels = stored * parse_form(values.get("form", "pixels")).seen * data.classes
    return Budget(pixels + labels, pixels + 2 * labels)


def images_that_fill(data: Data, ipc: int, soft: bool) -> int:
    """How many real images per class take no more numbers than the best coreset."""
    each = data.train.inputs[0].numel() + (data.classes if soft else 1)
    return max(1, budget(data, ipc).numbers // (each * data.classes))


def samplers(kind: Kind, ipc: int) -> dict[str, Sampler]:
    """The posteriors that coresets of a kind and size are scored by."""
    found = {}
    for name, changes in SCORED_BY.items():
        if kind.headline or name == "sghmc":
            of_size = CHAINS_BY_SIZE[ipc] if name == "sghmc" else {}
            found[name] = named_sampler("tuned", SAMPLERS[name](**{**changes, **of_size}))
    return found
