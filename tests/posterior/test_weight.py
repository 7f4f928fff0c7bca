"""How often each point counts: the weighted posterior of a linear regression is known exactly."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from oracles.linear_gaussian import weighted_posterior
from pseudocoreset import SGHMC, Pseudocoreset, sample
from pseudocoreset.coreset import Provenance
from pseudocoreset.data import Scaling
from pseudocoreset.likelihoods import Gaussian

POINTS, FEATURES, COPIES = 6, 2, 300
NOISE, PRIOR = 0.5, 2.0


def linear(features: int, outputs: int) -> nn.Module:
    return nn.Linear(features, outputs)


def made_coreset():
    """One regression `COPIES` times over: each column of weights is a chain of its own."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(POINTS, FEATURES, generator=generator) + 0.5
    targets = inputs @ torch.tensor([1.5, -1.0]) + 0.7
    targets += NOISE * torch.randn(POINTS, generator=generator)
    made = Provenance("made", "test_weight:linear", "made", "", 0, 0)
    return Pseudocoreset(
        inputs,
        targets[:, None].expand(-1, COPIES).contiguous(),
        (),
        Scaling((0.0,) * FEATURES, (1.0,) * FEATURES),
        "off",
        made,
        likelihood=Gaussian(COPIES, NOISE),
        target_scaling=Scaling((0.0,) * COPIES, (1.0,) * COPIES),
    )


def moments(weight):
    """Of the bias and the weights of all columns, after the first samples of a chain."""
    chain = {"step": 0.02, "friction": 0.2, "epochs": 3000, "every": 30, "dsa": "off"}
    posterior = sample(
        made_coreset(),
        SGHMC(**chain, temperature=1.0, prior=PRIOR),
        chains=1,
        weight=weight,
        net=linear,
        device="cpu",
        progress=False,
    )
    kept = posterior.params[len(posterior) // 5 :].double()
    slopes, bias = kept.split([COPIES * FEATURES, COPIES], 1)
    slopes = slopes.reshape(-1, COPIES, FEATURES)
    theta = torch.cat([bias[:, :, None], slopes], 2).reshape(-1, FEATURES + 1)
    return theta.mean(0), theta.T.cov()


@pytest.mark.parametrize("weight", [1.0, 8.0])
def test_samples_have_the_moments_of_the_weighted_posterior(weight):
    coreset = made_coreset()
    phi = torch.cat([torch.ones(POINTS, 1), coreset.inputs], 1).double()
    y = coreset.targets[:, 0].double()
    exact = weighted_posterior(phi, y, weight, PRIOR, NOISE**2)
    mean, covariance = moments(weight)
    spread = exact.covariance.diag().sqrt()
    scale = spread[:, None] * spread
    assert float(((mean - exact.mean) / spread).abs().max()) < 0.03
    assert float(((covariance - exact.covariance) / scale).abs().max()) < 0.05
    other = weighted_posterior(phi, y, 9 - weight, PRIOR, NOISE**2)  # the test tells them apart
    assert float(((mean - other.mean) / spread).abs().max()) > 0.1


def test_warns_of_points_that_count_once_at_temperature_1():
    coreset = made_coreset()
    coreset = replace(coreset, provenance=replace(coreset.provenance, num_train=48))
    how = {"chains": 1, "net": linear, "device": "cpu", "progress": False}
    hot = SGHMC(epochs=1, every=1, temperature=1.0)
    with pytest.warns(RuntimeWarning, match="Give `weight` 8 for the posterior of the 48"):
        sample(coreset, hot, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(coreset, hot, weight=1.0, **how)
        sample(coreset, replace(hot, temperature=1e-6), **how)
        sample(made_coreset(), hot, **how)
