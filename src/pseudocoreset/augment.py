"""Differentiable siamese augmentation (DSA; Zhao and Bilen, 2021).

Each call draws one kind of change, with parameters for each image. The same draw can be applied to
several batches ("siamese"). Gradients flow to the images.

Every kind is a special case of one formula (warp, recolour, blank a square); the other kinds get
parameters that change nothing. So the choice is made on the device without waiting for it, and one
CUDA graph serves all kinds.
"""

from dataclasses import dataclass
from math import pi
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.kernels.augmentation import Reach, augmented, can_augment

KINDS = ("color", "crop", "cutout", "flip", "scale", "rotate")

BRIGHTNESS = 1.0  # added: U(−½, ½) of this
SATURATION = 2.0  # factor about a pixel's channel mean: U(0, this)
CONTRAST = 0.5  # factor about the image's mean: this + U(0, 1)
CROP = 0.125  # shift by at most this share of the side
CUTOUT = 0.5  # side of the square, as a share of the image's
SCALE = 1.2  # factors U(1/this, this)
ROTATE = 15.0  # degrees, either way


class Chance(NamedTuple):
    """The random numbers of one draw. They are separate because the rest can be compiled."""

    kind: Int64[Tensor, " 1"]
    unit: Float[Tensor, "7 n"]


class Draw(NamedTuple):
    """The parameters of one augmentation of n images."""

    warp: Float[Tensor, "n 2 3"]
    """Where in the image each pixel of the result looks, as an affine map of [−1, 1]²."""
    brightness: Float[Tensor, " n"]
    saturation: Float[Tensor, " n"]
    contrast: Float[Tensor, " n"]
    hole: Float[Tensor, "n 2"]
    """Top and left of the blanked square, in pixels."""


@dataclass(frozen=True)
class Augmentation:
    """DSA with some kinds of change; with none of them, images are unchanged."""

    kinds: tuple[str, ...]

    @staticmethod
    def parse(option: str, mirror: bool) -> "Augmentation":
        """Parse `on`, `off` or `kind,kind`; `on` excludes flips if they change the class."""
        if option == "off":
            return Augmentation(())
        if option == "on":
            return Augmentation(tuple(k for k in KINDS if mirror or k != "flip"))
        kinds = tuple(option.split(","))
        for kind in kinds:
            if kind not in KINDS:
                raise UserError(
                    f"`dsa` {printable(option)}: {printable(kind)} is not a kind of "
                    f"augmentation; give on, off, or some of {','.join(KINDS)}.",
                    "dsa",
                )
        # In one order and each once: a kind given twice would change nothing half of the time.
        return Augmentation(tuple(kind for kind in KINDS if kind in kinds))

    def __str__(self) -> str:
        return ",".join(self.kinds) or "off"

    def draw(self, number: int, size: int, generator: torch.Generator) -> Draw:
        """Draw one kind, and its parameters for `number` images of side `size`."""
        return self.draw_from(self.chance(number, generator), size)

    def chance(self, number: int, generator: torch.Generator) -> Chance:
        """The random numbers of a draw for `number` images."""
        device = generator.device
        kind = torch.randint(max(len(self.kinds), 1), (1,), generator=generator, device=device)
        return Chance(kind, torch.rand(7, number, generator=generator, device=device))

    def draw_from(self, chance: Chance, size: int) -> Draw:
        """The draw with these random numbers, for images of side `size`."""
        chosen, unit = chance

        def only(kind: str, value: Tensor, otherwise: float) -> Tensor:
            if kind not in self.kinds:
                return torch.full_like(value, otherwise)
            return torch.where(chosen == self.kinds.index(kind), value, otherwise)

        reach = _reach(size)
        shift = torch.floor(unit[0:2] * (2 * reach.shift + 1)) - reach.shift
        shift = only("crop", shift * 2 / (size - 1), 0.0)
        flip = only("flip", torch.where(unit[2] < 0.5, -1.0, 1.0), 1.0)
        zoom = only("scale", 1 / SCALE + unit[3:5] * (SCALE - 1 / SCALE), 1.0)
        angle = only("rotate", (unit[5] * 2 - 1) * reach.angle, 0.0)
        cos, sin = angle.cos(), angle.sin()
        warp = torch.stack(
            [
                torch.stack([flip * zoom[0] * cos, -sin, shift[0]], 1),
                torch.stack([sin, zoom[1] * cos, shift[1]], 1),
            ],
            1,
        )
        side = reach.hole
        centre = torch.floor(unit[0:2] * (size + 1 - side % 2))
        hole = only("cutout", centre - side // 2, -2.0 * size)
        return Draw(
            warp,
            brightness=only("color", (unit[0] - 0.5) * BRIGHTNESS, 0.0),
            saturation=only("color", unit[1] * SATURATION, 1.0),
            contrast=only("color", unit[2] + CONTRAST, 1.0),
            hole=hole.T,
        )

    def apply(self, images: Float[Tensor, "n ..."], draw: Draw) -> Float[Tensor, "n ..."]:
        """Apply a draw to images. Differentiable."""
        if not self.kinds:
            return images
        if not {"crop", "flip", "scale", "rotate"}.isdisjoint(self.kinds):
            grid = F.affine_grid(draw.warp.to(images.dtype), list(images.shape), align_corners=True)
            images = F.grid_sample(images, grid, align_corners=True)
        if "color" in self.kinds:
            images = _recolour(images, draw)
        if "cutout" in self.kinds:
            images = images * _outside_hole(images.shape[-1], draw.hole)
        return images

    def by_chance(self, images: Float[Tensor, "n ..."], chance: Chance) -> Float[Tensor, "n ..."]:
        """Apply the draw with these random numbers to images."""
        if self.kinds and can_augment(images):
            places = {k: self.kinds.index(k) if k in self.kinds else -1 for k in KINDS}
            return augmented(images, *chance, places, _reach(images.shape[-1]))
        return self.apply(images, self.draw_from(chance, images.shape[-1]))

    def __call__(
        self, images: Float[Tensor, "n ..."], generator: torch.Generator
    ) -> Float[Tensor, "n ..."]:
        """Draw and apply."""
        if not self.kinds:
            return images
        return self.by_chance(images, self.chance(len(images), generator))


def _reach(size: int) -> Reach:
    """The sizes of changes for images of this side."""
    return Reach(
        shift=int(size * CROP + 0.5),
        hole=int(size * CUTOUT + 0.5),
        zoom=SCALE,
        angle=ROTATE * pi / 180,
        brightness=BRIGHTNESS,
        saturation=SATURATION,
        contrast=CONTRAST,
    )


def _recolour(images: Tensor, draw: Draw) -> Tensor:
    def column(values: Tensor) -> Tensor:
        return values.to(images.dtype).view(-1, 1, 1, 1)

    images = images + column(draw.brightness)
    grey = images.mean(1, keepdim=True)
    images = (images - grey) * column(draw.saturation) + grey
    mean = images.mean((1, 2, 3), keepdim=True)
    return (images - mean) * column(draw.contrast) + mean


def _outside_hole(size: int, hole: Tensor) -> Tensor:
    place = torch.arange(size, device=hole.device)
    inside = (place >= hole[:, :, None]) & (place < hole[:, :, None] + _reach(size).hole)
    return ~(inside[:, 0, None, :, None] & inside[:, 1, None, None, :])
