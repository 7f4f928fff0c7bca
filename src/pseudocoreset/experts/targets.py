"""Labels of a coreset's points predicted by the experts."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts.store import ExpertStore
from pseudocoreset.likelihoods import Likelihood

SNAPSHOTS = 200
"""The largest number of snapshots that are averaged."""


@torch.no_grad()
def expert_targets(
    stores: Sequence[ExpertStore],
    inputs: Float[Tensor, "n ..."],
    augmentation: Augmentation,
    likelihood: Likelihood,
    rng: Rng,
) -> Float[Tensor, "n k"]:
    """The experts' mean prediction at some points: probabilities, or numbers for regression.

    Snapshots of the last third of the epochs count, each with an augmentation of its own.

    Args:
        stores: the experts; several stores count equally
        inputs: the points, scaled
        augmentation: the augmentation of the coreset
        likelihood: what outputs mean
        rng: source of the augmentations
    """
    total = inputs.new_zeros((len(inputs), likelihood.outputs))
    for store in stores:
        net = store.make_net()
        first = max(store.first_epoch, store.last_epoch - store.last_epoch // 3)
        store.require(first, store.last_epoch)
        pairs = [(t, e) for t in store.trajectories for e in range(first, store.last_epoch + 1)]
        order = torch.randperm(len(pairs), generator=rng.host)[:SNAPSHOTS].tolist()
        for place in order:
            trajectory, epoch = pairs[place]
            weights = store.snapshot(trajectory, epoch, inputs.device)
            points = augmentation(inputs, rng.device)
            outputs = net.apply(weights, points).float()
            total += likelihood.expected(outputs) / (len(order) * len(stores))
    return total
