"""The predictive temperature: against a fine grid, and what it does to the scores."""

import math

import pytest
import torch

from pseudocoreset.evaluation.calibration import HIGHEST, LOWEST, fitted_temperature, tempered
from pseudocoreset.evaluation.metrics import negative_log_likelihood, predictive


def made(sure: float, seed: int = 0, points: int = 400, classes: int = 5):
    """Predictions that are right half of the time, `sure` times as sure as they should be."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(points, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return (sure * logits).log_softmax(1), labels


def by_grid(log_mean, labels):
    """The slow twin: every T on a fine grid, and the lowest of their NLLs."""
    grid = torch.linspace(math.log(LOWEST), math.log(HIGHEST), 6001, dtype=torch.float64).exp()
    found = []
    for temperature in grid.tolist():
        shares = log_mean.exp() ** (1 / temperature)
        own = (shares / shares.sum(1, keepdim=True)).gather(1, labels[:, None])
        found.append(float(-own.log().mean()))
    place = min(range(len(found)), key=found.__getitem__)
    return float(grid[place]), found[place]


@pytest.mark.parametrize("sure", [0.2, 1.0, 4.0])
def test_fitted_temperature_is_the_best_of_a_fine_grid(sure):
    log_mean, labels = made(sure)
    found = fitted_temperature(log_mean, labels)
    best, nll = by_grid(log_mean, labels)
    assert found == pytest.approx(best, rel=2e-3)
    assert negative_log_likelihood(tempered(log_mean, found), labels) <= nll + 1e-12
    assert found == pytest.approx(sure, rel=0.25)  # they are sampled as sure as 1 says


def test_temperature_keeps_the_class_and_sums_to_one():
    log_mean, _ = made(2.0)
    for temperature in (0.3, 1.0, 5.0):
        shares = tempered(log_mean, temperature).exp()
        torch.testing.assert_close(shares.sum(1), torch.ones(400, dtype=torch.float64))
        assert torch.equal(shares.argmax(1), log_mean.argmax(1))
    torch.testing.assert_close(tempered(log_mean, 1.0), log_mean)
    square = log_mean.exp().square()
    torch.testing.assert_close(tempered(log_mean, 0.5).exp(), square / square.sum(1, keepdim=True))


def test_ends_of_the_search_are_given_where_nothing_is_lowest():
    log_mean, _ = made(1.0)
    always_right = fitted_temperature(log_mean, log_mean.argmax(1))
    assert always_right == pytest.approx(LOWEST, rel=1e-6)
    always_wrong = fitted_temperature(log_mean, log_mean.argmin(1))
    assert always_wrong == pytest.approx(HIGHEST, rel=1e-6)


def test_probabilities_of_zero_do_no_harm():
    log_mean = torch.tensor([[0.0, -torch.inf], [-0.1, -2.3522]], dtype=torch.float64)
    labels = torch.tensor([0, 1])
    assert math.isfinite(fitted_temperature(log_mean, labels))
    pooled = predictive(torch.stack([log_mean, log_mean]))
    assert math.isfinite(fitted_temperature(pooled, labels))
