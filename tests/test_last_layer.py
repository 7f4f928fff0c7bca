"""The last layer's posterior by a kernel against the direct one, and what is drawn from it."""

import pytest
import torch

from oracles.last_layer import (
    direct_posterior,
    kl_to_prior,
    regressors,
    soft_targets,
    values_at,
)
from pseudocoreset.last_layer import as_regressors, head_posterior
from pseudocoreset.likelihoods import Categorical, Gaussian

SIZES = {"fewer points": (4, 7), "more points": (9, 5)}


def made(points, width, outputs=3, others=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(points)
    shapes = [(points, width), (points, outputs), (others, width)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("prior", "precision"), [(1.0, 1.0), (0.05, 3.0), (4.0, 0.5)])
def test_mean_variance_and_kl_equal_the_direct_ones(size, prior, precision):
    features, targets, others = made(*SIZES[size])
    posterior = head_posterior(features, targets, prior, precision)
    direct = direct_posterior(features, targets, prior, precision)
    mean, variance = posterior.at(others)
    expected_mean, expected_variance = values_at(direct, others)
    torch.testing.assert_close(mean, expected_mean)
    torch.testing.assert_close(variance, expected_variance)
    assert float(variance.min()) > 0
    torch.testing.assert_close(posterior.kl(), kl_to_prior(direct, prior))


@pytest.mark.parametrize("size", SIZES)
def test_points_that_count_often_are_points_repeated(size):
    features, targets, others = made(*SIZES[size])
    times = torch.arange(len(features)) % 4
    shares = times / 2  # of the precision 1
    posterior = head_posterior(features, targets, 0.3, 1.0, shares)
    repeated = (part.repeat_interleave(times, 0) for part in (features, targets))
    direct = direct_posterior(*repeated, 0.3, 0.5)
    for found, expected in zip(posterior.at(others), values_at(direct, others), strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(posterior.kl(), kl_to_prior(direct, 0.3))


def test_single_precision_is_enough_at_the_usual_settings():
    """Many alike features of one sign, as ReLU gives them, and little noise."""
    features, targets, others = made(200, 512, others=50)
    features, others = (part.abs() * 0.1 + 0.5 for part in (features, others))
    exact = head_posterior(features, targets, 0.01, 10.0)
    short = head_posterior(features.float(), targets.float(), 0.01, 10.0)
    for one, other in zip(short.at(others.float()), exact.at(others), strict=True):
        scale = float(other.abs().max())
        torch.testing.assert_close(one.double(), other, rtol=0, atol=0.01 * scale)
    assert float(short.kl()) == pytest.approx(float(exact.kl()), rel=1e-4)


def test_gradients_equal_finite_differences():
    features, targets, others = made(4, 5)

    def value(features, targets):
        posterior = head_posterior(features, targets, 0.3, 2.0)
        mean, variance = posterior.at(others)
        return (mean / (1 + variance)[:, None]).sin().sum() + posterior.kl()

    leaves = [part.requires_grad_() for part in (features, targets)]
    assert torch.autograd.gradcheck(value, leaves)


def test_drawn_heads_have_the_posteriors_moments():
    features, targets, _ = made(4, 3, outputs=2)
    prior, precision, number = 0.5, 2.0, 200_000
    direct = direct_posterior(features, targets, prior, precision)
    posterior = head_posterior(features, targets, prior, precision)
    drawn = posterior.draw(number, torch.Generator().manual_seed(0))
    scale = features.shape[1] ** 0.5  # the features that a network has are not divided by it
    weights = torch.cat([drawn.weight * scale, drawn.bias[..., None]], 2)
    torch.testing.assert_close(weights.mean(0), direct.mean.T, rtol=0, atol=0.02)
    for output in range(2):
        found = weights[:, output].T.cov()
        torch.testing.assert_close(found, direct.covariance, rtol=0, atol=0.02)
    between = torch.cat([weights[:, 0], weights[:, 1]], 1).T.cov()[:4, 4:]
    torch.testing.assert_close(between, torch.zeros_like(between), rtol=0, atol=0.02)
    # The outputs that a network gives with a drawn layer.
    outputs = features @ drawn.weight.transpose(1, 2) + drawn.bias[:, None]
    mean, variance = posterior.at(features)
    torch.testing.assert_close(outputs.mean(0), mean, rtol=0, atol=0.02)
    spread = outputs.var(0)
    torch.testing.assert_close(spread, variance[:, None].expand_as(spread), rtol=0.02, atol=0.0)


def test_mean_softmax_of_drawn_heads_is_near_the_probit_formula():
    features, targets, others = made(6, 5)
    posterior = head_posterior(features, 3 * targets, 0.2, 1.0)
    drawn = posterior.draw(20_000, torch.Generator().manual_seed(0))
    outputs = others @ drawn.weight.transpose(1, 2) + drawn.bias[:, None]
    averaged = outputs.softmax(2).mean(0)
    likelihood = Categorical(3)
    mean, variance = posterior.at(others)
    formula = torch.stack(
        [
            (-likelihood.nll_of_gaussian(mean, variance, torch.full((len(others),), c))).exp()
            for c in range(3)
        ],
        1,
    )
    away, without = ((each - averaged).abs().mean() for each in (formula, mean.softmax(1)))
    assert float(away) < 0.03
    assert float(without) > 3 * float(away)


def test_singular_matrix_gives_nan():
    features = torch.ones(300, 4)
    posterior = head_posterior(features, torch.ones(300, 2), 1e-30, 1.0)
    assert posterior.kl().isnan()
    assert posterior.at(features)[0].isnan().all()


def test_regressors_do_not_grow_with_the_width():
    features = torch.randn(2, 5)
    torch.testing.assert_close(as_regressors(features), regressors(features))
    wide = torch.cat([features] * 4, 1)
    one, other = (part @ part.T for part in (as_regressors(features), as_regressors(wide)))
    torch.testing.assert_close(one, other)


def test_classes_and_probabilities_become_centred_log_probabilities():
    likelihood, classes = Categorical(4), torch.tensor([2, 0])
    rows = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.2, 0.3, 0.4, 0.1]], dtype=torch.float64)
    for targets in (classes, rows):
        found = likelihood.regression_targets(targets).double()
        torch.testing.assert_close(found, soft_targets(targets, 4), rtol=0, atol=1e-5)
        torch.testing.assert_close(found.sum(1), torch.zeros(2).double(), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.softmax(1), rows)
    none = likelihood.regression_targets(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    assert none.isfinite().all()
    numbers = torch.randn(3, 2)
    assert torch.equal(Gaussian(2).regression_targets(numbers), numbers)


@pytest.mark.parametrize("likelihood", [Categorical(3), Gaussian(3, noise=0.4)])
def test_outputs_without_variance_have_the_usual_loss(likelihood):
    mean, _, _ = made(4, 3)
    targets = torch.tensor([0, 2, 1, 1]) if isinstance(likelihood, Categorical) else mean + 0.3
    found = likelihood.nll_of_gaussian(mean, torch.zeros(4).double(), targets)
    torch.testing.assert_close(found, likelihood.losses(mean, targets))


def test_normal_outputs_have_the_loss_of_their_mixture():
    """Exact for regression: the density of many draws, averaged."""
    likelihood, mean = Gaussian(2, noise=0.5), torch.tensor([[0.3, -1.0]], dtype=torch.float64)
    targets = torch.tensor([[0.9, -0.4]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(400_000, 1, 2, generator=generator, dtype=torch.float64)
    mixed = likelihood.nll_of_mixture(mean + 0.7 * noise, targets)
    found = likelihood.nll_of_gaussian(mean, torch.tensor([0.49]).double(), targets)
    torch.testing.assert_close(found, mixed, rtol=0, atol=0.01)
