"""What networks predict for many images."""

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.data import Normalisation, Split
from pseudocoreset.nets import Net, Weights

TEST_BATCH = 1000  # images a forward pass; with batch statistics, also what they are taken over


@torch.no_grad()
def logits_of(
    net: Net, weights: Weights, images: Tensor, normalisation: Normalisation
) -> Float[Tensor, "n k"]:
    """The network's outputs at many images, given as bytes, a batch at a time."""
    starts = range(0, len(images), TEST_BATCH)
    parts = (images[start : start + TEST_BATCH] for start in starts)
    return torch.cat([net.apply(weights, normalisation.apply(part)) for part in parts])


def accuracy(net: Net, weights: Weights, split: Split, normalisation: Normalisation) -> float:
    """The share of images that one network classifies correctly."""
    predicted = logits_of(net, weights, split.images, normalisation).argmax(1)
    return float((predicted == split.labels).float().mean())
