"""Hamiltonian Monte Carlo with exact gradients and Metropolis's correction."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LogDensity = Callable[[Float[Tensor, "c d"]], Float[Tensor, " c"]]


class Chains(NamedTuple):
    """Chains side by side: where they are, log-density and gradient there."""

    place: Float[Tensor, "c d"]
    value: Float[Tensor, " c"]
    slope: Float[Tensor, "c d"]


def at(log_density: LogDensity, place: Float[Tensor, "c d"]) -> Chains:
    """Chains at these places.

    Args:
        log_density: the log of the density, up to a constant, of each row
        place: a row a chain
    """
    leaf = place.detach().requires_grad_()
    with torch.enable_grad():
        value = log_density(leaf)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
    return Chains(leaf.detach(), value.detach(), slope)


def hmc_step(
    log_density: LogDensity,
    chains: Chains,
    generator: torch.Generator,
    *,
    leaps: int = 8,
    step: float = 0.25,
) -> tuple[Chains, Bool[Tensor, " c"]]:
    """One step of all chains: `leaps` leapfrog moves, accepted or not; and which were accepted.

    The step size is drawn from (0.8, 1.2) · `step` each time, so that no period is met.

    Args:
        log_density: the log of the density, up to a constant, of each row
        chains: where they are
        generator: of random numbers
        leaps: leapfrog moves
        step: their size; the density should be about as wide as a standard Gaussian
    """
    draw = {"generator": generator, "dtype": chains.place.dtype}
    size = step * (0.8 + 0.4 * float(torch.rand((), **draw)))  # type: ignore[call-overload]
    start = torch.randn(chains.place.shape, **draw)  # type: ignore[call-overload]
    new, momentum = chains, start + size / 2 * chains.slope
    for leap in range(leaps):
        new = at(log_density, new.place + size * momentum)
        momentum = momentum + (size / 2 if leap == leaps - 1 else size) * new.slope
    energy = (start.square().sum(1) - momentum.square().sum(1)) / 2
    chance = torch.rand(len(start), **draw)  # type: ignore[call-overload]
    accepted = chance.log() < new.value - chains.value + energy
    wide = accepted[:, None]
    return Chains(
        torch.where(wide, new.place, chains.place),
        torch.where(accepted, new.value, chains.value),
        torch.where(wide, new.slope, chains.slope),
    ), accepted


def split_r_hat(samples: Float[Tensor, "i c d"]) -> float:
    """The largest R̂ of any column: chains cut in half, √((within + between) / within).

    Args:
        samples: steps × chains × columns
    """
    half = len(samples) // 2
    halves = torch.cat([samples[:half], samples[half : 2 * half]], 1)
    within = halves.var(0).mean(0)
    between = halves.mean(0).var(0)
    return float((((half - 1) / half * within + between) / within).sqrt().max())
