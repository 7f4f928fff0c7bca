"""BPC-rKL: the reverse KL between posteriors of the weights, as a covariance.

The estimator is Manousakas et al.'s (2020), brought to networks by Kim et al. (2022).
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.augment import Draw
from pseudocoreset.divergences.base import Context, Estimate, Points
from pseudocoreset.divergences.map_solution import random_order
from pseudocoreset.divergences.weight_space import (
    Segment,
    Student,
    Update,
    WeightSpaceMethod,
    around,
    draw_chosen,
    draw_entries,
    gradients_by,
    learned_leaves,
    nothing_gathered,
    sampled_estimate,
)
from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
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

    def __init__(self, context: Context, size: int, rng: Rng) -> None:
        super().__init__(context, size, rng)
        self._student = Student(self)
        self._samples = Loop(self._add_group, rng.device)

    def estimate(self, coreset: Points, segment: Segment, state: State) -> Estimate:
        """The covariance, over samples of the coreset's posterior."""
        mean_u = self._student.train(segment.start, coreset)
        context, images, generator = self.context, coreset.images, self.rng.device
        inputs = no_samples(nothing_gathered(coreset, "loss_x", "loss_u"))
        inputs["params"], inputs["buffers"] = mean_u
        chosen = draw_chosen(len(images), self)
        inputs["moves"] = images.new_zeros(len(images)).index_fill(0, chosen, 1) > 0
        inputs |= draw_entries(context.augmentation.draw(len(images), images.shape[-1], generator))
        some = random_order(len(context.real.split), self.rng)[: self.settings.likelihood_batch]
        real_images, inputs["real_labels"] = context.real({}, some)
        inputs["real_images"] = context.augmentation(real_images, generator)
        self._samples.load(inputs)
        self._samples.run(self.settings.samples // self.group)
        return sampled_estimate(self._samples.state, segment, self._student, state)

    def _add_group(self, state: State) -> State:
        """Add a group of samples to the covariance.

        Each has a copy of the coreset to itself: one backward pass gives the gradients of all.
        """
        settings = self.settings
        points = {name: state[name] for name in ("images", "labels")}
        leaves = learned_leaves({k: v.expand(self.group, *v.shape) for k, v in points.items()})
        with torch.enable_grad():
            own = [
                dict(zip(leaves, copy, strict=True)) for copy in zip(*leaves.values(), strict=True)
            ]
            samples = [self._sample(state, copy) for copy in own]
            gradients = gradients_by(leaves, torch.stack([moved for moved, *_ in samples]).sum())
        now = state
        for number, (_, loss_x, loss_u) in enumerate(samples):
            excess = settings.weight_u * loss_u - settings.weight_x * loss_x
            gradient = {name: value[number] for name, value in gradients.items()}
            now = {
                **now,
                **with_sample(now, gradient, excess, settings.samples),
                "loss_x": now["loss_x"] + loss_x / settings.samples,
                "loss_u": now["loss_u"] + loss_u / settings.samples,
            }
        return {name: value for name, value in now.items() if value is not state[name]}

    def _sample(self, state: State, leaves: State) -> tuple[Tensor, Tensor, Tensor]:
        """For new weights: log p of the images that this update moves, and both losses."""
        params = around(state["params"], self.settings.noise, self.rng.device)
        theta, moves = Weights(params, state["buffers"]), state["moves"]
        draw = Draw(*(state[f"draw_{name}"] for name in Draw._fields))
        # All images count in the likelihood; those that this update does not move are constant.
        images = torch.where(moves.view(-1, 1, 1, 1), leaves["images"], state["images"])
        labels = state["labels"]
        if "labels" in leaves:
            labels = torch.where(moves.view(-1, 1), leaves["labels"], labels)
        points = self.context.augmentation.apply(images, draw)
        log_p = -F.cross_entropy(self.apply(theta, points), labels, reduction="none")
        moved = torch.where(moves, log_p, 0.0).sum() / moves.sum()
        with torch.no_grad():
            # The real images are many: where none counts for another, some at a time.
            pieces = REAL_PIECES if self.context.net.by_image else 1
            parts = [self.apply(theta, part) for part in state["real_images"].chunk(pieces)]
            loss_x = F.cross_entropy(torch.cat(parts), state["real_labels"])
        return moved, loss_x, -log_p.detach().mean()


class BPCReverseKL(WeightSpaceMethod):
    """The gradient of KL[π_u ‖ π_x] over S samples θ ~ N(μ_u, σ²·1), for a mean loss.

        ∇_u ≈ −Cov[ ∇_u mean_u log p(ỹ | u, θ),  w_x·mean_x log p(y | x, θ) − w_u·mean_u log p ]

    With f the summed log-likelihoods, ∇_u KL = E_π_u[∇_u f_u (f_u − f_x)] − E[∇_u f_u] E[f_u − f_x]
    (the prior and both evidences drop out), so weights (w_x, w_u) = (n, m), the numbers of images,
    give that gradient, divided by m as every estimate is; (1, 1) is Kim et al.'s.

    μ_u is a student of the coreset after some steps from θ₀, an early snapshot of an expert. An
    update augments the coreset once and a batch of real images once, the same for all samples: were
    it once a sample, the augmentations would count among what varies together.

    The samples are taken `group` at a time, and memory grows with the group alone.
    """

    name = "BPC-rKL"
    update = _Update
    needs_target = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        if context.settings.samples < 2:
            raise UserError(
                f"--samples {context.settings.samples} has no covariance, which BPC-rKL follows: "
                "give 2 or more."
            )
