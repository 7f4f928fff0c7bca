"""A 3×3 convolution without its bias, in the way that is fast on CUDA."""

from math import gcd
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from .patches import patches_of

PIECES = 128
"""Pieces of a long sum of products: as many as large GPUs have multiprocessors."""


def convolved(maps: Float[Tensor, "n c h w"], layer: nn.Conv2d) -> Tensor:
    """The convolution without its bias, channels last in memory, which cuDNN is fast with.

    Of few input channels (a colour image has three) cuDNN makes little: its gradient of the weights
    took a quarter of a whole step. A product of matrices over the 3×3 patches is the same. Images
    that get a gradient themselves are left to cuDNN.
    """
    edge = int(layer.padding[0])
    kind = maps.device.type
    half = torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if half else maps.dtype
    if layer.in_channels >= 8 or maps.requires_grad:
        maps = maps.contiguous(memory_format=torch.channels_last)
        # In one copy what autocast and cuDNN would make in two.
        weight = layer.weight.to(dtype, memory_format=torch.channels_last)
        return F.conv2d(maps, weight, padding=edge)
    patches = patches_of(maps, edge, dtype)
    weight = layer.weight.flatten(1).to(dtype)
    weight = F.pad(weight, [0, patches.shape[1] - weight.shape[1]])
    result: Tensor = _Product.apply(patches, weight)  # type: ignore[no-untyped-call]
    height, width = (side + 2 * edge - 2 for side in maps.shape[2:])
    return result.view(len(maps), height, width, -1).permute(0, 3, 1, 2)


class _Product(torch.autograd.Function):
    """Rows times the transposed weight. The gradient of the weight, a small matrix summed over a
    hundred thousand rows, is summed in pieces: cuBLAS makes it by a few blocks of threads alone.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        return F.linear(rows, weight)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[None, Tensor]:
        (rows,) = ctx.saved_tensors
        pieces = gcd(len(rows), PIECES)
        left = outer.reshape(pieces, -1, outer.shape[1]).transpose(1, 2)
        return None, torch.bmm(left, rows.view(pieces, -1, rows.shape[1])).sum(0)
