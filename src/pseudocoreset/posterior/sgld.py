"""Stochastic-gradient Langevin dynamics (Welling and Teh, 2011)."""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import torch
from torch import Tensor

from pseudocoreset.engine.loop import State
from pseudocoreset.engine.options import option
from pseudocoreset.posterior.sampler import TEMPERATURE, Sampler, noise


@dataclass(frozen=True)
class SGLD(Sampler):
    """Stochastic-gradient Langevin dynamics (Welling and Teh, 2011).

    θ ← θ − η∇Ũ(θ) + N(0, 2η·T/(weight·m))
    """

    name: ClassVar[str] = "sgld"

    temperature: float = option(TEMPERATURE, "T of exp(−U/T)", at_least=0)

    def temperature_for(self, points: int) -> float:  # noqa: ARG002
        """The temperature T, the same for every size."""
        return self.temperature

    def rule(self, points: int, weight: float) -> "SGLDRule":
        """The rule that moves the weights."""
        count = weight * points
        return SGLDRule(self.step, self.temperature, self.decay(count), count)


@dataclass(frozen=True)
class SGLDRule:
    """One step."""

    step: float
    temperature: float
    decay: float
    points: float
    """weight·m, the points that U counts"""

    def slots(self, params: Tensor) -> State:  # noqa: ARG002
        """Nothing is kept."""
        return {}

    def draw(self, params: Tensor, generator: torch.Generator) -> State:
        """The noise of one step."""
        return noise(params, self.temperature, generator)

    def update(self, state: State, gradient: Tensor) -> State:
        """One step of the chain."""
        params = state["params"] - self.step * (gradient + self.decay * state["params"])
        if "noise" in state:
            std = sqrt(2 * self.step * self.temperature / self.points)
            params = params + std * state["noise"]
        return {"params": params}
