"""Base classes of methods. A method has options and computes the gradient of an update."""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.options import Options
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertStore
from pseudocoreset.likelihoods import Likelihood
from pseudocoreset.nets import Net
from pseudocoreset.training import RealPoints


class Points(NamedTuple):
    """The points of the coreset: inputs u and targets ỹ."""

    inputs: Float[Tensor, "m ..."]
    targets: Shaped[Tensor, "m ..."]
    """Classes, probabilities if labels are learned, or numbers for regression."""


@dataclass(frozen=True)
class Estimate:
    """The gradient of one update.

    `gradients` has the gradients of a *mean* loss over points: `inputs`, and `targets` if they are
    floating-point numbers. Points with a zero gradient are not moved. `state` is kept until the
    next update. `info` is written to the metrics.
    """

    gradients: State
    state: State = field(default_factory=dict)
    info: dict[str, float] = field(default_factory=dict)


@runtime_checkable
class Divergence(Protocol):
    """A method prepared for a network: it computes the gradients."""

    def start(self) -> State:
        """The initial state of the method."""

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """The gradient of one update. The coreset is not changed."""


@dataclass(frozen=True)
class Context:
    """What a method works with: a network, its experts and the real data."""

    net: Net
    experts: ExpertStore | None
    real: RealPoints
    augmentation: Augmentation
    likelihood: Likelihood
    batch: int
    """Coreset points per step and update (B)."""

    @property
    def device(self) -> torch.device:
        """The device of the data."""
        return self.real.split.inputs.device

    def batch_of(self, size: int) -> int | None:
        """Points per step for a coreset of this size; None for all.

        Args:
            size: points of the coreset
        """
        return self.batch if self.batch < size else None


@dataclass(frozen=True)
class Method(Options):
    """Base class of methods. Subclasses are frozen dataclasses whose fields are `option(...)`.

    Fields that are not given are taken from the recipe.
    """

    name: ClassVar[str] = ""
    """Its name on the command line; your own method is `package.module:Class`."""
    needs_experts: ClassVar[bool] = True
    makes_updates: ClassVar[bool] = True
    along_sum: ClassVar[bool] = False
    """Whether `lr_images` of a recipe applies to the sum over images rather than the mean."""

    def prepare(self, context: Context) -> Divergence:
        """Prepare the method for one network.

        Args:
            context: a network, its experts and the data
        """
        raise NotImplementedError

    def within(self, last_epoch: int, given: frozenset[str]) -> Self:  # noqa: ARG002
        """The options adapted to the number of epochs of the experts.

        Args:
            last_epoch: the experts' last epoch
            given: the options that were given explicitly and stay as they are
        """
        return self

    def without_warm_up(self) -> tuple[Self, float]:
        """The same without work before the first update, and how many updates that takes."""
        return self, 0.0
