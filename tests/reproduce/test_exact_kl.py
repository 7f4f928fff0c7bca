"""Gradients of both KLs by samples, beside their closed form; chains that follow a posterior."""

from dataclasses import replace

import pytest
import torch

from oracles.linear_gaussian import NOISE_VARIANCE, features, kl, posterior, weighted_posterior
from pseudocoreset import distill, load_data
from pseudocoreset.coreset import whole_data
from pseudocoreset.reproduce.small.exact_kl import Descent, along_kl, forward_loss, reverse_loss
from pseudocoreset.reproduce.small.posterior import Walkers, log_posterior

WEIGHT = 3.0
NET = "mlp:depth=1,width=3"
QUIET = {"device": "cpu", "progress": False}


def density(phi, y, weight):
    """The log of a posterior of the linear model, not normalised, for rows of weights."""

    def found(theta):
        misses = (y - theta @ phi.T).square().sum(1)
        return -weight * misses / (2 * NOISE_VARIANCE) - theta.square().sum(1) / 2

    return found


def samples(gaussian, number, generator):
    root = torch.linalg.cholesky(gaussian.covariance)
    drawn = torch.randn(number, len(root), generator=generator, dtype=root.dtype)
    return gaussian.mean + drawn @ root.T


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_gradients_are_those_of_the_closed_forms(direction):
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(6, generator=generator, dtype=torch.float64) * 4 - 2
    y = features(x) @ torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    u = x[:2].clone().requires_grad_()
    labels = (y[:2] + 0.3).requires_grad_()
    data = posterior(x, y)
    ours = weighted_posterior(features(u), labels, WEIGHT, 1.0, NOISE_VARIANCE)
    exact = kl(data, ours) if direction == "forward" else kl(ours, data)
    expected = torch.cat(torch.autograd.grad(exact, [u, labels]))

    of_coreset = density(features(u), labels, WEIGHT)
    drawn = samples(ours.detach(), 200_000, generator)
    if direction == "forward":
        loss = forward_loss(of_coreset, samples(data, 200_000, generator), drawn)
    else:
        loss = reverse_loss(of_coreset, density(features(x), y, 1.0), drawn)
    found = torch.cat(torch.autograd.grad(loss, [u, labels]))
    assert float((found - expected).norm() / expected.norm()) < 0.03


def test_chains_follow_a_posterior_that_moves():
    walkers = Walkers(torch.zeros(400, 2), torch.Generator().manual_seed(0), leaps=10)
    for middle, width in ((1.0, 0.5), (-1.0, 2.0)):

        def log_density(theta, middle=middle, width=width):
            return -((theta - middle) / width).square().sum(1) / 2

        for _ in range(60):
            walkers.walk(log_density)
        assert float(walkers.place.mean()) == pytest.approx(middle, abs=0.25 * width)
        assert float(walkers.place.std()) == pytest.approx(width, rel=0.15)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_updates_move_the_inputs_alone(direction):
    data = load_data("digits")
    start = distill(data, (), "random", ipc=1, net=NET, **QUIET)
    everything = whole_data(data, NET)
    theta = torch.randn(5, start.make_net().num_params, generator=torch.Generator().manual_seed(1))

    def made(seed):
        return along_kl(
            direction,
            start,
            log_posterior(everything, 1.0, 1.0),
            theta,
            Descent(updates=2, chains=3, warm_up=2, leaps=2),
            1.0,
            seed,
        )

    found = made(0)
    assert not torch.equal(found.inputs, start.inputs)
    assert found == made(0)
    assert found != made(1)
    assert found == replace(start, inputs=found.inputs)
