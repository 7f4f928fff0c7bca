"""FBPC's moments for logistic regression, as in the paper, for many solutions at once.

The package's `fbpc` draws one expert and one MAP solution of the coreset an update. Here, all
snapshots and several MAP solutions are taken together, so that moments can be told from
the noise of drawing them. The model is linear in its weights θ: the variance of its outputs over K
steps is that of φᵀθ.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.experts import ExpertStore
from pseudocoreset.methods import FBPC
from pseudocoreset.methods.map_solution import BLOCK
from pseudocoreset.nets import Net
from pseudocoreset.reproduce.exact.problems import Problem
from pseudocoreset.training import Adam


class PaperMoments(NamedTuple):
    """θ at MAP solutions, and its covariance over K steps from each."""

    means: Float[Tensor, "r d"]
    covariances: Float[Tensor, "r d d"]


def weights_of(params: Float[Tensor, "r d"]) -> Float[Tensor, "r d"]:
    """The network's parameters in the order of the features: the bias first.

    Args:
        params: of networks, a row each
    """
    return torch.cat([params[:, -1:], params[:, :-1]], 1).double()


def of_data(
    problem: Problem, experts: ExpertStore, method: FBPC, generator: torch.Generator
) -> PaperMoments:
    """Of the data: at every snapshot that `fbpc` draws from.

    Args:
        problem: the model and its data
        experts: of it
        method: FBPC's options
        generator: of random numbers
    """
    cpu = torch.device("cpu")
    epochs = range(method.from_epoch, experts.last_epoch + 1)
    found = [experts.snapshot(path, e, cpu).params for path in experts.trajectories for e in epochs]
    theta, train = weights_of(torch.stack(found)), problem.train
    shape = (method.covariance_steps, len(theta), method.real_batch)
    index = torch.randint(len(train.inputs), shape, generator=generator)
    phi, truth = problem.features(train.inputs), train.targets.double()
    return PaperMoments(theta, spread_over_steps(theta, phi, truth, method.lr_x, index))


def of_coreset(
    net: Net,
    phi: Float[Tensor, "m d"],
    truth: Float[Tensor, " m"],
    method: FBPC,
    number: int,
    generator: torch.Generator,
) -> PaperMoments:
    """Of a coreset: at MAP solutions by Adam from random starts, until the loss is at most γ.

    Args:
        net: the network, whose starts are taken
        phi: features of the coreset's points
        truth: their classes, 0 or 1
        method: FBPC's options
        number: of MAP solutions
        generator: of random numbers
    """
    starts = torch.stack([net.init(generator).params for _ in range(number)])
    theta = weights_of(starts)
    rule = Adam(method.lr_map)
    state = {"params": theta.flatten(), **rule.slots(theta.flatten())}
    going: Bool[Tensor, "r 1"] = torch.ones(number, 1, dtype=torch.bool)
    for _ in range(method.max_map_steps // BLOCK):
        total = torch.zeros(number, dtype=theta.dtype)
        for _ in range(BLOCK):
            total = total + _losses(theta, phi, truth)
            gradient = _gradients(theta, phi[None], truth[None])
            state = rule.update({**state, "params": theta.flatten()}, gradient.flatten())
            theta = torch.where(going, state["params"].view_as(theta), theta)
        going = going & (total / BLOCK > method.gamma)[:, None]
        if not bool(going.any()):
            break
    steps = torch.arange(len(phi)).expand(method.covariance_steps, number, -1)
    return PaperMoments(theta, spread_over_steps(theta, phi, truth, method.lr_u, steps))


def spread_over_steps(
    theta: Float[Tensor, "r d"],
    phi: Float[Tensor, "n d"],
    truth: Float[Tensor, " n"],
    lr: float,
    index: Int64[Tensor, "k r b"],
) -> Float[Tensor, "r d d"]:
    """The covariance of θ over steps of SGD.

    Args:
        theta: where steps begin
        phi: features of the points
        truth: their classes, 0 or 1
        lr: learning rate
        index: which points each step takes
    """
    path = []
    for chosen in index:
        theta = theta - lr * _gradients(theta, phi[chosen], truth[chosen])
        path.append(theta)
    away = torch.stack(path) - torch.stack(path).mean(0)
    return torch.einsum("krd,kre->rde", away, away) / len(path)


def _gradients(theta: Tensor, phi: Tensor, truth: Tensor) -> Tensor:
    """Of the mean loss of each row of weights."""
    away = torch.sigmoid((phi @ theta[:, :, None])[:, :, 0]) - truth
    return (away[:, None, :] @ phi)[:, 0] / phi.shape[1]


def _losses(theta: Tensor, phi: Tensor, truth: Tensor) -> Tensor:
    return F.softplus((1 - 2 * truth) * (theta @ phi.T)).mean(1)
