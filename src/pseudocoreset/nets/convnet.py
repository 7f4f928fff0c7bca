"""ConvNet: equal blocks of convolution, norm, ReLU and average pooling under a linear head."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from .fused import can_fuse, norm_relu_pool
from .geometry import extra_padding, padded_side, pooled_side
from .norms import Norm

WIDEST = 64
"""Maps wider than that are not pooled by a product."""


def default_depth(image_size: int) -> int:
    """Number of blocks that the field uses for a size: 2 below 28, 3 from there on, 4 from 64."""
    if image_size < 28:
        return 2
    return 3 if image_size < 64 else 4


class ConvNet(nn.Module):
    """`depth` blocks of 3×3 convolution, norm, ReLU, 2×2 average pooling; then a linear head."""

    def __init__(
        self, channels: int, image_size: int, classes: int, depth: int, width: int, norm: Norm
    ) -> None:
        super().__init__()
        side = padded_side(image_size)
        advice = (
            f"convnet at {image_size}×{image_size} takes a depth of at most "
            f"{side.bit_length() - 1}, not {depth}: use fewer layers or larger images"
        )
        layers: list[nn.Module] = []
        for block in range(depth):
            padding = 1 + extra_padding(image_size) if block == 0 else 1
            layers += [
                nn.Conv2d(channels if block == 0 else width, width, 3, padding=padding),
                norm.layer(width, side, advice),
                nn.ReLU(),
                HalvingPool(),
            ]
            side = pooled_side(side, advice)
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(width * side * side, classes)

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Logits of a batch of images."""
        maps = images
        for first in range(0, len(self.features), 4):
            maps = _block(maps, *(self.features[first + i] for i in range(4)))
        # The head costs nothing and the logits decide: in full precision, whatever the maps are in.
        with torch.autocast(images.device.type, enabled=False):
            features = maps.flatten(1).to(self.classifier.weight.dtype)
            return self.classifier(features)  # type: ignore[no-any-return]


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


def _block(maps: Tensor, convolution: Any, norm: Any, relu: nn.Module, pool: nn.Module) -> Tensor:
    side = maps.shape[-1] + 2 * (convolution.padding[0] - 1)
    if _one_channel_a_group(norm) and can_fuse(maps, norm.num_channels, side):
        # Such a norm takes away whatever a convolution's bias adds.
        return norm_relu_pool(_convolved(maps, convolution), norm.weight, norm.bias)
    return pool(relu(norm(convolution(maps))))  # type: ignore[no-any-return]


def _one_channel_a_group(norm: nn.Module) -> bool:
    return isinstance(norm, nn.GroupNorm) and norm.num_groups == norm.num_channels


def _convolved(maps: Float[Tensor, "n c h w"], layer: nn.Conv2d) -> Tensor:
    """The convolution without its bias, channels last in memory, which cuDNN is fast with.

    Of few input channels (a colour image has three) cuDNN makes little: its gradient of the weights
    took a quarter of a whole step. A product of matrices over the 3×3 patches is the same. Images
    that get a gradient themselves are left to cuDNN.
    """
    edge = int(layer.padding[0])
    if layer.in_channels >= 8 or maps.requires_grad:
        maps = maps.contiguous(memory_format=torch.channels_last)
        return F.conv2d(maps, layer.weight, padding=edge)
    patches = F.pad(maps, [edge] * 4).unfold(2, 3, 1).unfold(3, 3, 1)
    images, channels, height, width = patches.shape[:4]
    patches = patches.permute(0, 2, 3, 1, 4, 5).reshape(images * height * width, channels * 9)
    fill = [0, -channels * 9 % 32]  # to what the matrix units take at once
    result = F.linear(F.pad(patches, fill), F.pad(layer.weight.flatten(1), fill))
    return result.view(images, height, width, -1).permute(0, 3, 1, 2)
