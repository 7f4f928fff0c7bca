"""The posterior of a small network by Hamiltonian Monte Carlo."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.engine.random import Rng
from pseudocoreset.evaluation.convergence import LIMIT, effective_size, r_hat
from pseudocoreset.evaluation.evaluate import predictions
from pseudocoreset.evaluation.metrics import Predicted, PredictedNumbers
from pseudocoreset.nets import Weights
from pseudocoreset.reproduce.exact.hmc import LogDensity, at, hmc_step

ACCEPTED = 0.8
"""The share of accepted steps that the step size is moved to."""
FIRST_STEP = 0.01


@dataclass(frozen=True)
class Effort:
    """Chains, steps before the first sample, steps that are kept, leapfrog moves of a step."""

    chains: int = 8
    warm_up: int = 300
    kept: int = 300
    leaps: int = 60


@dataclass(frozen=True)
class Drawn:
    """Weights by step and chain, and the share of steps that was accepted."""

    weights: Float[Tensor, "i c d"]
    accepted: float

    @property
    def by_chain(self) -> Float[Tensor, "s d"]:
        """One chain after another."""
        return self.weights.transpose(0, 1).flatten(0, 1)


@dataclass(frozen=True)
class Found:
    """What a posterior predicts, its chains one after another, and whether these agree."""

    predicted: Predicted | PredictedNumbers
    chains: int
    signs: dict[str, Any]
    weights: Float[Tensor, "s d"] | None = None
    """Its samples, where they are by HMC."""


def log_posterior(coreset: Pseudocoreset, weight: float, prior: float) -> LogDensity:
    """−Σ weight · loss − τ/2 ‖θ‖², for rows of weights.

    Args:
        coreset: the points
        weight: how often each counts
        prior: precision τ
    """
    net, likelihood = coreset.make_net(), coreset.likelihood
    inputs, targets = coreset.seen_inputs, coreset.seen_targets
    assert likelihood is not None
    none = torch.zeros(net.num_buffers)

    def outputs(params: Tensor) -> Tensor:
        return net.apply(Weights(params, none), inputs)

    def density(theta: Tensor) -> Tensor:
        found = torch.func.vmap(outputs)(theta)
        points = found.shape[1]
        again = targets.expand(len(theta), *targets.shape).flatten(0, 1)
        losses = likelihood.losses(found.flatten(0, 1), again)
        total = losses.reshape(len(theta), points).sum(1)
        return -weight * total - prior / 2 * theta.square().sum(1)

    return density


class Walkers:
    """Chains that follow a posterior while it changes; their step size keeps most steps accepted.

    Args:
        place: where they begin, a row each
        generator: of random numbers
        leaps: leapfrog moves of a step
    """

    def __init__(self, place: Float[Tensor, "c d"], generator: torch.Generator, leaps: int) -> None:
        self.place, self.step = place, FIRST_STEP
        self._generator, self._leaps = generator, leaps

    @property
    def options(self) -> dict[str, Any]:
        """Those of `hmc_step`."""
        return {"leaps": self._leaps, "step": self.step}

    def walk(self, density: LogDensity) -> None:
        """Take one step on this posterior.

        Args:
            density: log of its density
        """
        now = at(density, self.place)
        chains, accepted = hmc_step(density, now, self._generator, **self.options)
        self.place = chains.place
        self.step *= 1.05 if float(accepted.double().mean()) > ACCEPTED else 0.9


def draw(
    density: LogDensity, start: Float[Tensor, "c d"], effort: Effort, generator: torch.Generator
) -> Drawn:
    """Samples; the step size is found in the first steps and then kept.

    Args:
        density: log of the density
        start: where chains begin
        effort: how many and how long
        generator: of random numbers
    """
    walkers, kept, share = Walkers(start, generator, effort.leaps), [], 0.0
    for _ in range(effort.warm_up):
        walkers.walk(density)
    chains, options = at(density, walkers.place), walkers.options
    for _ in range(effort.kept):
        chains, accepted = hmc_step(density, chains, generator, **options)
        kept.append(chains.place)
        share += float(accepted.double().mean()) / effort.kept
    return Drawn(torch.stack(kept), share)


def by_hmc(
    coreset: Pseudocoreset,
    data: Data,
    prior: float,
    effort: Effort,
    seed: int,
    *purpose: str,
) -> Found:
    """Predictions of a posterior in which each point counts n/m times.

    Args:
        coreset: the points
        data: whose test points are predicted
        prior: precision τ of the weights
        effort: how many chains, and how long
        seed: of the chains
        purpose: what the chains are for
    """
    net = coreset.make_net()
    rng = Rng(torch.device("cpu"), seed, *purpose)
    start = torch.stack([net.init(rng.host).params for _ in range(effort.chains)])
    weight = len(data.train) / coreset.num_seen
    drawn = draw(log_posterior(coreset, weight, prior), start, effort, rng.host)
    inputs, none = data.scaling.apply(data.test.inputs), torch.zeros(net.num_buffers)
    with torch.no_grad():
        outputs = torch.func.vmap(lambda p: net.apply(Weights(p, none), inputs))(drawn.by_chain)
    found = predictions(coreset, outputs, data.test.targets)
    signs = {**signs_of(found, effort.chains), "accepted": drawn.accepted}
    return Found(found, effort.chains, signs, drawn.by_chain)


def signs_of(found: Predicted | PredictedNumbers, chains: int) -> dict[str, float]:
    """The share of test points on which chains disagree, and the median effective sample size.

    Of classes, the probability of the true one is looked at. The median is that of the points whose
    prediction varies.

    Args:
        found: predictions, one chain after another
        chains: how many there are
    """
    if isinstance(found, Predicted):
        place = found.labels.expand(len(found.log_samples), -1)[:, :, None]
        values = found.log_samples.gather(2, place).exp()[:, :, 0]
    else:
        values = found.samples.flatten(1)
    draws = values.double().reshape(chains, -1, values.shape[1])
    return {
        "r_hat_share": float((r_hat(draws) > LIMIT).double().mean()),
        "effective_size": float(effective_size(draws).nanmedian()),
    }
