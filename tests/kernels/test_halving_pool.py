"""Pooling by a product of matrices against PyTorch's own."""

import pytest
import torch
from torch import nn

from pseudocoreset.kernels.halving_pool import HalvingPool


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 5, 4, 2), (2, 3, 2, 64)])
def test_pooling_by_a_product_is_pytorchs(shape):
    """Values, gradients, and gradients of these."""
    generator = torch.Generator().manual_seed(0)
    maps, weight = (torch.randn(shape, generator=generator).double() for _ in range(2))
    found = []
    for pool in (HalvingPool(), nn.AvgPool2d(2)):
        leaf = maps.clone().requires_grad_()
        pooled = pool(leaf)
        (slope,) = torch.autograd.grad((pooled**3).sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad((slope * weight).sum(), leaf)
        found.append((pooled, slope, second))
    for ours, theirs in zip(*found, strict=True):
        assert theirs.abs().max() > 0.01
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(2, 3, 7, 8), (2, 3, 8, 7), (1, 1, 2, 66)])
def test_other_maps_are_left_to_pytorch(shape):
    maps = torch.randn(shape)
    assert torch.equal(HalvingPool()(maps), nn.AvgPool2d(2)(maps))


def test_maps_with_their_channels_last_are_pooled_alike():
    maps = torch.randn(2, 3, 8, 8)
    last = maps.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(HalvingPool()(last), nn.AvgPool2d(2)(maps))
