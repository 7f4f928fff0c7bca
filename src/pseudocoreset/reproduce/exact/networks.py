"""The models as networks that are linear in their weights."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Constant(nn.Module):
    """The same outputs for every input: the mean of a Gaussian."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(outputs))

    def forward(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, "n k"]:
        """The mean, once for each input."""
        return self.mean + 0 * inputs[:, :1]


class Logit(nn.Module):
    """Logits (0, xᵀθ + b) of two classes: logistic regression."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.line = nn.Linear(features, 1)

    def forward(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, "n 2"]:
        """Logits of both classes."""
        logit = self.line(inputs)
        return torch.cat([torch.zeros_like(logit), logit], 1)


def constant(features: int, outputs: int) -> nn.Module:  # noqa: ARG001
    """For the mean of a Gaussian."""
    return Constant(outputs)


def linear(features: int, outputs: int) -> nn.Module:
    """For linear regression."""
    return nn.Linear(features, outputs)


def logit(features: int, outputs: int) -> nn.Module:  # noqa: ARG001
    """For logistic regression."""
    return Logit(features)
