"""What every method is to the loop: options, and the gradient of one update."""

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
    """The coreset as a method sees it: (u, ỹ)."""

    inputs: Float[Tensor, "m ..."]
    targets: Shaped[Tensor, "m ..."]
    """Classes; probabilities where labels are learned; numbers for regression."""


@dataclass(frozen=True)
class Estimate:
    """The gradient of one update.

    `gradients` are those of a *mean* loss over points, by name: `inputs`, and `targets` where they
    are floating-point; points whose gradient is all zero stay put. `state` is what the method keeps
    between updates; `info` is written to the metrics.
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
class Context:
    """What a method is prepared for: a network, its experts and the real data."""

    net: Net
    experts: ExpertStore | None
    real: RealPoints
    augmentation: Augmentation
    likelihood: Likelihood
    batch: int
    """Coreset points that a step and an update take (B)."""

    @property
    def device(self) -> torch.device:
        """Where the data are."""
        return self.real.split.inputs.device

    def batch_of(self, size: int) -> int | None:
        """Points that a step takes of a coreset of this size; None for all.

        Args:
            size: points of the coreset
        """
        return self.batch if self.batch < size else None


@dataclass(frozen=True)
class Method(Options):
    """A method's own options. Subclasses are frozen dataclasses whose fields are `option(...)`.

    A field that is left out is the recipe's.
    """

    name: ClassVar[str] = ""
    """What the command line calls it; a person's own method is `package.module:Class`."""
    needs_experts: ClassVar[bool] = True
    makes_updates: ClassVar[bool] = True
    along_sum: ClassVar[bool] = False
    """Whether a recipe's `lr_images` is for the sum over the images that an update moves."""

    def prepare(self, context: Context) -> Divergence:
        """What gives the gradient of each update, for one network.

        Args:
            context: a network, its experts and the data
        """
        raise NotImplementedError

    def within(self, last_epoch: int, given: frozenset[str]) -> Self:  # noqa: ARG002
        """The same options, fitted to experts of so many epochs where they were not given.

        Args:
            last_epoch: the experts' last epoch
            given: the options that a person gave
        """
        return self
