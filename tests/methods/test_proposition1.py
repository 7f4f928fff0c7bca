"""Proposition 1 on a linear-Gaussian model, where both sides of it are known.

    ∇_u KL[ν_x ‖ ν_u] = −∇_u E_{[ν_x]_u} log p(ỹ | f_u) + E_{[ν_u]_u} ∇_u log p(ỹ | f_u)

The likelihood is a product over points, so of the joint Gaussian of f_u only its marginals count:
a `FunctionPosterior`, which has a diagonal covariance, loses nothing.
"""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from oracles.linear_gaussian import (
    NOISE_VARIANCE,
    Gaussian,
    expected_log_likelihood,
    features,
    function_values,
    kl,
    log_evidence,
    log_likelihood,
    posterior,
)
from pseudocoreset.methods.function_space import FunctionPosterior

POINTS = 4


def world() -> tuple[Gaussian, Tensor, Tensor]:
    """ν_x from 60 real points, and a coreset that is far from good."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(60, generator=generator, dtype=torch.float64) * 4 - 2
    noise = torch.randn(60, generator=generator, dtype=torch.float64)
    y = features(x) @ torch.tensor([0.5, -1.0, 2.0]).double() + NOISE_VARIANCE**0.5 * noise
    u = torch.tensor([-1.3, -0.2, 0.4, 1.1]).double()
    labels = torch.tensor([0.3, 1.9, 0.2, -0.4]).double()
    return posterior(x, y), u, labels


def closed_form_gradient(nu_x: Gaussian, u: Tensor, labels: Tensor) -> Tensor:
    leaf = u.clone().requires_grad_()
    return torch.autograd.grad(kl(nu_x, posterior(leaf, labels)), leaf)[0]


def proposition(nu_x: Gaussian, u: Tensor, labels: Tensor) -> Tensor:
    """The right-hand side, expectations in closed form.

    In the second term the gradient is inside of the expectation: θ keeps the distribution that u
    gave it, and only the point at which f is looked at moves.
    """
    nu_u = posterior(u, labels).detach()
    leaf = u.clone().requires_grad_()
    first = -expected_log_likelihood(nu_x, leaf, labels)
    second = expected_log_likelihood(nu_u, leaf, labels)
    return torch.autograd.grad(first + second, leaf)[0]


def test_proposition_is_the_gradient_of_the_closed_form_kl():
    nu_x, u, labels = world()
    expected = closed_form_gradient(nu_x, u, labels)
    assert expected.abs().min() > 0.1  # a gradient that a wrong formula would not meet by chance
    torch.testing.assert_close(proposition(nu_x, u, labels), expected, rtol=1e-10, atol=1e-10)


def test_proposition_is_the_finite_difference_of_the_kl():
    nu_x, u, labels = world()
    width = 1e-5
    steps = width * torch.eye(POINTS, dtype=torch.float64)
    slopes = [
        (kl(nu_x, posterior(u + s, labels)) - kl(nu_x, posterior(u - s, labels))) / (2 * width)
        for s in steps
    ]
    found = proposition(nu_x, u, labels)
    torch.testing.assert_close(found, torch.stack(slopes), rtol=1e-7, atol=1e-7)


def test_second_term_is_the_gradient_of_the_log_evidence():
    """The step of the proof that is easy to get wrong: E_{ν_u} ∇ log p = ∇ log p(ỹ | u)."""
    _, u, labels = world()
    leaf = u.clone().requires_grad_()
    (evidence,) = torch.autograd.grad(log_evidence(leaf, labels), leaf)
    inside = torch.autograd.grad(
        expected_log_likelihood(posterior(u, labels).detach(), leaf, labels), leaf
    )[0]
    outside = torch.autograd.grad(
        expected_log_likelihood(posterior(leaf, labels), leaf, labels), leaf
    )[0]
    torch.testing.assert_close(inside, evidence, rtol=1e-10, atol=1e-10)
    assert (outside - evidence).abs().max() > 0.1


def sampled_values(weights: Gaussian, u: Tensor, seed: int) -> Tensor:
    """f_u by `FunctionPosterior`, with the gradient through its mean and its variance."""
    mean, variance = function_values(weights, u)
    values = FunctionPosterior(mean[:, None], variance[:, None])
    return values.sample(400_000, torch.Generator().manual_seed(seed)).squeeze(2)


def test_samples_of_function_posteriors_give_the_gradient():
    nu_x, u, labels = world()
    nu_u = posterior(u, labels).detach()
    leaf = u.clone().requires_grad_()
    of_data = -log_likelihood(labels, sampled_values(nu_x, leaf, seed=1)).mean()
    of_coreset = log_likelihood(labels, sampled_values(nu_u, leaf, seed=2)).mean()
    (found,) = torch.autograd.grad(of_data + of_coreset, leaf)
    expected = closed_form_gradient(nu_x, u, labels)
    torch.testing.assert_close(found, expected, rtol=0.01, atol=0.02)


def test_brute_force_over_weights_gives_the_gradient():
    """No marginals, no reparametrisation of f: θ is drawn from both posteriors."""
    nu_x, u, labels = world()
    leaf = u.clone().requires_grad_()
    generator = torch.Generator().manual_seed(4)
    total = torch.zeros((), dtype=torch.float64)
    for sign, nu in ((-1, nu_x), (1, posterior(u, labels).detach())):
        noise = torch.randn(400_000, 3, generator=generator, dtype=torch.float64)
        theta = nu.mean + noise @ torch.linalg.cholesky(nu.covariance).T
        total = total + sign * log_likelihood(labels, theta @ features(leaf).T).mean()
    (found,) = torch.autograd.grad(total, leaf)
    expected = closed_form_gradient(nu_x, u, labels)
    torch.testing.assert_close(found, expected, rtol=0.01, atol=0.02)


def test_descent_drives_the_kl_down():
    nu_x, u, labels = world()
    values = []
    for _ in range(400):
        values.append(float(kl(nu_x, posterior(u, labels))))
        u = u - 0.001 * proposition(nu_x, u, labels)
    assert all(after < before for before, after in pairwise(values))
    assert values[-1] < 0.7 * values[0]


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_stopped_variance_drops_out_under_a_gaussian_likelihood(scale):
    """So this model can't test Ψ̂; `test_stop_gradient_bias` does, on a softmax."""
    nu_x, u, labels = world()
    leaf = u.clone().requires_grad_()
    mean, variance = function_values(nu_x, leaf)
    generator = torch.Generator().manual_seed(5)
    stopped = FunctionPosterior(mean[:, None], scale * variance.detach()[:, None])
    noise = stopped.sample(100_000, generator).squeeze(2)
    noise = noise - noise.mean(0).detach() + mean.detach()  # what is left of the noise's mean
    (found,) = torch.autograd.grad(log_likelihood(labels, noise).mean(), leaf)
    (alone,) = torch.autograd.grad(log_likelihood(labels, function_values(nu_x, leaf)[0]), leaf)
    torch.testing.assert_close(found, alone, rtol=1e-9, atol=1e-9)


def stopped_and_missing(nu_x: Gaussian, u: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient with both variances stopped, and ½ Σ_j ∇ (Ψ_x − Ψ_u)_j / σ², left out by it."""
    nu_u = posterior(u, labels).detach()
    leaf = u.clone().requires_grad_()
    (mean_x, variance_x), (mean_u, variance_u) = (function_values(n, leaf) for n in (nu_x, nu_u))
    means = log_likelihood(labels, mean_u) - log_likelihood(labels, mean_x)
    variances = (variance_x - variance_u).sum() / (2 * NOISE_VARIANCE)
    (stopped,) = torch.autograd.grad(means, leaf, retain_graph=True)
    return stopped, torch.autograd.grad(variances, leaf)[0]


def test_stopping_the_variance_biases_the_gradient():
    """By 3.6 % here, far from the minimum."""
    nu_x, u, labels = world()
    stopped, missing = stopped_and_missing(nu_x, u, labels)
    expected = closed_form_gradient(nu_x, u, labels)
    torch.testing.assert_close(stopped + missing, expected, rtol=1e-10, atol=1e-10)
    assert float(missing.norm() / expected.norm()) == pytest.approx(0.036, abs=0.001)


def test_stopped_estimator_comes_to_rest_beside_the_minimum():
    """At a KL of 3.90 where 3.87 can be had."""
    nu_x, u, labels = world()
    full, stopped = u, u
    for _ in range(800):
        full = full - 0.001 * proposition(nu_x, full, labels)
        stopped = stopped - 0.001 * stopped_and_missing(nu_x, stopped, labels)[0]
    at_full, at_stopped = (float(kl(nu_x, posterior(v, labels))) for v in (full, stopped))
    assert closed_form_gradient(nu_x, full, labels).norm() < 0.05
    assert stopped_and_missing(nu_x, full, labels)[0].norm() > 1.0
    assert at_full + 0.02 < at_stopped < at_full + 0.04
