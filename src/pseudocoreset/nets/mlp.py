"""MLP: hidden ReLU layers of one width under a linear head, for tables and for images."""

from itertools import pairwise
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn


class MLP(nn.Module):
    """`depth` hidden layers of `width` units; the input is flattened."""

    def __init__(self, input_shape: tuple[int, ...], outputs: int, depth: int, width: int) -> None:
        super().__init__()
        sizes = [prod(input_shape), *[width] * depth]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(width, outputs)

    def forward(self, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n outputs"]:
        """Outputs of a batch of inputs; in full precision, which costs little here."""
        with torch.autocast(inputs.device.type, enabled=False):
            return self.classifier(self.features(inputs))  # type: ignore[no-any-return]
