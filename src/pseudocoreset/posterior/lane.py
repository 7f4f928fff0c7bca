"""Run the chains of a sampler."""

from dataclasses import dataclass, replace
from math import ceil

import torch
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.nets import Net, Weights
from pseudocoreset.posterior.sampler import Sampler
from pseudocoreset.posterior.sghmc import SGHMCRule
from pseudocoreset.posterior.weight import PointWeights
from pseudocoreset.training import FixedPoints, Training


@dataclass(frozen=True)
class Chains:
    """How many chains, by which sampler, and how many times each point counts."""

    sampler: Sampler
    chains: int
    weight: PointWeights

    @property
    def keeps(self) -> int:
        """Samples that a chain keeps."""
        return self.sampler.epochs // self.sampler.every

    def scaled_sampler(self, coreset: Pseudocoreset) -> Sampler:
        """The sampler with steps of the size that suits the likelihood."""
        assert coreset.likelihood is not None
        return replace(self.sampler, step=self.sampler.step * coreset.likelihood.step_scale)


class Lane:
    """Where chains run one after another, beside other lanes; its step is captured once.

    A chain's random numbers follow from its seed and number, whichever lane it runs in.
    """

    def __init__(
        self, net: Net, coreset: Pseudocoreset, work: Chains, device: torch.device
    ) -> None:
        assert coreset.likelihood is not None
        sampler, points = work.scaled_sampler(coreset), coreset.num_seen
        self._work = work
        self.temperature = sampler.temperature_for(points)
        self._net = net
        self._coreset = coreset
        self._points = points
        self._rng = Rng(device, 0)
        self._side = SideStream(device)
        self._rule = sampler.rule(points, work.weight.mean)
        # Batches of one size, which a captured step needs: 500 points are 2 × 250, not 256 + 244.
        self._steps_an_epoch = ceil(points / sampler.batch)
        augmentation = Augmentation.parse(coreset.dsa, True) if sampler.dsa == "on" else None
        targets, shares = coreset.seen_targets, work.weight.shares(coreset)
        if shares is not None:
            targets = coreset.likelihood.weighted(targets, shares)
        self._training = Training(
            net,
            self._rule,
            FixedPoints(coreset.seen_inputs, targets),
            augmentation or Augmentation(()),
            coreset.likelihood,
            self._rng.device,
            batch=None if self._steps_an_epoch == 1 else ceil(points / self._steps_an_epoch),
        )
        self._steps = 0  # since the loss was looked at
        self._kinetic_steps = 0

    def begin(self, seed: int, number: int) -> None:
        """Start the chain of this number."""
        with self._side:
            self._rng.reseed(seed, "chain", number)
            self._training.start(self._net.init(self._rng.device))
        self._steps = self._kinetic_steps = 0

    def go(self, epochs: int) -> None:
        """Begin some more epochs, without waiting for them."""
        with self._side:
            if self._steps_an_epoch == 1:
                self._training.run(epochs)
            else:
                for _ in range(epochs):
                    self._training.set_order(self._order())
                    self._training.run(self._steps_an_epoch)
        self._steps += epochs * self._steps_an_epoch
        self._kinetic_steps += epochs * self._steps_an_epoch

    def mean_loss(self) -> float:
        """The mean over the steps since the last look; waits for them."""
        self._side.wait()
        loss = self._training.take("loss_sum") / self._steps
        self._steps = 0
        return loss

    def weights(self) -> Weights:
        """A copy of where the chain is."""
        return Weights(*(part.clone() for part in self._training.weights))

    def finish(self, weights: Weights) -> list[Weights]:
        """The samples that kept weights give."""
        work = self._work
        return work.sampler.finish(self._net, weights, self._coreset, work.weight, self._rng.device)

    def kinetic_temperature(self) -> float | None:
        """The temperature that the velocities since the first sample tell of."""
        if not isinstance(self._rule, SGHMCRule):
            return None
        mean_square = float(self._training.state["kinetic_sum"]) / self._kinetic_steps
        return self._rule.kinetic_temperature(mean_square)

    def forget_kinetic(self) -> None:
        """Begin to gather the velocities anew."""
        if isinstance(self._rule, SGHMCRule):
            self._training.take("kinetic_sum")
        self._kinetic_steps = 0

    def _order(self) -> Tensor:
        generator = self._rng.device
        return torch.randperm(self._points, generator=generator, device=generator.device)
