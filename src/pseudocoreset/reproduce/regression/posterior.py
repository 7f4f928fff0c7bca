"""The posterior of a small network by Hamiltonian Monte Carlo."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.nets import Weights
from pseudocoreset.reproduce.exact.hmc import LogDensity, at, hmc_step

ACCEPTED = 0.8
"""The share of accepted steps that the step size is moved to."""


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
        losses = likelihood.losses(found.flatten(0, 1), targets.repeat(len(theta), 1))
        total = losses.reshape(len(theta), points).sum(1)
        return -weight * total - prior / 2 * theta.square().sum(1)

    return density


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
    chains, step, kept, share = at(density, start), 0.01, [], 0.0
    for number in range(effort.warm_up + effort.kept):
        chains, accepted = hmc_step(density, chains, generator, leaps=effort.leaps, step=step)
        found = float(accepted.double().mean())
        if number < effort.warm_up:
            step *= 1.05 if found > ACCEPTED else 0.9
        else:
            kept.append(chains.place)
            share += found / effort.kept
    return Drawn(torch.stack(kept), share)
