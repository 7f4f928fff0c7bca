"""What every method is to the loop: something that gives the gradient of one update."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import Net
from pseudocoreset.training import RealImages


class Points(NamedTuple):
    """The coreset as a method sees it: (u, ỹ)."""

    images: Float[Tensor, "m c h w"]
    labels: Shaped[Tensor, "m ..."]
    """Classes; or probabilities where labels are learned."""


@dataclass(frozen=True)
class Estimate:
    """The gradient of one update.

    `gradients` are those of a *mean* loss over images, by name: `images`, and `labels` where they
    are probabilities; images whose gradient is all zero stay put. `state` is what the method keeps
    between updates; `info` is worth a line in the metrics.
    """

    gradients: State
    state: State = field(default_factory=dict)
    info: dict[str, float] = field(default_factory=dict)


@runtime_checkable
class Divergence(Protocol):
    """How far the coreset's posterior is from the data's, by its gradient."""

    def start(self) -> State:
        """What the method keeps between updates, before the first."""

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """The gradient for one update; leaves the coreset as it is."""


@dataclass(frozen=True)
class MethodSettings:
    """The figures that methods are tuned by; each uses those it needs.

    `DistillSettings` says what they mean, and `recipes` what they are where a person gives none.
    """

    batch: int
    samples: int
    from_epoch: int
    to_epoch: int | None
    gamma: float
    lr_map: float
    max_map_steps: int
    draws: int
    lr_x: float
    lr_u: float
    covariance_steps: int
    real_batch: int
    start_epochs: int
    student_steps: int
    lr_student: float
    expert_epochs: int
    lr_lr: float
    noise: float
    group: int
    likelihood_batch: int
    weight_x: float
    weight_u: float


@dataclass(frozen=True)
class Context:
    """What a method is made from: a network, its experts, the real data and the settings."""

    net: Net
    experts: ExpertStore | None
    real: RealImages
    augmentation: Augmentation
    settings: MethodSettings

    @property
    def device(self) -> torch.device:
        """Where the data are."""
        return self.real.split.images.device
