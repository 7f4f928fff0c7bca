"""2×2 average pooling as a product of matrices."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

WIDEST = 64
"""Maps wider than that are not pooled by a product."""


class HalvingPool(nn.AvgPool2d):
    """2×2 average pooling; on a CPU as a product of matrices, which is several times faster.

    Two rows of a map after another are one row of a matrix. Its product with another one, a quarter
    at the four pixels of each mean, wastes operations, the more the wider the maps are, but not
    the processor's time: PyTorch's own pooling there takes as long as a convolution.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c half_h half_w"]:
        """The mean of every four pixels."""
        *first, height, width = maps.shape
        if maps.device.type != "cpu" or height % 2 or width % 2 or width > WIDEST:
            return super().forward(maps)
        quarters = torch.eye(width // 2, dtype=maps.dtype) / 4
        product = maps.reshape(-1, 2 * width) @ quarters.repeat_interleave(2, 0).repeat(2, 1)
        return product.view(*first, height // 2, width // 2)
