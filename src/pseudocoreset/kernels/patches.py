"""The 3×3 patches of images as the rows of a matrix, as one CUDA kernel."""

from typing import no_type_check

import torch
from torch import Tensor

try:
    import triton  # type: ignore[import-not-found,unused-ignore]
    from triton import language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # PyTorch's builds without CUDA come without it
    triton = None

FEWEST_COLUMNS = 32
"""What the matrix units take at once."""

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    @no_type_check
    def _patches_kernel(
        maps_ptr, patches_ptr, rows, height, width, out_height, out_width, edge,
        CHANNELS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """A block of rows: one for each pixel of the result, its columns channel by channel."""
        row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        column = tl.arange(0, COLUMNS)[None, :]
        channel = column // 9
        image = (row // (out_height * out_width))[:, None]
        y = (row // out_width % out_height)[:, None] - edge + column % 9 // 3
        x = (row % out_width)[:, None] - edge + column % 3
        exists = (row < rows)[:, None] & (channel < CHANNELS)
        there = exists & (y >= 0) & (y < height) & (x >= 0) & (x < width)
        place = ((image * CHANNELS + channel) * height + y) * width + x
        value = tl.load(maps_ptr + place, mask=there, other=0.0)
        to = patches_ptr + row[:, None] * COLUMNS + column
        tl.store(to, value.to(patches_ptr.dtype.element_ty), mask=(row < rows)[:, None])


def patches_of(maps: Tensor, edge: int, dtype: torch.dtype) -> Tensor:
    """The 3×3 patches of maps with `edge` zeros around them; columns of zeros fill up the rows.

    Args:
        maps: n×c×h×w, of few channels
        edge: the padding
        dtype: of the result
    """
    maps = maps.contiguous()
    images, channels, height, width = maps.shape
    out_height, out_width = height + 2 * edge - 2, width + 2 * edge - 2
    rows = images * out_height * out_width
    columns = max(FEWEST_COLUMNS, triton.next_power_of_2(9 * channels))
    patches = torch.empty((rows, columns), dtype=dtype, device=maps.device)
    block = 128
    _patches_kernel[(triton.cdiv(rows, block),)](
        maps, patches, rows, height, width, out_height, out_width, edge,
        CHANNELS=channels, COLUMNS=columns, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return patches
