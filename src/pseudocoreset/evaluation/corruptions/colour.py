"""Brightness, contrast and saturation; and what a file format does to an image."""

from collections.abc import Callable
from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float64
from PIL import Image
from torch import Tensor

from pseudocoreset.evaluation.corruptions.draws import Draws
from pseudocoreset.evaluation.corruptions.noise import Images

GREY = (0.299, 0.587, 0.114)
"""What red, green and blue add to the grey value."""


def luminance(x: Images) -> Float64[Tensor, "n 1 h w"]:
    """Grey values."""
    if x.shape[1] == 1:
        return x
    return (x * x.new_tensor(GREY)[:, None, None]).sum(1, keepdim=True)


def brightness(x: Images, draws: Draws, added: float) -> Images:  # noqa: ARG001
    """V of HSV becomes V' = min(V + added, 1): all channels are multiplied by V'/V."""
    value = x.amax(1, keepdim=True)
    brighter = (value + added).clamp(max=1)
    return torch.where(value > 0, x * (brighter / value), brighter)


def saturate(x: Images, draws: Draws, factor: float, added: float) -> Images:  # noqa: ARG001
    """S of HSV becomes S' = min(factor·S + added, 1); grey counts as red of saturation 0."""
    value = x.amax(1, keepdim=True)
    chroma = value - x.amin(1, keepdim=True)
    saturation = torch.where(value > 0, chroma / value, 0)
    changed = (factor * saturation + added).clamp(0, 1)
    # How far each channel is below V, in parts of the saturation: 0 to 1.
    below = torch.where(chroma > 0, (value - x) / chroma, x.new_tensor([0.0, 1, 1])[:, None, None])
    return value * (1 - changed * below)


def contrast(x: Images, draws: Draws, factor: float) -> Images:  # noqa: ARG001
    """Differences from the channel's mean, multiplied by `factor`."""
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * factor + mean


def jpeg_compression(x: Images, draws: Draws, quality: float) -> Images:  # noqa: ARG001
    """To a JPEG file and back."""

    def through_file(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=int(quality))
        return Image.open(file)

    return _by_pillow(x, through_file)


def pixelate(x: Images, draws: Draws, factor: float) -> Images:  # noqa: ARG001
    """To ⌊factor·side⌋ pixels and back, by means over boxes."""
    side = x.shape[-1]
    small = int(side * factor)

    def there_and_back(image: Image.Image) -> Image.Image:
        box = Image.Resampling.BOX
        return image.resize((small, small), box).resize((side, side), box)

    return _by_pillow(x, there_and_back)


def _by_pillow(x: Images, change: Callable[[Image.Image], Image.Image]) -> Images:
    arrays = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    arrays = arrays.squeeze(3) if x.shape[1] == 1 else arrays
    changed = np.stack([np.asarray(change(Image.fromarray(array))) for array in arrays])
    rows = torch.from_numpy(changed).view(len(x), *x.shape[2:], -1)
    return rows.permute(0, 3, 1, 2).double() / 255
