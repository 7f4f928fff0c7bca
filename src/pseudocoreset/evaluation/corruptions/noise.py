"""Noise: each pixel on its own."""

import torch
from jaxtyping import Float64
from torch import Tensor

from pseudocoreset.evaluation.corruptions.draws import Draws

Images = Float64[Tensor, "n c h w"]


def gaussian_noise(x: Images, draws: Draws, std: float) -> Images:
    """x + std·ε."""
    return x + std * draws.normal(*x.shape[1:])


def shot_noise(x: Images, draws: Draws, rate: float) -> Images:
    """Poisson(rate·x) / rate."""
    return draws.poisson(x * rate) / rate


def impulse_noise(x: Images, draws: Draws, amount: float) -> Images:
    """A share `amount` of the values becomes 0 or 1, each with probability ½."""
    hit = draws.uniform(0, 1, *x.shape[1:]) <= amount
    white = draws.uniform(0, 1, *x.shape[1:]) <= 0.5
    return torch.where(hit, white.double(), x)


def speckle_noise(x: Images, draws: Draws, std: float) -> Images:
    """x + x·std·ε."""
    return x + x * std * draws.normal(*x.shape[1:])
