"""Base class of samplers: options, and the rule that moves the weights.

The potential is Ũ(θ) = mean loss + λ/2 ‖θ‖², the negative log posterior U divided by the number of
counted points. Each of the m points counts `weight` times, so U is divided by weight·m, and λ is
τ / (weight·m) for a Gaussian prior N(0, 1/τ). A posterior at temperature T is exp(−U/T). If
points count differently (weight.py), `weight` is their mean, and the loss of each is multiplied by
its weight over the mean.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.options import Options, option
from pseudocoreset.errors import UserError
from pseudocoreset.nets import Net, Weights
from pseudocoreset.posterior.weight import PointWeights
from pseudocoreset.training import Rule

PRIOR_PRECISION = 0.3
TEMPERATURE = 1e-6
"""τ and T of the protocol `tuned`, chosen on held-out training images of CIFAR-10
(results/protocol.json)."""


@dataclass(frozen=True)
class Sampler(Options):
    """Base class of samplers. Subclasses are frozen dataclasses whose fields are `option(...)`."""

    name: ClassVar[str] = ""
    """Its name on the command line; your own sampler is `package.module:Class`."""
    ensemble: ClassVar[bool] = False
    """Whether each sample is a separately trained network."""

    step: float = option(0.03, "step size on the averaged potential (η)", above=0)
    prior: float = option(
        PRIOR_PRECISION, "precision τ of the Gaussian prior N(0, 1/τ) of the weights", at_least=0
    )
    epochs: int = option(1000, "epochs per chain", at_least=1)
    every: int = option(100, "number of epochs between samples", at_least=1)
    batch: int = option(256, "coreset points per step", at_least=1)
    dsa: str = option(
        "on",
        "augmentation of the coreset's images: on (as the coreset was made) or off",
        choices=("on", "off"),
    )

    def check(self) -> None:
        """Raise an error for values that do not fit together."""
        if self.epochs % self.every:
            raise UserError(
                f"`every` {self.every} does not divide `epochs` {self.epochs}: give a divisor, "
                "so that the last epoch gives a sample.",
                "every",
            )

    def temperature_for(self, points: int) -> float:  # noqa: ARG002
        """The temperature T for a coreset of this size.

        Args:
            points: number of points that networks see (m)
        """
        return 0.0

    def decay(self, count: float) -> float:
        """The weight decay λ for this many counted points.

        Args:
            count: number of counted points, weight·m
        """
        return self.prior / count

    def rule(self, points: int, weight: float) -> Rule:
        """The rule that moves the weights.

        Args:
            points: number of points that networks see (m)
            weight: how many times each point counts, on average
        """
        raise NotImplementedError

    def check_net(self, net: Net) -> None:
        """Raise an error if the sampler does not support the network.

        Args:
            net: the network
        """

    @property
    def keeps_first(self) -> bool:
        """Whether the network after the first epoch is a sample too; `epochs` more follow."""
        return False

    @property
    def samples_each(self) -> int:
        """The number of samples that `finish` makes from each set of weights."""
        return 1

    def finish(
        self,
        net: Net,  # noqa: ARG002
        weights: Weights,
        coreset: Pseudocoreset,  # noqa: ARG002
        weight: PointWeights,  # noqa: ARG002
        generator: torch.Generator,  # noqa: ARG002
    ) -> list[Weights]:
        """Turn weights of a chain into samples. By default they are the samples.

        Args:
            net: the network
            weights: weights of the chain
            coreset: the coreset, on their device
            weight: how many times the points count
            generator: random number generator
        """
        return [weights]


def noise(like: Tensor, temperature: float, generator: torch.Generator) -> State:
    """Standard Gaussian noise; none at temperature 0."""
    if temperature == 0:
        return {}
    shape, device, dtype = like.shape, like.device, like.dtype
    return {"noise": torch.randn(shape, generator=generator, device=device, dtype=dtype)}
