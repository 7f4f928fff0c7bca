"""Instance norm and ConvNet's forward pass in plain loops, from their definitions."""

from collections.abc import Mapping

import torch
from torch import Tensor


def slow_instance_norm(maps: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Each image's each channel to mean 0 and variance 1 (biased), then scaled and shifted."""
    out = torch.empty_like(maps)
    for image in range(maps.shape[0]):
        for channel in range(maps.shape[1]):
            values = maps[image, channel]
            mean = values.sum() / values.numel()
            variance = ((values - mean) ** 2).sum() / values.numel()
            standard = (values - mean) / (variance + eps) ** 0.5
            out[image, channel] = standard * weight[channel] + bias[channel]
    return out


def slow_convolution(maps: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """Each output pixel is the sum of the kernel times the patch around it, plus the bias."""
    count, channels, height, width = maps.shape
    padded = maps.new_zeros(count, channels, height + 2 * padding, width + 2 * padding)
    padded[:, :, padding : padding + height, padding : padding + width] = maps
    kernel = weight.shape[-1]
    rows, columns = padded.shape[2] - kernel + 1, padded.shape[3] - kernel + 1
    out = maps.new_empty(count, weight.shape[0], rows, columns)
    for row in range(rows):
        for column in range(columns):
            patch = padded[:, None, :, row : row + kernel, column : column + kernel]
            out[:, :, row, column] = (patch * weight).sum(dim=(2, 3, 4)) + bias
    return out


def slow_average_pool(maps: Tensor) -> Tensor:
    """The mean of each 2×2 square; an odd last row or column is left out."""
    height, width = maps.shape[2] // 2 * 2, maps.shape[3] // 2 * 2
    corners = [maps[:, :, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]
    return sum(corners, start=torch.zeros_like(corners[0])) / 4


def slow_convnet(params: Mapping[str, Tensor], images: Tensor) -> Tensor:
    """ConvNet with instance norm; its parameters are taken in their order, not by their names."""
    tensors = list(params.values())
    maps = images
    for layer in range((len(tensors) - 2) // 4):
        weight, bias, scale, shift = tensors[4 * layer : 4 * layer + 4]
        padding = 3 if layer == 0 and images.shape[-1] == 28 else 1
        maps = slow_convolution(maps, weight, bias, padding)
        maps = slow_average_pool(slow_instance_norm(maps, scale, shift).clamp(min=0))
    return maps.reshape(len(images), -1) @ tensors[-2].T + tensors[-1]
