"""Move a coreset along a gradient; FBPC's gradient as the package computes it."""

from math import cos, pi
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertStore, train_experts
from pseudocoreset.methods import FBPC, Context, Points
from pseudocoreset.nets import make_net
from pseudocoreset.reproduce.exact.problems import BATCH, EPOCHS, EXPERTS, Loss, Problem
from pseudocoreset.training import RealPoints


def follow(start: Points, loss: Loss, learned: tuple[str, ...], steps: int, lr: float) -> Points:
    """The coreset after some steps of Adam whose size falls to 0 along a cosine.

    Args:
        start: the coreset at first
        loss: what to descend
        learned: what is moved: inputs, targets
        steps: how many
        lr: the first step size
    """
    leaves = {name: getattr(start, name).clone().requires_grad_() for name in learned}
    points = start._replace(**leaves)
    optimiser = torch.optim.Adam(leaves.values(), lr=lr)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = lr * (1 + cos(pi * step / steps)) / 2
        gradients = torch.autograd.grad(loss(points), list(leaves.values()))
        for leaf, gradient in zip(leaves.values(), gradients, strict=True):
            leaf.grad = gradient
        optimiser.step()
    return Points(*(part.detach() for part in points))


def experts_of(problem: Problem, folder: Path, seed: int, epochs: int = EPOCHS) -> ExpertStore:
    """Networks trained on the data by plain SGD, as FBPC takes them.

    Args:
        problem: the model and its data
        folder: where they are stored
        seed: of all randomness
        epochs: of each
    """
    return train_experts(
        problem.data,
        problem.net,
        folder,
        num=EXPERTS,
        epochs=epochs,
        lr=problem.expert_lr,
        batch=BATCH,
        seed=seed,
        device="cpu",
        progress=False,
    )


def paper_loss(problem: Problem, experts: ExpertStore, seed: int, method: FBPC) -> Loss:
    """A loss with the gradient that the package's FBPC estimates at each call.

    Args:
        problem: the model and its data
        experts: of it
        seed: of all randomness
        method: FBPC and its options
    """
    data = problem.data
    context = Context(
        make_net(problem.net, **data.shape),
        experts,
        RealPoints(data.train, data.scaling, data.target_scaling),
        Augmentation(()),
        problem.likelihood,
        10**9,
    )
    divergence = method.prepare(context)
    rng = Rng(torch.device("cpu"), seed, "exact", "fbpc")
    state = divergence.start()

    def loss(points: Points) -> Float[Tensor, ""]:
        nonlocal state
        plain = Points(*(_single(part) for part in points))
        found = divergence.gradient(plain, state, rng)
        state = found.state
        parts = [
            (found.gradients[name].double() * getattr(points, name)).sum()
            for name in problem.learned
        ]
        return torch.stack(parts).sum()

    return loss


def _single(part: Tensor) -> Tensor:
    return part.detach().float() if part.is_floating_point() else part
