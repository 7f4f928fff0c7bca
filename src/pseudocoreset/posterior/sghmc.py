"""Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin, 2014)."""

from dataclasses import dataclass
from math import ceil, pi, sqrt
from typing import ClassVar

import torch
from torch import Tensor

from pseudocoreset.engine.loop import State
from pseudocoreset.engine.options import option
from pseudocoreset.errors import UserError
from pseudocoreset.posterior.sampler import TEMPERATURE, Sampler, noise


@dataclass(frozen=True)
class SGHMC(Sampler):
    """Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin, 2014).

        v ← (1−α)v − η∇Ũ(θ) + N(0, 2ηα·T/(weight·m)),    θ ← θ + v

    With the schedule `cosine` (Zhang et al., 2020), η falls to nearly 0 before each sample and
    starts again after it: η_t = η/2 (1 + cos(π t/C)) in step t of the C steps between samples.
    """

    name: ClassVar[str] = "sghmc"

    friction: float = option(0.1, "friction (α)", above=0, at_most=1)
    temperature: float | None = option(
        TEMPERATURE,
        "temperature T of exp(−U/T); none: the paper's noise, T = 2d²m / (ηα) with d = 0.01/m",
        at_least=0,
    )
    schedule: str = option(
        "constant",
        "step size schedule: constant, or cosine (falls to 0 before each sample)",
        choices=("constant", "cosine"),
    )
    weight_decay: float | None = option(None, "weight decay λ, instead of a prior", at_least=0)
    first: bool = option(False, "also keep the network after the first epoch")

    def check(self) -> None:
        """Raise an error for values that do not fit together."""
        super().check()
        if self.first and self.schedule == "cosine":
            raise UserError("`first` can't be used with the `schedule` cosine.", "first")

    @property
    def keeps_first(self) -> bool:
        """Whether the network after the first epoch is a sample."""
        return self.first

    def decay(self, count: float) -> float:
        """The weight decay λ for this many counted points.

        Args:
            count: number of counted points, weight·m
        """
        return super().decay(count) if self.weight_decay is None else self.weight_decay

    def temperature_for(self, points: int) -> float:
        """The temperature T for a coreset of this size.

        The paper prints noise N(0, 2d) with d = 0.01/m. Read as a variance it destroys the chain
        (T = 3.3 at the paper's η and α); read as a standard deviation it is the variance 4d², and
        from 2ηα·T/m = 4d² follows T = 2d²m / (ηα), which is 0.067/m.
        """
        if self.temperature is not None:
            return self.temperature
        d = 0.01 / points
        return 2 * d * d * points / (self.step * self.friction)

    def rule(self, points: int, weight: float) -> "SGHMCRule":
        """The rule that moves the weights."""
        count = weight * points
        temperature = self.temperature_for(points)
        cycle = self.every * ceil(points / self.batch) if self.schedule == "cosine" else 0
        return SGHMCRule(self.step, self.friction, temperature, self.decay(count), count, cycle)


@dataclass(frozen=True)
class SGHMCRule:
    """One step. The new velocity moves the weights, as in SGD with momentum 1 − α, which this is at
    T = 0.
    """

    step: float
    """η"""
    friction: float
    """α"""
    temperature: float
    """T, on the summed potential U"""
    decay: float
    """λ"""
    points: float
    """weight·m, the points that U counts"""
    cycle: int = 0
    """C, the steps over which η falls to 0 again and again; 0 for a constant η"""

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise in one step of the size η."""
        return sqrt(2 * self.step * self.friction * self.temperature / self.points)

    def slots(self, params: Tensor) -> State:
        """At rest; `kinetic_sum` gathers ‖v‖²/p over the steps, `phase` counts them."""
        slots = {"velocity": torch.zeros_like(params), "kinetic_sum": params.new_zeros(())}
        return {**slots, "phase": params.new_zeros(())} if self.cycle else slots

    def draw(self, params: Tensor, generator: torch.Generator) -> State:
        """The noise of one step."""
        return noise(params, self.temperature, generator)

    def update(self, state: State, gradient: Tensor) -> State:
        """One step of the chain."""
        params, velocity = state["params"], state["velocity"]
        force = torch.add(gradient, params, alpha=self.decay)
        kick = state.get("noise")
        changed: State = {}
        if self.cycle:
            phase = state["phase"]
            share = 0.5 + 0.5 * torch.cos(pi / self.cycle * (phase % self.cycle))
            changed["phase"] = phase + 1
            force = share * force
            kick = None if kick is None else share.sqrt() * kick
        velocity = torch.add((1 - self.friction) * velocity, force, alpha=-self.step)
        if kick is not None:
            velocity = torch.add(velocity, kick, alpha=self.noise_std)
        kinetic = state["kinetic_sum"] + velocity.square().mean()
        changed |= {"params": params + velocity, "velocity": velocity, "kinetic_sum": kinetic}
        return changed

    def kinetic_temperature(self, mean_square: float) -> float | None:
        """The temperature that a mean of v² shows; None where η changes.

        Noise and friction alone give v the variance 2ηαT/m / (1 − (1−α)²) = ηT/m / (1 − α/2). A
        chain that is hotter than it should be is driven by the noise of its gradients.
        """
        if self.cycle:
            return None
        return mean_square * self.points * (1 - self.friction / 2) / self.step
