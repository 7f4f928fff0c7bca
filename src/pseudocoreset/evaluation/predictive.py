"""What networks predict for many images."""

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.data import Normalisation, Split
from pseudocoreset.engine.progress import Task
from pseudocoreset.nets import Net, Weights
from pseudocoreset.posterior.sample import Posterior

TEST_BATCH = 1000  # images a forward pass; with batch statistics, also what they are taken over
CPU_BATCH = 50  # what a CPU's cache has room for; half as much time as for batches of 1000


@torch.no_grad()
def logits_of(
    net: Net, weights: Weights, images: Tensor, normalisation: Normalisation
) -> Float[Tensor, "n k"]:
    """The network's outputs at many images, given as bytes, a batch at a time."""
    size = CPU_BATCH if net.by_image and images.device.type == "cpu" else TEST_BATCH
    parts = (images[start : start + size] for start in range(0, len(images), size))
    return torch.cat([net.apply(weights, normalisation.apply(part)) for part in parts])


def accuracy(net: Net, weights: Weights, split: Split, normalisation: Normalisation) -> float:
    """The share of images that one network classifies correctly."""
    predicted = logits_of(net, weights, split.images, normalisation).argmax(1)
    return float((predicted == split.labels).float().mean())


def log_samples_of(
    posterior: Posterior, images: Tensor, task: Task | None = None
) -> Float[Tensor, "s n k"]:
    """log p(class | image, sample) for images given as bytes, on the images' device."""
    net = posterior.make_net()
    outputs = []
    for sample in posterior.samples():
        weights = Weights(*(part.to(images.device) for part in sample))
        logits = logits_of(net, weights, images, posterior.normalisation)
        outputs.append(logits.log_softmax(1))
        if task is not None:
            task.advance()
    return torch.stack(outputs)
