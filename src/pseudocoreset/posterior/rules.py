"""The samplers' update rules.

The potential is Ũ(θ) = mean loss + λ/2 ‖θ‖²: the *averaged* −log posterior, U / m, of the m images
with a Gaussian prior N(0, 1/τ) and λ = τ/m. A posterior at temperature T is exp(−U/T).
"""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from pseudocoreset.engine.loop import State


def _noise(like: Tensor, temperature: float, generator: torch.Generator) -> State:
    """Standard Gaussian noise; none at temperature 0."""
    if temperature == 0:
        return {}
    shape, device, dtype = like.shape, like.device, like.dtype
    return {"noise": torch.randn(shape, generator=generator, device=device, dtype=dtype)}


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

    def draw(self, params: Tensor, generator: torch.Generator) -> State:
        """The noise of one step."""
        return _noise(params, self.temperature, generator)

    def update(self, state: State, gradient: Tensor) -> State:
        """One step of the chain."""
        params, velocity = state["params"], state["velocity"]
        force = gradient + self.decay * params
        velocity = (1 - self.friction) * velocity - self.step * force
        if "noise" in state:
            velocity = velocity + self.noise_std * state["noise"]
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

    def draw(self, params: Tensor, generator: torch.Generator) -> State:
        """The noise of one step."""
        return _noise(params, self.temperature, generator)

    def update(self, state: State, gradient: Tensor) -> State:
        """One step of the chain."""
        params = state["params"] - self.step * (gradient + self.decay * state["params"])
        if "noise" in state:
            std = sqrt(2 * self.step * self.temperature / self.images)
            params = params + std * state["noise"]
        return {"params": params}
