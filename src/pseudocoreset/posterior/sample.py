"""From a coreset to networks drawn from its posterior."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, isfinite
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Pseudocoreset, versions
from pseudocoreset.data import Normalisation
from pseudocoreset.engine.device import choose_device
from pseudocoreset.engine.files import open_tensors, write_tensors
from pseudocoreset.engine.progress import SILENT, Progress, Task
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.streams import Beside
from pseudocoreset.errors import UserError
from pseudocoreset.nets import Net, Weights, make_net
from pseudocoreset.posterior.protocols import Protocol
from pseudocoreset.posterior.rules import SGHMC, SGLD
from pseudocoreset.training import StillImages, Training

FORMAT = 1
KIND = "a posterior"
LOOKS = 10
"""Points of the loss trace between two samples."""
AT_ONCE = 8
"""Chains side by side on a GPU, of which one alone leaves much idle."""


@dataclass(frozen=True)
class Posterior:
    """Networks drawn from a posterior, and what is needed to predict with them."""

    net: str
    params: Float[Tensor, "s p"]
    buffers: Float[Tensor, "s q"]
    class_names: tuple[str, ...]
    normalisation: Normalisation
    image_size: int
    details: dict[str, Any]
    """Protocol, seed, the coreset's fingerprint, versions, and the signs of how sampling went."""

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.params)

    def make_net(self) -> Net:
        """The network that the samples are weights of."""
        net = make_net(
            self.net,
            channels=len(self.normalisation.mean),
            image_size=self.image_size,
            classes=len(self.class_names),
        )
        net.refuse_other_weights("the posterior", (self.params.shape[1], self.buffers.shape[1]))
        return net

    def samples(self) -> Iterator[Weights]:
        """The weights of each sample."""
        for params, buffers in zip(self.params, self.buffers, strict=True):
            yield Weights(params, buffers)

    def save(self, path: Path | str) -> None:
        """Write one safetensors file, whole or not at all."""
        metadata = {
            "kind": KIND,
            "format": FORMAT,
            "net": self.net,
            "class_names": self.class_names,
            "normalisation": asdict(self.normalisation),
            "image_size": self.image_size,
            "details": self.details,
        }
        write_tensors(Path(path), {"params": self.params, "buffers": self.buffers}, metadata)

    @staticmethod
    def load(path: Path | str) -> "Posterior":
        """Read what `save` wrote."""
        with open_tensors(Path(path), KIND) as (tensors, metadata):
            if metadata["format"] != FORMAT:
                raise UserError(
                    f"{path} has format {metadata['format']} and this version reads {FORMAT}: "
                    "sample the posterior again."
                )
            stored = metadata["normalisation"]
            return Posterior(
                metadata["net"],
                tensors.get_tensor("params"),
                tensors.get_tensor("buffers"),
                class_names=tuple(metadata["class_names"]),
                normalisation=Normalisation(tuple(stored["mean"]), tuple(stored["std"])),
                image_size=metadata["image_size"],
                details=metadata["details"],
            )


def sample_posterior(
    coreset: Pseudocoreset,
    net: str | None = None,
    protocol: Protocol | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Posterior:
    """Draw networks from the posterior given `coreset`; `net` defaults to the coreset's own."""
    (posterior,) = sample_posteriors(
        coreset, net, protocol, seeds=[seed], device=device, progress=progress
    )
    return posterior


def sample_posteriors(
    coreset: Pseudocoreset,
    net: str | None = None,
    protocol: Protocol | None = None,
    *,
    seeds: Sequence[int],
    device: str = "auto",
    progress: Progress = SILENT,
) -> list[Posterior]:
    """`sample_posterior` for several seeds, with all their chains side by side."""
    protocol = protocol or Protocol()
    protocol.check()
    place = choose_device(device)
    network = make_net(
        net or coreset.provenance.net,
        channels=coreset.images.shape[1],
        image_size=coreset.images.shape[-1],
        classes=len(coreset.class_names),
    )
    keeps = protocol.epochs // protocol.every
    # Each network of a deep ensemble is trained on its own: as many as a chain would keep.
    of_a_seed = protocol.chains * (keeps if protocol.sampler == "map" else 1)
    starts = [(seed, number) for seed in seeds for number in range(of_a_seed)]
    on_device = coreset.to(place)
    at_once = chains_at_once(len(starts), network, place)
    while (sampled := _sampled(network, on_device, protocol, starts, at_once, progress)) is None:
        at_once //= 2
    lane, chains = sampled
    return [
        _pooled(network, coreset, lane, seed, chains[n * of_a_seed : (n + 1) * of_a_seed])
        for n, seed in enumerate(seeds)
    ]


def _sampled(
    net: Net,
    coreset: Pseudocoreset,
    protocol: Protocol,
    starts: Sequence[tuple[int, int]],
    at_once: int,
    progress: Progress,
) -> "tuple[_Lane, list[_Chain]] | None":
    """A lane, and a chain from each start; None if memory is too small for so many at once."""
    device = coreset.images.device
    keeps = protocol.epochs // protocol.every
    try:
        lanes = [_Lane(net, coreset, protocol, device) for _ in range(at_once)]
        chains: list[_Chain] = []
        with progress.task(protocol.sampler, len(starts) * keeps) as task:
            for first in range(0, len(starts), at_once):
                chains += _side_by_side(lanes, starts[first : first + at_once], protocol, task)
    except torch.OutOfMemoryError:
        if at_once == 1:
            raise
        return None
    return lanes[0], chains


def chains_at_once(num: int, net: Net, device: torch.device) -> int:
    """How many of so many chains run side by side."""
    return min(num, AT_ONCE if device.type == "cuda" and not net.draws else 1)


@dataclass
class _Chain:
    """What one chain gave."""

    samples: list[Weights] = field(default_factory=list)
    loss_trace: list[float] = field(default_factory=list)
    kinetic_temperature: float | None = None


def _side_by_side(
    lanes: Sequence["_Lane"], starts: Sequence[tuple[int, int]], protocol: Protocol, task: Task
) -> list[_Chain]:
    """One chain from each start, each in a lane of its own."""
    busy = list(zip(lanes, starts, strict=False))
    chains = [_Chain() for _ in busy]
    for lane, start in busy:
        lane.begin(*start)
    part = ceil(protocol.every / LOOKS)
    for kept in range(protocol.epochs // protocol.every):
        for done in range(0, protocol.every, part):
            for lane, _ in busy:
                lane.go(min(part, protocol.every - done))
            for (lane, _), chain in zip(busy, chains, strict=True):
                chain.loss_trace.append(lane.mean_loss())
        for (lane, (seed, number)), chain in zip(busy, chains, strict=True):
            weights = lane.weights()
            if not isfinite(chain.loss_trace[-1]) or not bool(weights.params.isfinite().all()):
                raise UserError(
                    f"the chain {number} of {protocol.sampler} with seed {seed} diverged (its loss "
                    f"or a weight is not finite): lower --step ({protocol.step}), or --prior "
                    f"({protocol.prior}) or --temperature ({lane.temperature:.3g}) where it is "
                    "large."
                )
            if protocol.sampler == "map":  # of a deep ensemble's network, the end alone
                chain.samples.clear()
            chain.samples.append(weights)
            temperature = lane.kinetic_temperature()
            if kept == 0:
                lane.forget_kinetic()  # what comes before the first sample is no sign
            else:
                chain.kinetic_temperature = temperature
            task.advance(loss=chain.loss_trace[-1])
    return chains


def _pooled(
    net: Net, coreset: Pseudocoreset, lane: "_Lane", seed: int, chains: Sequence[_Chain]
) -> Posterior:
    """The posterior of one seed out of its chains."""
    samples = [sample for chain in chains for sample in chain.samples]
    kinetic = [chain.kinetic_temperature for chain in chains]
    return Posterior(
        net.spec,
        torch.stack([sample.params for sample in samples]),
        torch.stack([sample.buffers for sample in samples]),
        coreset.class_names,
        coreset.normalisation,
        coreset.images.shape[-1],
        details={
            "protocol": asdict(lane.protocol),
            "temperature": lane.temperature,
            "decay": lane.decay,
            "seed": seed,
            "coreset": coreset.fingerprint,
            "versions": versions(),
            "loss_trace": [chain.loss_trace for chain in chains],
            "kinetic_temperature": [value for value in kinetic if value is not None],
        },
    )


class _Lane:
    """Where chains run one after another, beside other lanes; its step is captured once.

    A chain's random numbers follow from its seed and number, whichever lane it runs in.
    """

    def __init__(
        self, net: Net, coreset: Pseudocoreset, protocol: Protocol, device: torch.device
    ) -> None:
        images = len(coreset)
        self.protocol = protocol
        self.temperature = 0.0 if protocol.sampler == "map" else protocol.temperature_for(images)
        self.decay = protocol.prior / images
        self._net = net
        self._images = images
        self._rng = Rng(device, 0)
        self._beside = Beside(device)
        self._rule: SGHMC | SGLD
        if protocol.sampler == "sgld":
            self._rule = SGLD(protocol.step, self.temperature, self.decay, images)
        else:
            self._rule = SGHMC(
                protocol.step, protocol.friction, self.temperature, self.decay, images
            )
        # Batches of one size, which a captured step needs: 500 images are 2 × 250, not 256 + 244.
        self._steps_an_epoch = ceil(images / protocol.batch)
        augmentation = Augmentation.parse(coreset.dsa, True) if protocol.dsa == "on" else None
        self._training = Training(
            net,
            self._rule,
            StillImages(coreset.images, coreset.labels),
            augmentation or Augmentation(()),
            self._rng.device,
            batch=None if self._steps_an_epoch == 1 else ceil(images / self._steps_an_epoch),
        )
        self._steps = 0  # since the loss was looked at
        self._kinetic_steps = 0

    def begin(self, seed: int, number: int) -> None:
        """Start the chain of this number."""
        with self._beside:
            self._rng.reseed(seed, "chain", number)
            self._training.start(self._net.init(self._rng.device))
        self._steps = self._kinetic_steps = 0

    def go(self, epochs: int) -> None:
        """Begin some more epochs, without waiting for them."""
        with self._beside:
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
        self._beside.wait()
        loss = self._training.take("loss_sum") / self._steps
        self._steps = 0
        return loss

    def weights(self) -> Weights:
        """A copy of where the chain is."""
        return Weights(*(part.clone() for part in self._training.weights))

    def kinetic_temperature(self) -> float | None:
        """The temperature that the velocities since the first sample tell of."""
        if not isinstance(self._rule, SGHMC):
            return None
        mean_square = float(self._training.state["kinetic_sum"]) / self._kinetic_steps
        return self._rule.kinetic_temperature(mean_square)

    def forget_kinetic(self) -> None:
        """Begin to gather the velocities anew."""
        if isinstance(self._rule, SGHMC):
            self._training.take("kinetic_sum")
        self._kinetic_steps = 0

    def _order(self) -> Tensor:
        generator = self._rng.device
        return torch.randperm(self._images, generator=generator, device=generator.device)
