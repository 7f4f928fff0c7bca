"""Corrupt images by the name of a corruption."""

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from pseudocoreset.engine.text import did_you_mean, printable
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.corruptions import weather
from pseudocoreset.evaluation.corruptions.draws import Draws
from pseudocoreset.evaluation.corruptions.linear import rounded_down
from pseudocoreset.evaluation.corruptions.table import CORRUPTIONS, PAPER, SEVERITIES

AT_A_TIME = 250
SMALLEST_SIDE = 16
"""On smaller images, lengths that were chosen for 32×32 would be less than a third of a pixel."""
GROUPS = {"all": tuple(CORRUPTIONS), "paper": PAPER}


def corrupt(
    images: UInt8[Tensor, "n c h w"],
    name: str,
    severity: int,
    *,
    seed: int = 0,
    places: Int64[Tensor, " n"] | None = None,
) -> UInt8[Tensor, "n c h w"]:
    """Corrupt images as CIFAR-10-C does.

    The parameters are the official ones for 32×32 pixels. For other sizes, lengths in pixels grow
    with the side. The random numbers of an image depend only on the seed and its index. Values are
    clipped to 0 to 255 and rounded down.

    Args:
        images: square images as bytes, grey or RGB, at least 16×16 pixels
        name: the corruption, such as `fog`
        severity: 1 to 5
        seed: seed of all randomness
        places: the indices of the images in their data set; default: 0, 1, …
    """
    if name not in CORRUPTIONS:
        raise _unknown(name, "name")
    if severity not in SEVERITIES:
        raise UserError(f"`severity` is {severity}: give 1 to 5.", "severity")
    problem = _why_not(name, tuple(images.shape[1:]))
    if problem:
        raise UserError(f"`images` can't be corrupted by {name}: {problem}.", "images")
    each = torch.arange(len(images)) if places is None else places
    found = torch.empty(images.shape, dtype=torch.uint8)

    def corrupt_block(start: int) -> None:
        block = slice(start, start + AT_A_TIME)
        found[block] = _corrupted(images[block].cpu(), name, severity, seed, each[block].tolist())

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(corrupt_block, range(0, len(images), AT_A_TIME)))
    return found.to(images.device)


def _corrupted(
    images: UInt8[Tensor, "n c h w"], name: str, severity: int, seed: int, places: list[int]
) -> UInt8[Tensor, "n c h w"]:
    corruption = CORRUPTIONS[name]
    draws = Draws(seed, name, severity, places)
    changed = corruption.function(
        images.double() / 255, draws, *corruption.parameters[severity - 1]
    )
    return rounded_down(changed.clamp(0, 1) * 255).to(torch.uint8)


def chosen_corruptions(
    names: str | Sequence[str], shape: tuple[int, ...], *, made: bool = True
) -> list[str]:
    """The corruptions that are meant; of a group, those that can be made of such images.

    Args:
        names: `all`, `paper`, or names, separated by commas in a text
        shape: of an image: channels, height, width
        made: whether they are to be made here; what was made elsewhere can be of any images
    """
    given = names.split(",") if isinstance(names, str) else list(names)
    found: list[str] = []
    for name in given:
        for each in GROUPS.get(name, (name,)):
            if each not in CORRUPTIONS:
                raise _unknown(each, "corruptions")
            problem = _why_not(each, shape) if made else None
            if problem and (name not in GROUPS or each not in ("frost", "saturate")):
                raise UserError(f"`corruptions` {each}: {problem}.", "corruptions")
            if problem:
                warnings.warn(
                    f"{each} is left out of {name}: {problem}.", RuntimeWarning, stacklevel=2
                )
            elif each not in found:
                found.append(each)
    return found


def _unknown(name: str, parameter: str) -> UserError:
    hint = did_you_mean(name, [*CORRUPTIONS, *GROUPS])
    known = ", ".join(CORRUPTIONS)
    return UserError(
        f"`{parameter}` {printable(name)} is not known{hint}: give {known}.", parameter
    )


def _why_not(name: str, shape: tuple[int, ...]) -> str | None:
    """What speaks against corrupting images of this shape."""
    channels, height, width = shape
    if height != width or height < SMALLEST_SIDE or channels not in (1, 3):
        shown = "×".join(map(str, shape))
        return f"images are {shown}, and must be square, {SMALLEST_SIDE}×{SMALLEST_SIDE} or more"
    if name == "saturate" and channels == 1:
        return "images are grey"
    if name == "frost" and weather.frost_folder() is None:
        return "its photographs are missing; pip install 'pseudocoreset[frost]'"
    return None
