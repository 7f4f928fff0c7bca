"""BPC-fKL: the forward KL between posteriors of the weights (Kim et al., 2022)."""

import torch
from torch.nn import functional as F

from pseudocoreset.divergences.base import Context, Estimate, Points
from pseudocoreset.divergences.weight_space import (
    Segment,
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
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import Weights


class BPCForwardKL:
    """The gradient of KL[π_x ‖ π_u] by equation `bpc-fkl`, for a mean loss.

        ∇_u ≈ 1/S Σ_s ( −∇_u log p(ỹ | u, μ_x + σ ε_x) + ∇_u log p(ỹ | u, μ_u + σ ε_u) ) / m

    μ_x is an expert one epoch after θ₀ and μ_u a student of the coreset after some steps from θ₀,
    both without gradient. Each sample s has its own augmentation of u, the same for both sides.

    The samples are taken `group` at a time, and memory grows with the group alone.
    """

    def __init__(self, context: Context) -> None:
        self._experts = experts_of(context, "BPC-fKL")
        self._context = context
        self._inner: _Inner | None = None

    def start(self) -> State:
        """Nothing is kept between updates."""
        return {}

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """One update: an expert's segment, a student, S samples of both posteriors."""
        if self._inner is None or self._inner.rng is not rng:
            self._inner = _Inner(self._context, self._experts, len(coreset.images), rng)
        inner = self._inner
        segment = draw_segment(self._experts, inner.recipe.start_epochs, rng, self._context.device)
        mean_u = inner.student.train(segment.start, coreset)
        found = inner.estimate(coreset, segment, mean_u)
        info = {
            "loss_x": float(found["loss_x"]),
            "loss_u": float(found["loss_u"]),
            "student_loss": inner.student.mean_loss(),
            "start_epoch": segment.epoch,
        }
        return Estimate(gradients_of(found), state, info)


class _Inner:
    """The loops of one update, made once: their steps are captured on first use."""

    def __init__(self, context: Context, experts: ExpertStore, size: int, rng: Rng) -> None:
        settings = context.settings
        self.rng = rng
        self.recipe = recipe_for(context, experts, size)
        self._context = context
        self._batch = settings.batch if settings.batch < size else None
        self.student = Student(context, self.recipe, self._batch, rng)
        # Every step of a loop is the same: the group must divide the samples.
        largest = min(settings.group, settings.samples)
        self._group = next(g for g in range(largest, 0, -1) if settings.samples % g == 0)
        self._estimator = Loop(self._add_group, rng.device)

    def estimate(self, coreset: Points, segment: Segment, mean_u: Weights) -> State:
        """Equation `bpc-fkl`, given the means of both posteriors."""
        zero = coreset.images.new_zeros(())
        inputs: State = {**coreset._asdict(), **zero_gradients(coreset)}
        inputs |= {"loss_x": zero, "loss_u": zero}
        inputs["chosen"] = draw_chosen(len(coreset.images), self._batch, self.rng)
        for name, weights in (("x", segment.target), ("u", mean_u)):
            inputs[f"params_{name}"], inputs[f"buffers_{name}"] = weights
        self._estimator.load(inputs)
        self._estimator.run(self._context.settings.samples // self._group)
        return self._estimator.state

    def _add_group(self, state: State) -> State:
        """Add the gradients of a group of samples."""
        settings, augmentation = self._context.settings, self._context.augmentation
        leaves = learned_leaves(state)
        losses = {name: state["loss_x"].new_zeros(()) for name in ("x", "u")}
        with torch.enable_grad():
            images = leaves["images"].index_select(0, state["chosen"])
            labels = leaves.get("labels", state["labels"]).index_select(0, state["chosen"])
            for _ in range(self._group):
                draw = augmentation.draw(len(images), images.shape[-1], self.rng.device)
                points = augmentation.apply(images, draw)
                for name in losses:
                    params = around(state[f"params_{name}"], settings.noise, self.rng.device)
                    theta = Weights(params, state[f"buffers_{name}"])
                    loss = F.cross_entropy(self._context.net.apply(theta, points), labels)
                    losses[name] = losses[name] + loss / settings.samples
            gradients = torch.autograd.grad(losses["x"] - losses["u"], list(leaves.values()))
        changed = {f"loss_{n}": state[f"loss_{n}"] + v.detach() for n, v in losses.items()}
        for name, gradient in zip(leaves, gradients, strict=True):
            changed[f"gradient_{name}"] = state[f"gradient_{name}"] + gradient
        return changed
