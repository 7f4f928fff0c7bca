"""Differentiable siamese augmentation as one CUDA kernel, for images that get no gradient.

In PyTorch's own pieces a draw and its use are some seventy small kernels, half of a training step.
Here an image is one program: it finds its parameters, looks elsewhere, recolours and blanks.
"""

from typing import NamedTuple, no_type_check

import torch
from torch import Tensor

try:
    import triton  # type: ignore[import-not-found,unused-ignore]
    from triton import language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # PyTorch's builds without CUDA come without it
    triton = None

LARGEST = 64
"""The side of the largest images that a program holds at once."""


class Reach(NamedTuple):
    """How far each kind of change goes for images of one size."""

    shift: int
    """pixels"""
    hole: int
    """side of the blanked square, in pixels"""
    zoom: float
    angle: float
    """radians"""
    brightness: float
    saturation: float
    contrast: float


def can_augment(images: Tensor) -> bool:
    """Whether the kernel takes images like these."""
    known = triton is not None and images.is_cuda and images.dtype == torch.float32
    wanted = torch.is_grad_enabled() and images.requires_grad
    return known and not wanted and images.shape[1] <= 4 and 1 < images.shape[-1] <= LARGEST


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    @no_type_check
    def _augment_kernel(
        images_ptr, kind_ptr, unit_ptr, out_ptr, number, zoom, angle, brightness, saturation,
        contrast, CHANNELS: tl.constexpr, SIDE: tl.constexpr, SHIFT: tl.constexpr,
        HOLE: tl.constexpr, COLOR: tl.constexpr, CROP: tl.constexpr, CUTOUT: tl.constexpr,
        FLIP: tl.constexpr, SCALE: tl.constexpr, ROTATE: tl.constexpr, WARPS: tl.constexpr,
        BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
    ):  # fmt: skip
        """One image. COLOR to ROTATE are the places of the kinds, −1 where one is left out."""
        image = tl.program_id(0).to(tl.int64)
        kind = tl.load(kind_ptr)
        unit_ptr += image
        u0, u1 = tl.load(unit_ptr), tl.load(unit_ptr + number)
        channel = tl.arange(0, BLOCK_C)[:, None]
        pixel = tl.arange(0, BLOCK_P)[None, :]
        valid = (channel < CHANNELS) & (pixel < SIDE * SIDE)
        row, column = pixel // SIDE, pixel % SIDE
        images_ptr += (image * CHANNELS + channel) * SIDE * SIDE
        if WARPS:
            middle = (SIDE - 1) * 0.5
            x, y = column / middle - 1, row / middle - 1
            turn = tl.where(kind == ROTATE, (tl.load(unit_ptr + 5 * number) * 2 - 1) * angle, 0.0)
            cos, sin = tl.cos(turn), tl.sin(turn)
            mirror = (kind == FLIP) & (tl.load(unit_ptr + 2 * number) < 0.5)
            z0, z1 = tl.load(unit_ptr + 3 * number), tl.load(unit_ptr + 4 * number)
            z0 = tl.where(kind == SCALE, 1 / zoom + z0 * (zoom - 1 / zoom), 1.0)
            z1 = tl.where(kind == SCALE, 1 / zoom + z1 * (zoom - 1 / zoom), 1.0)
            right = tl.where(kind == CROP, tl.floor(u0 * (2 * SHIFT + 1)) - SHIFT, 0.0)
            down = tl.where(kind == CROP, tl.floor(u1 * (2 * SHIFT + 1)) - SHIFT, 0.0)
            look_x = (tl.where(mirror, -z0, z0) * cos * x - sin * y + 1) * middle + right
            look_y = (sin * x + z1 * cos * y + 1) * middle + down
            left, top = tl.floor(look_x), tl.floor(look_y)
            part_x, part_y = look_x - left, look_y - top
            left, top = left.to(tl.int32), top.to(tl.int32)
            value = tl.zeros([BLOCK_C, BLOCK_P], tl.float32)
            for below in tl.static_range(2):
                for beside in tl.static_range(2):
                    at_y, at_x = top + below, left + beside
                    there = valid & (at_y >= 0) & (at_y < SIDE) & (at_x >= 0) & (at_x < SIDE)
                    share_y = part_y if below else 1 - part_y
                    share_x = part_x if beside else 1 - part_x
                    seen = tl.load(images_ptr + at_y * SIDE + at_x, mask=there, other=0.0)
                    value += seen * share_y * share_x
        else:
            value = tl.load(images_ptr + pixel, mask=valid, other=0.0)
        if COLOR >= 0:
            chosen = kind == COLOR
            value = tl.where(valid, value + tl.where(chosen, (u0 - 0.5) * brightness, 0.0), 0.0)
            grey = tl.sum(value, 0)[None, :] / CHANNELS
            value = (value - grey) * tl.where(chosen, u1 * saturation, 1.0) + grey
            value = tl.where(valid, value, 0.0)
            mean = tl.sum(tl.sum(value, 1), 0) / (CHANNELS * SIDE * SIDE)
            u2 = tl.load(unit_ptr + 2 * number)
            value = (value - mean) * tl.where(chosen, u2 + contrast, 1.0) + mean
        if CUTOUT >= 0:
            first_row = tl.floor(u0 * (SIDE + 1 - HOLE % 2)) - HOLE // 2
            first_column = tl.floor(u1 * (SIDE + 1 - HOLE % 2)) - HOLE // 2
            blank = (row >= first_row) & (row < first_row + HOLE)
            blank = blank & (column >= first_column) & (column < first_column + HOLE)
            value = tl.where(blank & (kind == CUTOUT), 0.0, value)
        out_ptr += (image * CHANNELS + channel) * SIDE * SIDE
        tl.store(out_ptr + pixel, value, mask=valid)


def augmented(
    images: Tensor, kind: Tensor, unit: Tensor, places: dict[str, int], reach: Reach
) -> Tensor:
    """The images changed by what chance gave: `Augmentation.by_chance` of images that fit.

    Args:
        images: n×c×s×s
        kind: the place of the kind that was drawn
        unit: 7×n uniform random numbers
        places: of all kinds, −1 for those that are left out
        reach: how far changes go
    """
    images = images.contiguous()
    number, channels, side = images.shape[:3]
    out = torch.empty_like(images)
    largest = side * side
    _augment_kernel[(number,)](
        images, kind, unit, out, number, reach.zoom, reach.angle, reach.brightness,
        reach.saturation, reach.contrast,
        CHANNELS=channels, SIDE=side, SHIFT=reach.shift, HOLE=reach.hole,
        WARPS=max(places[k] for k in ("crop", "flip", "scale", "rotate")) >= 0,
        BLOCK_C=triton.next_power_of_2(channels), BLOCK_P=triton.next_power_of_2(largest),
        num_warps=4 if largest <= 1024 else 8,
        **{name.upper(): place for name, place in places.items()},
    )  # fmt: skip
    return out
