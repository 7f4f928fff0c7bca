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

    Args:
        from_epoch: experts are used from this epoch on (T)
        gamma: the MAP solution of the coreset is reached at this training loss (γ)
        lr_map: learning rate of Adam towards the MAP solution
        max_map_steps: give up on γ after so many steps
        lr_x: learning rate of the steps on real data (λ_x)
        lr_u: learning rate of the steps on the coreset (λ_u)
        covariance_steps: steps behind an empirical covariance (K)
        samples: Monte-Carlo samples (S)
        draws: augmentations an update
        batch: coreset images a step and an update (B)
        real_batch: real images a step
        noise: standard deviation of the weights' posteriors (σ)
        group: samples of the weights taken at once; memory grows with it
        start_epochs: students start from experts of an epoch below this; None: by size
        student_steps: steps of a student on the coreset; None: by size
        lr_student: learning rate of a student; None: by size
        lr_lr: learning rate of a learned learning rate of students; None: by size
        likelihood_batch: real images whose likelihood is compared with the coreset's
        weight_x: what the mean log-likelihood of the real images counts (w_x)
        weight_u: what the mean log-likelihood of the coreset counts (w_u)
    """

    from_epoch: int
    gamma: float
    lr_x: float
    lr_u: float
    batch: int
    lr_map: float = 0.001
    max_map_steps: int = 5000
    covariance_steps: int = 30
    samples: int = 30
    draws: int = 1
    real_batch: int = 256
    noise: float = 0.01
    group: int = 1
    start_epochs: int | None = None
    student_steps: int | None = None
    lr_student: float | None = None
    lr_lr: float | None = None
    likelihood_batch: int = 1000
    weight_x: float = 1.0
    weight_u: float = 1.0


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
