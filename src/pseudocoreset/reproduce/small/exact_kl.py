"""Coresets of a small network along the gradients of both KLs, with posteriors by HMC."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.random import Rng
from pseudocoreset.methods import Points
from pseudocoreset.reproduce.exact.follow import follow
from pseudocoreset.reproduce.exact.hmc import LogDensity
from pseudocoreset.reproduce.small.posterior import Walkers, log_posterior

FORWARD, REVERSE = "forward", "reverse"


@dataclass(frozen=True)
class Descent:
    """Updates of the coreset, and the chains that follow its posterior.

    Args:
        updates: how many
        lr: step size of Adam at first, for one point per class
        chains: on the coreset's posterior, and samples of the data's in an update
        warm_up: steps of each chain before the first update
        leaps: leapfrog moves of a chain's step, of which each update takes one
    """

    updates: int = 1200
    lr: float = 0.001
    chains: int = 64
    warm_up: int = 150
    leaps: int = 40


def along_kl(
    direction: str,
    start: Pseudocoreset,
    of_data: LogDensity,
    samples: Float[Tensor, "s d"],
    descent: Descent,
    prior: float,
    seed: int,
) -> Pseudocoreset:
    """The coreset after moving its inputs down one of the KLs between both posteriors.

    Args:
        direction: `forward`, KL[data ‖ coreset], or `reverse`, KL[coreset ‖ data]
        start: the coreset at first; each of its points counts n/m times
        of_data: log-density of the data's posterior
        samples: of the data's posterior
        descent: how many updates, and how they are made
        prior: precision τ of the weights
        seed: of all randomness
    """
    assert start.provenance.num_train is not None
    weight = start.provenance.num_train / start.num_seen

    def density(points: Points) -> LogDensity:
        return log_posterior(replace(start, inputs=points.inputs), weight, prior)

    points = Points(start.inputs, start.targets)
    net, rng = start.make_net(), Rng(torch.device("cpu"), seed, "along-kl", direction)
    place = torch.stack([net.init(rng.host).params for _ in range(descent.chains)])
    walkers = Walkers(place, rng.host, descent.leaps)
    for _ in range(descent.warm_up):
        walkers.walk(density(points))

    def loss(points: Points) -> Float[Tensor, ""]:
        walkers.walk(density(points._replace(inputs=points.inputs.detach())))
        if direction == REVERSE:
            return reverse_loss(density(points), of_data, walkers.place)
        chosen = torch.randint(len(samples), (descent.chains,), generator=rng.host)
        return forward_loss(density(points), samples[chosen], walkers.place)

    # The fewer points there are, the more each counts, and the noisier its gradient is.
    lr = descent.lr * len(start) / len(start.class_names)
    found = follow(points, loss, ("inputs",), descent.updates, lr)
    return replace(start, inputs=found.inputs)


def forward_loss(
    of_coreset: LogDensity, from_data: Float[Tensor, "s d"], from_coreset: Float[Tensor, "c d"]
) -> Float[Tensor, ""]:
    """Its gradient is that of KL[data ‖ coreset]: E_π_u[∇ log π̃_u] − E_π_x[∇ log π̃_u].

    Args:
        of_coreset: log π̃_u, not normalised
        from_data: samples of π_x
        from_coreset: samples of π_u
    """
    return of_coreset(from_coreset).mean() - of_coreset(from_data).mean()


def reverse_loss(
    of_coreset: LogDensity, of_data: LogDensity, from_coreset: Float[Tensor, "c d"]
) -> Float[Tensor, ""]:
    """Its gradient is that of KL[coreset ‖ data]: Cov_π_u[∇ log π̃_u, log π̃_u − log π̃_x].

    Args:
        of_coreset: log π̃_u, not normalised
        of_data: log π̃_x, not normalised
        from_coreset: samples of π_u
    """
    mine = of_coreset(from_coreset)
    with torch.no_grad():
        apart = mine - of_data(from_coreset)
    return ((apart - apart.mean()) * mine).sum() / (len(mine) - 1)
