"""What linear chains tend to, exactly; and moments of a posterior of two weights on a grid."""

import torch
from torch import Tensor


def stationary_covariance(transition: Tensor, noise: Tensor) -> Tensor:
    """The covariance C of z ← A z + N(0, Q) for ever: C = A C Aᵀ + Q (Lyapunov's equation)."""
    size = len(transition)
    matrix = torch.eye(size * size, dtype=torch.float64) - torch.kron(transition, transition)
    return torch.linalg.solve(matrix, noise.reshape(-1)).reshape(size, size)


def sghmc_covariance(
    curvature: Tensor, step: float, friction: float, noise_variance: float
) -> tuple[Tensor, Tensor]:
    """Cov θ and Cov v for the potential ½ θᵀHθ, with the new velocity moving θ.

    v' = (1−α)v − ηHθ + n and θ' = θ + v', so that z = (θ, v) has A = [[1 − ηH, 1−α], [−ηH, 1−α]]
    and one noise in both of its parts.
    """
    size = len(curvature)
    one = torch.eye(size, dtype=torch.float64)
    force, keep = step * curvature, (1 - friction) * one
    transition = torch.cat([torch.cat([one - force, keep], 1), torch.cat([-force, keep], 1)])
    both = torch.ones(2, 2, dtype=torch.float64)
    found = stationary_covariance(transition, noise_variance * torch.kron(both, one))
    return found[:size, :size], found[size:, size:]


def logistic_moments(
    inputs: Tensor, signs: Tensor, prior: float, temperature: float
) -> tuple[Tensor, Tensor]:
    """Mean and covariance of exp(−U/T) with U = Σ log(1 + exp(−y xᵀθ)) + τ/2 ‖θ‖², on a grid."""
    line = torch.linspace(-12, 12, 801, dtype=torch.float64)
    theta = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    losses = torch.nn.functional.softplus(-signs * (theta @ inputs.T)).sum(1)
    weights = (-(losses + prior / 2 * theta.square().sum(1)) / temperature).softmax(0)
    mean = weights @ theta
    away = theta - mean
    return mean, (weights[:, None] * away).T @ away
