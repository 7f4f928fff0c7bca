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
    Student,
    around,
    draw_chosen,
    draw_segment,
    experts_of,
    gradients_of,
    learned_leaves,
    recipe_for,
    zero_gradients,
)
from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import Weights


class BPCReverseKL:
    """The gradient of KL[π_u ‖ π_x] over S samples θ ~ N(μ_u, σ²·1), for a mean loss.

        ∇_u ≈ −Cov[ ∇_u mean_u log p(ỹ | u, θ),  w_x·mean_x log p(y | x, θ) − w_u·mean_u log p ]

    With f the summed log-likelihoods, ∇_u KL = E_π_u[∇_u f_u (f_u − f_x)] − E[∇_u f_u] E[f_u − f_x]
    (the prior and both evidences drop out), so weights (w_x, w_u) = (n, m), the numbers of images,
    give that gradient, divided by m as every estimate is; (1, 1) is Kim et al.'s.

    μ_u is a student of the coreset after some steps from θ₀, an early snapshot of an expert. An
    update augments the coreset once and a batch of real images once, the same for all samples: were
    it once a sample, the augmentations would count among what varies together.

    Samples are taken one by one, and what an update needs in memory does not grow with S.
    """

    def __init__(self, context: Context) -> None:
        self._experts = experts_of(context, "BPC-rKL")
        if context.settings.samples < 2:
            raise UserError(
                f"--samples {context.settings.samples} has no covariance, which BPC-rKL follows: "
                "give 2 or more."
            )
        self._context = context
        self._inner: _Inner | None = None

    def start(self) -> State:
        """Nothing is kept between updates."""
        return {}

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """One update: a student, S samples around it."""
        if self._inner is None or self._inner.rng is not rng:
            self._inner = _Inner(self._context, self._experts, len(coreset.images), rng)
        inner = self._inner
        segment = draw_segment(self._experts, inner.recipe.start_epochs, rng, self._context.device)
        mean_u = inner.student.train(segment.start, coreset)
        found = inner.estimate(coreset, mean_u)
        info = {
            "loss_x": float(found["loss_x"]),
            "loss_u": float(found["loss_u"]),
            "student_loss": inner.student.mean_loss(),
            "start_epoch": segment.epoch,
        }
        return Estimate(gradients_of(found), state, info)


def no_samples(gradients: State) -> State:
    """What `with_sample` starts from, for gradients by these names (`gradient_…`)."""
    (like, *_) = gradients.values()
    zero = like.new_zeros(())
    means = {f"mean_{name}": torch.zeros_like(value) for name, value in gradients.items()}
    return {**gradients, **means, "count": zero, "mean_excess": zero}


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


class _Inner:
    """The loops of one update, made once: their steps are captured on first use."""

    def __init__(self, context: Context, experts: ExpertStore, size: int, rng: Rng) -> None:
        batch = context.settings.batch
        self.rng = rng
        self.recipe = recipe_for(context, experts, size)
        self._context = context
        self._batch = batch if batch < size else None
        self.student = Student(context, self.recipe, self._batch, rng)
        self._estimator = Loop(self._add_sample, rng.device)

    def estimate(self, coreset: Points, mean_u: Weights) -> State:
        """The covariance, given the mean of the coreset's posterior."""
        context, images = self._context, coreset.images
        chosen = draw_chosen(len(images), self._batch, self.rng)
        draw = context.augmentation.draw(len(images), images.shape[-1], self.rng.device)
        some = random_order(len(context.real.split), self.rng)[: context.settings.likelihood_batch]
        real_images, real_labels = context.real({}, some)
        zero = images.new_zeros(())
        inputs: State = {**coreset._asdict(), **no_samples(zero_gradients(coreset))}
        inputs |= {f"draw_{name}": value for name, value in draw._asdict().items()}
        inputs |= {
            "loss_x": zero,
            "loss_u": zero,
            "moves": torch.zeros_like(images[:, 0, 0, 0], dtype=torch.bool).index_fill(
                0, chosen, 1
            ),
            "params": mean_u.params,
            "buffers": mean_u.buffers,
            "real_images": context.augmentation(real_images, self.rng.device),
            "real_labels": real_labels,
        }
        self._estimator.load(inputs)
        self._estimator.run(context.settings.samples)
        return self._estimator.state

    def _add_sample(self, state: State) -> State:
        settings, net = self._context.settings, self._context.net
        params = around(state["params"], settings.noise, self.rng.device)
        theta = Weights(params, state["buffers"])
        leaves, moves = learned_leaves(state), state["moves"]
        draw = Draw(*(state[f"draw_{name}"] for name in Draw._fields))
        with torch.enable_grad():
            # All images count in the likelihood; those that this update does not move are constant.
            images = torch.where(moves.view(-1, 1, 1, 1), leaves["images"], state["images"])
            labels = state["labels"]
            if "labels" in leaves:
                labels = torch.where(moves.view(-1, 1), leaves["labels"], labels)
            points = self._context.augmentation.apply(images, draw)
            log_p = -F.cross_entropy(net.apply(theta, points), labels, reduction="none")
            moved = torch.where(moves, log_p, 0.0).sum() / moves.sum()
            gradients = torch.autograd.grad(moved, list(leaves.values()))
        with torch.no_grad():
            loss_x = F.cross_entropy(net.apply(theta, state["real_images"]), state["real_labels"])
        loss_u = -log_p.detach().mean()
        excess = settings.weight_u * loss_u - settings.weight_x * loss_x
        named = {f"gradient_{name}": g for name, g in zip(leaves, gradients, strict=True)}
        changed = with_sample(state, named, excess, settings.samples)
        changed["loss_x"] = state["loss_x"] + loss_x / settings.samples
        changed["loss_u"] = state["loss_u"] + loss_u / settings.samples
        return changed
