"""BPC-rKL: the reverse KL between posteriors of the weights, as a covariance.

The estimator is from Manousakas et al. (2020); Kim et al. (2022) applied it to networks.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.augment import Draw
from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.options import option
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.methods.base import Context, Estimate, Points
from pseudocoreset.methods.map_solution import random_order
from pseudocoreset.methods.weight_space import (
    Sampled,
    Segment,
    Student,
    Update,
    WeightSpace,
    around,
    draw_chosen,
    draw_entries,
    gradients_by,
    learned_leaves,
    nothing_gathered,
    sampled_estimate,
)
from pseudocoreset.nets import Weights

REAL_PIECES = 4


def no_samples(state: State) -> State:
    """A state with gradients of zero (`gradient_…`), and what else `with_sample` starts from."""
    gradients = {name: value for name, value in state.items() if name.startswith("gradient_")}
    zero = next(iter(gradients.values())).new_zeros(())
    means = {f"mean_{name}": torch.zeros_like(value) for name, value in gradients.items()}
    return {**state, **means, "count": zero, "mean_excess": zero}


def with_sample(state: State, gradients: State, excess: Float[Tensor, ""], samples: int) -> State:
    """−Cov[gradient, excess] with one more of the `samples`, of which it is the unbiased estimate.

    By the one-pass recurrence, without the cancellation of E[gc] − E[g] E[c]: the log-likelihood of
    a data set is large and changes little.
    """
    count = state["count"] + 1
    away = excess - state["mean_excess"]
    changed = {"count": count, "mean_excess": state["mean_excess"] + away / count}
    for name, gradient in gradients.items():
        old = state[f"mean_{name}"]
        mean = changed[f"mean_{name}"] = old + (gradient - old) / count
        changed[name] = state[name] - away * (gradient - mean) / (samples - 1)
    return changed


class _Update(Update):
    """A student, then S samples around it, a group at a time."""

    def __init__(self, method: WeightSpace, context: Context, size: int, rng: Rng) -> None:
        super().__init__(method, context, size, rng)
        assert isinstance(method, BPCReverseKL)
        self._method = method
        self._student = Student(method, self)
        self._samples = Loop(self._add_group, rng.device)

    def estimate(self, coreset: Points, segment: Segment, state: State) -> Estimate:
        """The covariance, over samples of the coreset's posterior."""
        mean_u = self._student.train(segment.start, coreset)
        context, inputs_u, generator = self.context, coreset.inputs, self.rng.device
        inputs = no_samples(nothing_gathered(coreset, "loss_x", "loss_u"))
        inputs["params"], inputs["buffers"] = mean_u
        chosen = draw_chosen(len(inputs_u), self)
        inputs["moves"] = inputs_u.new_zeros(len(inputs_u)).index_fill(0, chosen, 1) > 0
        draw = context.augmentation.draw(len(inputs_u), inputs_u.shape[-1], generator)
        inputs |= draw_entries(draw)
        some = random_order(len(context.real.split), self.rng)[: self._method.likelihood_batch]
        real, inputs["real_targets"] = context.real({}, some)
        inputs["real_inputs"] = context.augmentation(real, generator)
        self._samples.load(inputs)
        self._samples.run(self._method.samples // self._method.group_size)
        return sampled_estimate(self._samples.state, segment, self._student, state)

    def _add_group(self, state: State) -> State:
        """Add a group of samples to the covariance.

        Each has a copy of the coreset to itself: one backward pass gives the gradients of all.
        """
        method = self._method
        points = {name: state[name] for name in ("inputs", "targets")}
        leaves = learned_leaves(
            {k: v.expand(method.group_size, *v.shape) for k, v in points.items()}
        )
        with torch.enable_grad():
            own = [
                dict(zip(leaves, copy, strict=True)) for copy in zip(*leaves.values(), strict=True)
            ]
            samples = [self._sample(state, copy) for copy in own]
            gradients = gradients_by(leaves, torch.stack([moved for moved, *_ in samples]).sum())
        now = state
        for number, (_, loss_x, loss_u) in enumerate(samples):
            excess = method.weight_u * loss_u - method.weight_x * loss_x
            gradient = {name: value[number] for name, value in gradients.items()}
            now = {
                **now,
                **with_sample(now, gradient, excess, method.samples),
                "loss_x": now["loss_x"] + loss_x / method.samples,
                "loss_u": now["loss_u"] + loss_u / method.samples,
            }
        return {name: value for name, value in now.items() if value is not state[name]}

    def _sample(self, state: State, leaves: State) -> tuple[Tensor, Tensor, Tensor]:
        """For new weights: log p of the images that this update moves, and both losses."""
        params = around(state["params"], self._method.noise, self.rng.device)
        theta, moves = Weights(params, state["buffers"]), state["moves"]
        draw = Draw(*(state[f"draw_{name}"] for name in Draw._fields))
        # All images count in the likelihood; those that this update does not move are constant.
        now = {name: state[name] for name in ("inputs", "targets")}
        for name, leaf in leaves.items():
            now[name] = torch.where(moves.view(-1, *[1] * (leaf.ndim - 1)), leaf, now[name])
        points = self.context.augmentation.apply(now["inputs"], draw)
        log_p = -self.likelihood.losses(self.apply(theta, points), now["targets"])
        moved = torch.where(moves, log_p, 0.0).sum() / moves.sum()
        with torch.no_grad():
            # The real images are many: where none counts for another, some at a time.
            pieces = REAL_PIECES if self.context.net.by_image else 1
            parts = [self.apply(theta, part) for part in state["real_inputs"].chunk(pieces)]
            loss_x = self.likelihood.loss(torch.cat(parts), state["real_targets"])
        return moved, loss_x, -log_p.detach().mean()


@dataclass(frozen=True)
class BPCReverseKL(Sampled):
    """BPC-rKL: the gradient of KL[π_u ‖ π_x] over weights, by samples θ ~ N(μ_u, σ²·1).

        ∇_u ≈ −Cov[ ∇_u mean_u log p(ỹ | u, θ),  w_x·mean_x log p(y | x, θ) − w_u·mean_u log p ]

    With f the summed log-likelihoods, ∇_u KL = E_π_u[∇_u f_u (f_u − f_x)] − E[∇_u f_u] E[f_u − f_x]
    (the prior and both evidences drop out), so weights (w_x, w_u) = (n, m), the numbers of images,
    give that gradient, divided by m as every estimate is; (1, 1) is Kim et al.'s.

    μ_u is a student of the coreset after some steps from θ₀, an early snapshot of an expert. All
    samples of an update use the same augmentation of the coreset and of a batch of real images;
    otherwise the covariance would include the augmentation.

    Samples are processed `group` at a time, so memory depends on `group` and not on `samples`.
    """

    name: ClassVar[str] = "bpc-rkl"
    title: ClassVar[str] = "BPC-rKL"
    update: ClassVar[type[Update]] = _Update
    along_sum: ClassVar[bool] = True

    likelihood_batch: int = option(
        1000, "real points whose likelihood is compared with the coreset's", at_least=1
    )
    weight_x: float = option(
        1.0,
        "weight of the mean log-likelihood of the real points; their number gives the exact "
        "gradient of the KL",
        above=0,
    )
    weight_u: float = option(
        1.0,
        "weight of the mean log-likelihood of the coreset; its size gives the exact gradient of "
        "the KL",
        above=0,
    )

    def check(self) -> None:
        """One sample has no covariance."""
        if self.samples < 2:
            raise UserError(f"`samples` is {self.samples}: give 2 or more for bpc-rkl.", "samples")
