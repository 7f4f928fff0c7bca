"""The paper's estimator stops the gradient at Ψ̂: what that leaves out, on a softmax likelihood.

Under a Gaussian likelihood a stopped Ψ̂ drops out of the gradient; under a softmax it does not, so
here is where its use is tested. The outputs are f_k(u) = φ(u)ᵀθ_k with Gaussian θ, so that
Ψ_k(u) = φ(u)ᵀΣ_kφ(u) is exact and has a gradient to be left out.

The bias. Since ∂/∂Ψ_k E log p = ½ E ∂²_k log p = −½ E p_k(1 − p_k), stopping leaves out

    ½ · 1/m Σ_jk ( E_x[p_k(1−p_k)] ∇_u Ψ_x,jk − E_u[p_k(1−p_k)] ∇_u Ψ_u,jk ).

It is of first order in Ψ̂ and goes with the difference between the posteriors: with weights of
variance 1 it is 7.3 % of the gradient in this example, with variance 0.01 (outputs that move by
0.1, of the order of those along K steps of SGD) 0.17 %.
"""

import pytest
import torch
from torch import Tensor

from oracles.softmax_quadrature import expected_nll, expected_spread
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.methods.function_space import FunctionPosterior, negative_log_likelihood

U = torch.tensor([-0.8, 0.3, 1.2], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0])
MEANS = {
    "x": torch.tensor([[0.5, -1.0], [1.0, 0.3], [-0.7, 2.0]], dtype=torch.float64),
    "u": torch.tensor([[0.2, 0.4], [1.5, -0.6], [0.1, 0.9]], dtype=torch.float64),
}
SPREADS = {"x": (0.5, 1.5), "u": (2.0, 0.7)}
"""Of the weights of each class, as multiples of a common variance."""


def outputs(side: str, u: Tensor, variance: float) -> FunctionPosterior:
    """Mean and variance of both classes' outputs, differentiable in u."""
    phi = torch.stack([torch.ones_like(u), torch.sin(2 * u), torch.exp(-u * u)], 1)
    spread = variance * torch.tensor(SPREADS[side], dtype=torch.float64)
    return FunctionPosterior(phi @ MEANS[side], phi.square().sum(1, keepdim=True) * spread)


def by_quadrature(variance: float, stopped: bool) -> Tensor:
    """∇_u of E_x −log p minus E_u −log p."""
    u = U.clone().requires_grad_()
    losses = {}
    for side in ("x", "u"):
        mean, psi = outputs(side, u, variance)
        losses[side] = expected_nll(mean, psi.detach() if stopped else psi, LABELS)
    return torch.autograd.grad(losses["x"] - losses["u"], u)[0]


def by_samples(variance: float, number: int, seed: int) -> Tensor:
    """The package's estimator, as FBPC uses it: Ψ̂ is a constant."""
    u = U.clone().requires_grad_()
    generator = torch.Generator().manual_seed(seed)
    losses = {}
    for side in ("x", "u"):
        mean, psi = outputs(side, u, variance)
        sampled = FunctionPosterior(mean, psi.detach()).sample(number, generator)
        losses[side] = negative_log_likelihood(Categorical(2), sampled, LABELS)
    return torch.autograd.grad(losses["x"] - losses["u"], u)[0]


@pytest.mark.parametrize("variance", [1.0, 0.01])
def test_estimator_has_the_expectation_that_the_equation_states(variance):
    found = by_samples(variance, 300_000, seed=0)
    expected = by_quadrature(variance, stopped=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.003 * variance**0.5)


def test_few_samples_have_the_same_expectation():
    """S = 3, averaged over many updates: the estimator is unbiased for what it estimates."""
    found = torch.stack([by_samples(1.0, 3, seed) for seed in range(300)])
    error = found.std(0) / len(found) ** 0.5
    away = (found.mean(0) - by_quadrature(1.0, stopped=True)) / error
    assert away.abs().max() < 4
    assert error.max() < 0.03


def test_variance_matters():
    """Otherwise the tests above could not fail for a wrong Ψ̂ (a missing square root, say)."""
    here, without = by_quadrature(1.0, stopped=True), by_quadrature(1e-12, stopped=True)
    assert (here - without).abs().max() > 0.05


@pytest.mark.parametrize("variance", [1.0, 0.01])
def test_bias_is_what_the_head_of_this_file_says(variance):
    u = U.clone().requires_grad_()
    left_out = torch.zeros((), dtype=torch.float64)
    for side, sign in (("x", 1), ("u", -1)):
        mean, psi = outputs(side, u, variance)
        spread = expected_spread(mean, psi).detach()
        left_out = left_out + sign * (spread * psi).sum() / (2 * len(U))
    (expected,) = torch.autograd.grad(left_out, u)
    bias = by_quadrature(variance, stopped=False) - by_quadrature(variance, stopped=True)
    torch.testing.assert_close(bias, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("variance", "share"), [(1.0, 0.0725), (0.01, 0.00165)])
def test_share_of_the_bias(variance, share):
    full, stopped = (by_quadrature(variance, stopped) for stopped in (False, True))
    assert float((full - stopped).norm() / full.norm()) == pytest.approx(share, rel=0.01)
