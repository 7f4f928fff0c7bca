"""Snow, frost and fog."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.corruptions.colour import luminance
from pseudocoreset.evaluation.corruptions.draws import Draws
from pseudocoreset.evaluation.corruptions.linear import (
    OFFICIAL_SIDE,
    both_ways,
    motion_blurred,
    rounded_down,
    zoom_matrix,
)
from pseudocoreset.evaluation.corruptions.noise import Images

TEXTURES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
FROST_PACKAGE = "imagecorruptions"
FROST_SCALE = 0.2


def snow(
    x: Images,
    draws: Draws,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    mix: float,
) -> Images:
    """Flakes are noise above a threshold, zoomed and blurred in a direction, and their half turn.

    The image is whitened before: mix·x + (1 − mix)·max(x, 1.5·grey + 0.5).
    """
    side = x.shape[-1]
    grown = side / OFFICIAL_SIDE
    layer = both_ways(mean + std * draws.normal(side, side), zoom_matrix(side, zoom))
    layer = torch.where(layer < threshold, 0, layer).clamp(0, 1)
    layer = (rounded_down(layer * 255) / 255)[:, None]
    layer = motion_blurred(layer, radius * grown, sigma * grown, draws.uniform(-135, -45))
    white = mix * x + (1 - mix) * torch.maximum(x, luminance(x) * 1.5 + 0.5)
    return white + layer + layer.flip(2, 3)


def fog(x: Images, draws: Draws, amount: float, decay: float) -> Images:
    """(x + amount·plasma) · m / (m + amount), with m the largest value of the image."""
    side = x.shape[-1]
    most = x.amax((1, 2, 3), keepdim=True)
    clouds = plasma(draws, len(x), side, decay)[:, None, :side, :side]
    return (x + amount * clouds) * most / (most + amount)


def plasma(draws: Draws, number: int, side: int, decay: float) -> Float64[Tensor, "n s s"]:
    """Clouds by diamonds and squares on a torus, scaled to [0, 1]; s is a power of 2.

    The middle of each square, then of each diamond, is the mean of its four corners plus uniform
    noise of w²; after each round the step is halved and w divided by `decay`. It begins with 100.
    """
    size = 1 << (side - 1).bit_length()
    found = torch.zeros(number, size, size, dtype=torch.float64)
    step, spread = size, 100.0
    while step >= 2:
        half, each = step // 2, size // step

        def middle(total: Tensor, spread: float = spread, each: int = each) -> Tensor:
            return total / 4 + spread * draws.uniform(-spread, spread, each, each)

        corners = found[:, ::step, ::step].clone()
        pairs = corners + corners.roll(-1, 1)
        centres = middle(pairs + pairs.roll(-1, 2))
        found[:, half::step, half::step] = centres
        beside = centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        found[:, ::step, half::step] = middle(beside)
        above = centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        found[:, half::step, ::step] = middle(above)
        step, spread = half, spread / decay
    found -= found.amin((1, 2), keepdim=True)
    return found / found.amax((1, 2), keepdim=True)


def frost(x: Images, draws: Draws, image_weight: float, frost_weight: float) -> Images:
    """A weighted sum of the image and of a piece of a photograph of frost."""
    side = x.shape[-1]
    textures = _textures(side)
    which = draws.integers(0, len(textures)).tolist()
    sizes = torch.tensor([textures[number].shape[1:] for number in which])
    starts = (draws.uniform(0, 1, 2) * (sizes - side)).long().tolist()
    pieces = torch.stack(
        [
            textures[number][:, top : top + side, left : left + side]
            for number, (top, left) in zip(which, starts, strict=True)
        ]
    )
    pieces = luminance(pieces) if x.shape[1] == 1 else pieces
    return image_weight * x + frost_weight * pieces


def frost_folder() -> Path | None:
    """Where the optional package has its textures; None where it is not installed."""
    found = find_spec(FROST_PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(next(iter(found.submodule_search_locations))) / "frost"
    return folder if all((folder / name).is_file() for name in TEXTURES) else None


@cache
def _textures(side: int) -> list[Float64[Tensor, "3 h w"]]:
    """The photographs, scaled by 0.2 for a side of 32, without smoothing."""
    folder = frost_folder()
    if folder is None:
        raise UserError(
            "`corruptions` frost needs photographs of frost: pip install 'pseudocoreset[frost]'.",
            "corruptions",
        )
    found = []
    for name in TEXTURES:
        with Image.open(folder / name) as image:
            pixels = torch.from_numpy(np.asarray(image.convert("RGB")).copy())
        scale = FROST_SCALE * side / OFFICIAL_SIDE
        scaled = interpolate(
            pixels.permute(2, 0, 1)[None].double(),
            scale_factor=scale,
            mode="bilinear",
            recompute_scale_factor=False,
        )
        found.append(scaled[0].round() / 255)
    return found
