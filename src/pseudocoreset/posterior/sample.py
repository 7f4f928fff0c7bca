"""From a coreset to networks drawn from its posterior."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
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
from pseudocoreset.errors import UserError
from pseudocoreset.nets import Net, Weights, make_net
from pseudocoreset.posterior.protocols import PROTOCOLS, Protocol
from pseudocoreset.posterior.rules import SGHMC, SGLD
from pseudocoreset.training import Training, coreset_images

FORMAT = 1
KIND = "a posterior"
LOOKS = 10
"""Points of the loss trace between two samples."""


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
        return make_net(
            self.net,
            channels=len(self.normalisation.mean),
            image_size=self.image_size,
            classes=len(self.class_names),
        )

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
    protocol = protocol or PROTOCOLS["paper"]
    protocol.check()
    place = choose_device(device)
    network = make_net(
        net or coreset.provenance.net,
        channels=coreset.images.shape[1],
        image_size=coreset.images.shape[-1],
        classes=len(coreset.class_names),
    )
    chain = _Chain(network, coreset.to(place), protocol, Rng(place, seed))
    keeps = protocol.epochs // protocol.every
    # Each network of a deep ensemble is trained on its own: as many as a chain would keep.
    starts = protocol.chains * (keeps if protocol.sampler == "map" else 1)
    samples: list[Weights] = []
    with progress.task(protocol.sampler, starts * keeps) as task:
        for number in range(starts):
            drawn = chain.run(seed, number, task)
            samples += drawn[-1:] if protocol.sampler == "map" else drawn
    return Posterior(
        network.spec,
        torch.stack([sample.params for sample in samples]),
        torch.stack([sample.buffers for sample in samples]),
        coreset.class_names,
        coreset.normalisation,
        coreset.images.shape[-1],
        details={
            "protocol": asdict(protocol),
            "temperature": chain.temperature,
            "decay": chain.decay,
            "seed": seed,
            "coreset": coreset.fingerprint,
            "versions": versions(),
            "loss_trace": chain.loss_traces,
            "kinetic_temperature": chain.kinetic_temperatures,
        },
    )


class _Chain:
    """A chain that can be run from several starts, its step captured once."""

    def __init__(self, net: Net, coreset: Pseudocoreset, protocol: Protocol, rng: Rng) -> None:
        images = len(coreset)
        self.temperature = 0.0 if protocol.sampler == "map" else protocol.temperature_for(images)
        self.decay = protocol.prior / images
        self.loss_traces: list[list[float]] = []
        self.kinetic_temperatures: list[float] = []
        self._net = net
        self._coreset = coreset
        self._protocol = protocol
        self._rng = rng
        self._rule: SGHMC | SGLD
        if protocol.sampler == "sgld":
            self._rule = SGLD(protocol.step, self.temperature, self.decay, images)
        else:
            self._rule = SGHMC(
                protocol.step, protocol.friction, self.temperature, self.decay, images
            )
        # Batches of one size, which a captured step needs: 500 images are 2 × 250, not 256 + 244.
        self._steps = ceil(images / protocol.batch)
        augmentation = Augmentation.parse(coreset.dsa, True) if protocol.dsa == "on" else None
        self._training = Training(
            net,
            self._rule,
            coreset_images,
            augmentation or Augmentation(()),
            rng.device,
            batch=None if self._steps == 1 else ceil(images / self._steps),
        )

    def run(self, seed: int, number: int, task: Task) -> list[Weights]:
        """One chain: a sample every few epochs."""
        self._rng.reseed(seed, "chain", number)
        labels, images = self._coreset.labels, self._coreset.images
        self._training.start(self._net.init(self._rng.device), {"images": images, "labels": labels})
        samples: list[Weights] = []
        trace: list[float] = []
        for _ in range(self._protocol.epochs // self._protocol.every):
            trace += self._epochs(self._protocol.every)
            if not isfinite(trace[-1]):
                raise UserError(
                    f"the chain {number} of {self._protocol.sampler} diverged (its loss is not "
                    f"finite): lower --step ({self._protocol.step})."
                )
            samples.append(Weights(*(part.clone() for part in self._training.weights)))
            task.advance(loss=trace[-1])
            if len(samples) == 1 and isinstance(self._rule, SGHMC):
                self._training.take("kinetic_sum")  # what comes before the first is no sign
        self.loss_traces.append(trace)
        if isinstance(self._rule, SGHMC) and len(samples) > 1:
            steps = (len(samples) - 1) * self._protocol.every * self._steps
            mean_square = self._training.take("kinetic_sum") / steps
            self.kinetic_temperatures.append(self._rule.kinetic_temperature(mean_square))
        return samples

    def _epochs(self, number: int) -> list[float]:
        """Run some epochs; the mean loss of each of up to `LOOKS` parts of them."""
        trace = []
        part = ceil(number / LOOKS)
        for start in range(0, number, part):
            epochs = min(part, number - start)
            if self._steps == 1:
                self._training.run(epochs)
            else:
                for _ in range(epochs):
                    self._shuffle()
                    self._training.run(self._steps)
            trace.append(self._training.take("loss_sum") / (epochs * self._steps))
        return trace

    def _shuffle(self) -> None:
        generator = self._rng.device
        order = torch.randperm(len(self._coreset), generator=generator, device=generator.device)
        self._training.set_order(order)
