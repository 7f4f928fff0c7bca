"""The posterior of a network's last layer, in closed form: Bayesian linear regression.

With features Φ (m×h) of the points, targets Ŷ (m×k), a prior N(0, ρ⁻¹·1) of each output's weights,
noise of precision β, c = ρ/β, K = ΦΦᵀ and G = K + c·1:

    mean at x            μ = k_xᵀ G⁻¹ Ŷ                       with k_x = Φ φ(x)
    variance at x        Σ = ρ⁻¹ (‖φ(x)‖² − k_xᵀ G⁻¹ k_x)      the same for each output
    mean of the weights  m_j = Φᵀ G⁻¹ Ŷ_j
    KL to the prior      ½ (−tr(G⁻¹K) + ρ ‖m_j‖² + log det(1 + K/c))

φ is the input of the last layer divided by √h, so that ρ and β mean the same at any width, and a 1
for the bias. Nothing here waits for the device, so it can be captured in a CUDA graph.
"""

from math import log, sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

HEAD_PRIOR = 0.03
HEAD_PRECISION = 3.0
"""Default values of ρ and β, chosen on 300 held-out training images of the digits."""


class Heads(NamedTuple):
    """Weights and biases of last layers."""

    weight: Float[Tensor, "s k h"]
    bias: Float[Tensor, "s k"]


class HeadPosterior(NamedTuple):
    """The posterior of the last layer's weights, given points; `head_posterior` makes it."""

    features: Float[Tensor, "m h"]
    """Φ"""
    targets: Float[Tensor, "m k"]
    """Ŷ"""
    factor: Float[Tensor, "m m"]
    """The lower triangle L of G = LLᵀ."""
    solved: Float[Tensor, "m k"]
    """G⁻¹ Ŷ"""
    prior: float
    """ρ"""
    precision: float
    """β"""

    def at(
        self, features: Float[Tensor, "n g"]
    ) -> tuple[Float[Tensor, "n k"], Float[Tensor, " n"]]:
        """Mean μ of each output and variance Σ at other points.

        Args:
            features: the last layer's input there
        """
        phi = as_regressors(features)
        kernel = self.features @ phi.T
        whitened = torch.linalg.solve_triangular(self.factor, kernel, upper=False)
        left = phi.square().sum(1) - whitened.square().sum(0)
        return kernel.T @ self.solved, left.clamp(min=0) / self.prior  # but for rounding

    def kl(self) -> Float[Tensor, ""]:
        """KL to the prior, summed over the outputs."""
        points, outputs = self.targets.shape
        c = self.prior / self.precision
        identity = torch.eye(points, device=self.factor.device).to(self.factor)
        inverse = torch.linalg.solve_triangular(self.factor, identity, upper=False)
        trace = points - c * inverse.square().sum()
        volume = 2 * self.factor.diagonal().log().sum() - points * log(c)
        squares = (self.features.T @ self.solved).square().sum()
        found: Tensor = (outputs * (volume - trace) + self.prior * squares) / 2
        return found

    def draw(self, number: int, generator: torch.Generator) -> Heads:
        """Draw last layers.

        W = W₀ + Φᵀ G⁻¹ (Ŷ − ΦW₀ − ε), with W₀ from the prior and ε from the noise, is a draw from
        the posterior (Matheron's rule).

        Args:
            number: how many
            generator: where the random numbers come from
        """
        (points, width), outputs = self.features.shape, self.targets.shape[1]

        def normal(rows: int, precision: float) -> Tensor:
            shape = (number, rows, outputs)
            drawn = torch.randn(shape, generator=generator, device=generator.device)
            return drawn.to(self.features) / sqrt(precision)

        start = normal(width, self.prior)
        missing = self.targets - self.features @ start - normal(points, self.precision)
        weights = start + self.features.T @ torch.cholesky_solve(missing, self.factor)
        layers = weights.transpose(1, 2)
        return Heads(layers[..., :-1] / sqrt(width - 1), layers[..., -1])


def as_regressors(features: Float[Tensor, "n g"]) -> Float[Tensor, "n h"]:
    """φ: the last layer's input divided by the root of its width, and a 1.

    Args:
        features: the last layer's input
    """
    scaled = features / sqrt(features.shape[1])
    return torch.cat([scaled, torch.ones_like(scaled[:, :1])], 1)


def head_posterior(
    features: Float[Tensor, "m g"],
    targets: Float[Tensor, "m k"],
    prior: float,
    precision: float,
    shares: Float[Tensor, " m"] | None = None,
) -> HeadPosterior:
    """The posterior of the last layer given points; differentiable in features and targets.

    Args:
        features: the last layer's input at the points
        targets: what its outputs are to be there (Ŷ)
        prior: precision of the prior of the weights (ρ)
        precision: precision of the noise of the targets (β)
        shares: what the precision of each point is multiplied by; default: 1
    """
    phi, targets = as_regressors(features), targets.to(features)
    if shares is not None:  # the same as rows of regressors and targets times the root
        roots = shares.sqrt()[:, None].to(phi)
        phi, targets = roots * phi, roots * targets
    shifted = phi @ phi.T + prior / precision * torch.eye(len(phi), device=phi.device).to(phi)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    # A matrix that is singular in this precision gives NaN, which is seen where results are used.
    factor = torch.where(failed == 0, factor, torch.nan)
    solved = torch.cholesky_solve(targets, factor)
    return HeadPosterior(phi, targets, factor, solved, prior, precision)
