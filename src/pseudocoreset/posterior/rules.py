"""The samplers' update rules.

The potential is Ũ(θ) = mean loss + λ/2 ‖θ‖²: the *averaged* −log posterior, U / m, of the m images
with a Gaussian prior N(0, 1/τ) and λ = τ/m. A posterior at temperature T is exp(−U/T).
"""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from pseudocoreset.engine.loop import State


def _gaussian(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)


@dataclass(frozen=True)
class SGHMC:
    """v ← (1−α)v − η∇Ũ(θ) + N(0, 2ηα·T/m), then θ ← θ + v (Chen, Fox and Guestrin, 2014).

    The new velocity moves the weights, as in SGD with momentum 1 − α, which this is at T = 0.
    """

    step: float
    """η"""
    friction: float
    """α"""
    temperature: float
    """T, on the summed potential U"""
    decay: float
    """λ"""
    images: int
    """m"""

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise in one step."""
        return sqrt(2 * self.step * self.friction * self.temperature / self.images)

    def slots(self, params: Tensor) -> State:
        """At rest; `kinetic_sum` gathers ‖v‖²/p over the steps."""
        return {"velocity": torch.zeros_like(params), "kinetic_sum": params.new_zeros(())}

    def update(self, state: State, gradient: Tensor, generator: torch.Generator) -> State:
        """One step of the chain."""
        params, velocity = state["params"], state["velocity"]
        force = gradient + self.decay * params
        velocity = (1 - self.friction) * velocity - self.step * force
        if self.temperature > 0:
            velocity = velocity + self.noise_std * _gaussian(params, generator)
        kinetic = state["kinetic_sum"] + velocity.square().mean()
        return {"params": params + velocity, "velocity": velocity, "kinetic_sum": kinetic}

    def kinetic_temperature(self, mean_square: float) -> float:
        """The temperature that a mean of v² tells of.

        Noise and friction alone give v the variance 2ηαT/m / (1 − (1−α)²) = ηT/m / (1 − α/2). A
        chain that is hotter than it was told to be is driven by the noise of its gradients.
        """
        return mean_square * self.images * (1 - self.friction / 2) / self.step


@dataclass(frozen=True)
class SGLD:
    """θ ← θ − η∇Ũ(θ) + N(0, 2η·T/m) (Welling and Teh, 2011)."""

    step: float
    temperature: float
    decay: float
    images: int

    def slots(self, params: Tensor) -> State:  # noqa: ARG002
        """Nothing is kept."""
        return {}

    def update(self, state: State, gradient: Tensor, generator: torch.Generator) -> State:
        """One step of the chain."""
        params = state["params"] - self.step * (gradient + self.decay * state["params"])
        if self.temperature > 0:
            std = sqrt(2 * self.step * self.temperature / self.images)
            params = params + std * _gaussian(params, generator)
        return {"params": params}
