"""BPC-W: the Wasserstein distance between posteriors of the weights (Kim et al., 2022)."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.augment import Draw
from pseudocoreset.divergences.base import Context, Estimate, Points
from pseudocoreset.divergences.weight_space import (
    Segment,
    draw_chosen,
    draw_segment,
    experts_of,
    gradients_of,
    learned_leaves,
    nearest,
    recipe_for,
    zero_gradients,
)
from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import Weights


class MatchingRecipe(NamedTuple):
    """What BPC-W has beyond the student's recipe."""

    ahead: int
    """The target is the expert so many epochs after θ₀."""
    lr_lr: float


RECIPES = {1: MatchingRecipe(2, 1e-7), 10: MatchingRecipe(1, 1e-5)}
"""By images per class; other sizes take the nearest one's, in ratio."""

LEAST_LR = 0.01
"""The learned learning rate stays above this share of what it was at first."""


class BPCWasserstein:
    """The gradient of W₂²[N(μ_x, Σ), N(μ_u, Σ)] = ‖μ_u − μ_x‖², relative to the expert's own way.

        ∇_u ‖θ_T − μ_x‖² / ‖θ₀ − μ_x‖²    with θ_{t+1} = θ_t − η ∇_θ CE(u_t; θ_t)

    u_t is the coreset under an augmentation of its own each step. The gradient goes through all
    steps and to η too, which is learned: it is what the method keeps between updates.

    Gathered backwards, a step at a time: with λ_T = ∂/∂θ_T and φ_t = ⟨∇_θ CE(u_t; θ_t), λ_t+1⟩:

        λ_t = λ_t+1 − η ∂φ_t/∂θ_t,    ∂/∂u = −η Σ_t ∂φ_t/∂u,    ∂/∂η = −Σ_t φ_t

    so memory is that of one step and of T vectors of weights. A person's own network must not draw
    random numbers in its forward pass (dropout): the way back would see others.

    A coreset of more than `batch` images is updated, and its student trained, on `batch` of them.
    """

    def __init__(self, context: Context) -> None:
        self._experts = experts_of(context, "BPC-W")
        self._context = context
        self._inner: _Inner | None = None

    def start(self) -> State:
        """By how much η has changed; float64, since its steps are small beside it."""
        return {"lr_change": torch.zeros((), dtype=torch.float64, device=self._context.device)}

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """One update: an expert's segment, a student, and back through its steps."""
        if self._inner is None or self._inner.rng is not rng:
            self._inner = _Inner(self._context, self._experts, len(coreset.images), rng)
        inner = self._inner
        segment = draw_segment(
            self._experts,
            inner.recipe.start_epochs,
            rng,
            self._context.device,
            inner.matching.ahead,
        )
        first, lr = inner.recipe.lr, inner.recipe.lr + state["lr_change"]
        found, distance, loss = inner.estimate(coreset, segment, lr)
        lr_lr = self._context.settings.lr_lr or inner.matching.lr_lr
        new_lr = (lr - lr_lr * found["slope_lr"]).clamp(min=LEAST_LR * first)
        info = {
            "distance": float(distance),
            "student_loss": float(loss),
            "lr_student": float(lr),
            "start_epoch": segment.epoch,
        }
        return Estimate(gradients_of(found), {"lr_change": new_lr - first}, info)


class _Inner:
    """The loops of one update, made once: their steps are captured on first use."""

    def __init__(self, context: Context, experts: ExpertStore, size: int, rng: Rng) -> None:
        batch = context.settings.batch
        self.rng = rng
        self.matching = RECIPES[nearest(RECIPES, context, size)]
        self.recipe = recipe_for(context, experts, size, self.matching.ahead)
        self._context = context
        self._batch = batch if batch < size else None
        self._ahead = Loop(self._step_ahead, rng.device)
        self._back = Loop(self._step_back, rng.device)

    def estimate(
        self, coreset: Points, segment: Segment, lr: Tensor
    ) -> tuple[State, Tensor, Tensor]:
        """The gradients, the relative distance, and the student's mean loss."""
        steps, images = self.recipe.steps, coreset.images
        chosen = draw_chosen(len(images), self._batch, self.rng)
        augmentation, generator = self._context.augmentation, self.rng.device
        draws = [augmentation.draw(len(chosen), images.shape[-1], generator) for _ in range(steps)]
        inputs: State = {**coreset._asdict(), "chosen": chosen, "lr": lr}
        for name in Draw._fields:
            inputs[f"draw_{name}"] = torch.stack([getattr(draw, name) for draw in draws])
        zero = images.new_zeros(())
        params, buffers = segment.start
        path = {
            "path_params": params.new_zeros((steps, *params.shape)),
            "path_buffers": buffers.new_zeros((steps, *buffers.shape)),
        }
        now = {"params": params, "buffers": buffers, "loss_sum": zero}
        self._ahead.load({**inputs, **path, **now, "step": chosen.new_zeros(1)})
        # A network's own random numbers, if any, are not to come out of the person's stream.
        with torch.random.fork_rng(devices=[]):
            seed = generator.initial_seed()
            torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
            self._ahead.run(steps)
            student = self._ahead.state
            away, own = student["params"] - segment.target.params, params - segment.target.params
            scale = own.square().sum()
            self._back.load({**inputs, **zero_gradients(coreset)})
            self._back.load({name: student[name] for name in path})
            adjoint, last = 2 * away / scale, chosen.new_full((1,), steps - 1)
            slope = torch.zeros_like(lr)
            self._back.load({"adjoint": adjoint, "step": last, "slope_lr": slope})
            self._back.run(steps)
        return self._back.state, away.square().sum() / scale, student["loss_sum"] / steps

    def _step_ahead(self, state: State) -> State:
        """θ_{t+1} from θ_t, which is kept."""
        theta = Weights(state["params"].detach().requires_grad_(), state["buffers"])
        with torch.enable_grad():
            loss, buffers = self._loss(theta, state["images"], state["labels"], state)
            (gradient,) = torch.autograd.grad(loss, theta.params)
        place = self._place(state)
        kept = {
            f"path_{name}": state[f"path_{name}"].index_copy(0, place, state[name][None])
            for name in ("params", "buffers")
        }
        return {
            **kept,
            "params": state["params"] - state["lr"] * gradient,
            "buffers": buffers,
            "loss_sum": state["loss_sum"] + loss.detach(),
            "step": state["step"] + 1,
        }

    def _step_back(self, state: State) -> State:
        """λ_t from λ_{t+1}, and what step t adds to the gradients."""
        params, buffers = (self._at_step(state, f"path_{name}") for name in ("params", "buffers"))
        theta = Weights(params.requires_grad_(), buffers)
        leaves = learned_leaves(state)
        with torch.enable_grad():
            labels = leaves.get("labels", state["labels"])
            loss, _ = self._loss(theta, leaves["images"], labels, state)
            (gradient,) = torch.autograd.grad(loss, theta.params, create_graph=True)
            phi = gradient @ state["adjoint"]
            by_theta, *by_leaf = torch.autograd.grad(phi, [theta.params, *leaves.values()])
        changed = {
            f"gradient_{name}": state[f"gradient_{name}"] - state["lr"] * slope
            for name, slope in zip(leaves, by_leaf, strict=True)
        }
        return {
            **changed,
            "adjoint": state["adjoint"] - state["lr"] * by_theta,
            "slope_lr": state["slope_lr"] - phi.detach(),
            "step": state["step"] - 1,
        }

    def _loss(
        self, theta: Weights, images: Tensor, labels: Tensor, state: State
    ) -> tuple[Tensor, Tensor]:
        """CE(u_t; θ), and the buffers after it."""
        draw = Draw(*(self._at_step(state, f"draw_{name}") for name in Draw._fields))
        images, labels = (part.index_select(0, state["chosen"]) for part in (images, labels))
        points = self._context.augmentation.apply(images, draw)
        logits, buffers = self._context.net.train(theta, points)
        return F.cross_entropy(logits, labels), buffers

    def _place(self, state: State) -> Tensor:
        # Round and round: the calls before a capture may be more than there are steps.
        return state["step"] % self.recipe.steps

    def _at_step(self, state: State, name: str) -> Tensor:
        return state[name].index_select(0, self._place(state)).squeeze(0)
