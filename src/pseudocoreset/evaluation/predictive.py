"""What networks predict for many images."""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from pseudocoreset.data import Normalisation
from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.progress import Task
from pseudocoreset.nets import Net, Weights
from pseudocoreset.posterior.sample import Posterior

TEST_BATCH = 1000  # images a forward pass; with batch statistics, also what they are taken over
CPU_BATCH = 50  # what a CPU's cache has room for; half as much time as for batches of 1000


class Predictor:
    """A network's outputs at the same images, given as bytes, for one set of weights and the next.

    The images go through a batch at a time; whole batches all take the same step.
    """

    def __init__(
        self, net: Net, images: UInt8[Tensor, "n c h w"], normalisation: Normalisation
    ) -> None:
        self._net = net
        self._normalisation = normalisation
        most = CPU_BATCH if net.by_image and images.device.type == "cpu" else TEST_BATCH
        size = min(most, len(images))
        self._batches = [images[first : first + size] for first in range(0, len(images), size)]
        self._loop = Loop(self._step, torch.Generator(images.device))  # from which nothing is drawn

    @torch.no_grad()
    def logits(self, weights: Weights) -> Float[Tensor, "n k"]:
        """The outputs at all images, on their device."""
        weights = Weights(*(part.to(self._batches[0].device) for part in weights))
        whole = len(self._batches[0])
        outputs = weights.params.new_zeros((whole, self._net.classes))
        self._loop.load({**weights._asdict(), "logits": outputs})
        found = []
        for batch in self._batches:
            if len(batch) < whole:
                found.append(self._outputs(weights, batch))
                continue
            self._loop.load({"images": batch})
            self._loop.run(1)
            found.append(self._loop.state["logits"].clone())
        return torch.cat(found)

    def accuracy(self, weights: Weights, labels: Tensor) -> float:
        """The share of images that one network classifies correctly."""
        return float((self.logits(weights).argmax(1) == labels).float().mean())

    def _step(self, state: State) -> State:
        return {
            "logits": self._outputs(Weights(state["params"], state["buffers"]), state["images"])
        }

    def _outputs(self, weights: Weights, images: Tensor) -> Tensor:
        return self._net.apply(weights, self._normalisation.apply(images))


def predictor_of(posterior: Posterior, images: UInt8[Tensor, "n c h w"]) -> Predictor:
    """For the samples of this posterior, and of others of the same network."""
    return Predictor(posterior.make_net(), images, posterior.normalisation)


def log_samples_of(
    posterior: Posterior, predictor: Predictor, task: Task | None = None
) -> Float[Tensor, "s n k"]:
    """log p(class | image, sample) for the predictor's images, on their device."""
    outputs = []
    for sample in posterior.samples():
        outputs.append(predictor.logits(sample).log_softmax(1))
        if task is not None:
            task.advance()
    return torch.stack(outputs)
