"""Gaussian posteriors of linear models in closed form, and how far two posteriors are apart."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

MOST_COMPARED = 2000
"""Samples of each posterior that the MMD compares."""


class Moments(NamedTuple):
    """Weights θ of D rows and k columns; the columns are independent, N(mean[:, c], covariance)."""

    mean: Float[Tensor, "d k"]
    covariance: Float[Tensor, "d d"]


def linear_posterior(
    phi: Float[Tensor, "m d"],
    targets: Float[Tensor, "m k"],
    *,
    weight: float,
    prior: float,
    noise: float,
) -> Moments:
    """π(θ) ∝ N(θ; 0, 1/τ) Π_j N(y_j; φ_jᵀθ, σ²)^weight; differentiable.

    Σ = (τ + weight · φᵀφ/σ²)⁻¹ and mean Σ · weight · φᵀy/σ².

    Args:
        phi: features φ of the points
        targets: their targets y
        weight: how many times each point counts
        prior: precision τ
        noise: standard deviation σ
    """
    per_point = weight / noise**2
    one = torch.eye(phi.shape[1], dtype=phi.dtype)
    root = torch.linalg.cholesky(prior * one + per_point * phi.T @ phi)
    mean = torch.cholesky_solve(per_point * phi.T @ targets, root)
    return Moments(mean, torch.cholesky_inverse(root))


def sample_moments(samples: Float[Tensor, "s d"]) -> Moments:
    """Mean and covariance of samples of weights of one column.

    Args:
        samples: a row each
    """
    return Moments(samples.mean(0)[:, None], samples.T.cov())


def kl(p: Moments, q: Moments) -> Float[Tensor, ""]:
    """KL[p ‖ q] = ½ Σ_c ( tr(Σ_q⁻¹Σ_p) − D + log det Σ_q − log det Σ_p + Δ_cᵀΣ_q⁻¹Δ_c ).

    Args:
        p: the posterior under which the mean is taken
        q: the other
    """
    rows, columns = p.mean.shape
    of_p, of_q = (torch.linalg.cholesky(each.covariance) for each in (p, q))
    spread = torch.linalg.solve_triangular(of_q, of_p, upper=False).square().sum()
    away = torch.linalg.solve_triangular(of_q, p.mean - q.mean, upper=False).square().sum()
    volume = 2 * (of_q.diagonal().log().sum() - of_p.diagonal().log().sum())
    found: Tensor = (columns * (spread - rows + volume) + away) / 2
    return found


def lowest_kl(truth: Moments, prior: float, points: int) -> dict[str, float]:
    """What no coreset of this many points can be below, in both directions, for a linear model.

    Its precision is τ + A, with A of rank m at most. By the inequality of von Neumann for traces,
    the best that it can do is to have the data's m largest eigenvalues λ and τ elsewhere:

        KL[data ‖ coreset] ≥ ½ Σ_i>m ( τ/λ_i − 1 + log λ_i/τ ),
        KL[coreset ‖ data] ≥ ½ Σ_i>m ( λ_i/τ − 1 − log λ_i/τ ), for each of the k columns.

    Args:
        truth: the data's posterior
        prior: precision τ
        points: m
    """
    precisions = 1 / torch.linalg.eigvalsh(truth.covariance)  # the largest comes first
    ratio = precisions[points:] / prior
    columns = truth.mean.shape[1]
    return {
        "forward": columns * float((1 / ratio - 1 + ratio.log()).sum()) / 2,
        "reverse": columns * float((ratio - 1 - ratio.log()).sum()) / 2,
    }


def mmd(
    samples: Float[Tensor, "s d"], others: Float[Tensor, "r d"], truth: Moments
) -> Float[Tensor, ""]:
    """The squared maximum mean discrepancy, unbiased, with the kernel exp(−‖a − b‖² / 2D).

    Distances are in standard deviations of the data's posterior, of which two samples are √2D
    apart.

    Args:
        samples: of one posterior
        others: of the other
        truth: moments of the data's posterior
    """
    root = torch.linalg.cholesky(truth.covariance)
    one, other = (
        torch.linalg.solve_triangular(
            root, each[:: max(1, len(each) // MOST_COMPARED)].T, upper=False
        ).T
        for each in (samples, others)
    )

    def mean_kernel(a: Tensor, b: Tensor, *, same: bool) -> Tensor:
        kernel = (-torch.cdist(a, b).square() / (2 * a.shape[1])).exp()
        if same:  # without the pairs of a sample with itself
            return (kernel.sum() - len(a)) / (len(a) * (len(a) - 1))
        return kernel.mean()

    return (
        mean_kernel(one, one, same=True)
        + mean_kernel(other, other, same=True)
        - 2 * mean_kernel(one, other, same=False)
    )
