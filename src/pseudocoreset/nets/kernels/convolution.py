"""A 3×3 convolution without its bias, in the way that is fast on CUDA."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from .patches import patches_of


def convolved(maps: Float[Tensor, "n c h w"], layer: nn.Conv2d) -> Tensor:
    """The convolution without its bias, channels last in memory, which cuDNN is fast with.

    Of few input channels (a colour image has three) cuDNN makes little: its gradient of the weights
    took a quarter of a whole step. A product of matrices over the 3×3 patches is the same. Images
    that get a gradient themselves are left to cuDNN.
    """
    edge = int(layer.padding[0])
    if layer.in_channels >= 8 or maps.requires_grad:
        maps = maps.contiguous(memory_format=torch.channels_last)
        return F.conv2d(maps, layer.weight, padding=edge)
    kind = maps.device.type
    half = torch.is_autocast_enabled(kind)
    patches = patches_of(maps, edge, torch.get_autocast_dtype(kind) if half else maps.dtype)
    weight = layer.weight.flatten(1)
    result = F.linear(patches, F.pad(weight, [0, patches.shape[1] - weight.shape[1]]))
    height, width = (side + 2 * edge - 2 for side in maps.shape[2:])
    return result.view(len(maps), height, width, -1).permute(0, 3, 1, 2)
