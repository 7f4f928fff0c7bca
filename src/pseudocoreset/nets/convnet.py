"""ConvNet: equal blocks of convolution, norm, ReLU and average pooling under a linear head."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pseudocoreset.kernels.convolution import convolved
from pseudocoreset.kernels.halving_pool import HalvingPool
from pseudocoreset.kernels.norm_relu_pool import can_fuse, norm_relu_pool

from .geometry import extra_padding, padded_side, pooled_side
from .norms import Norm


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
            f"{side.bit_length() - 1}, not {depth}."
        )
        layers: list[nn.Module] = []
        self.fused = norm.name == "instance"
        """Whether all blocks are kernels of our own on CUDA."""
        for block in range(depth):
            self.fused &= can_fuse(width, side)
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
        block = _fused if self.fused and _on_cuda(images) else _plain
        for first in range(0, len(self.features), 4):
            maps = block(maps, *(self.features[first + i] for i in range(4)))
        # The head costs nothing and the logits decide: in full precision, whatever the maps are in.
        with torch.autocast(images.device.type, enabled=False):
            features = maps.flatten(1).to(self.classifier.weight.dtype)
            return self.classifier(features)  # type: ignore[no-any-return]


def _on_cuda(images: Tensor) -> bool:
    """Whether the kernels take images like these."""
    return images.is_cuda and images.dtype != torch.float64


def _fused(maps: Tensor, convolution: Any, norm: Any, *_: nn.Module) -> Tensor:
    # An instance norm takes away whatever a convolution's bias adds.
    return norm_relu_pool(convolved(maps, convolution), norm.weight, norm.bias)


def _plain(maps: Tensor, *layers: nn.Module) -> Tensor:
    for layer in layers:
        maps = layer(maps)
    return maps
