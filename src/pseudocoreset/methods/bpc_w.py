"""BPC-W: the Wasserstein distance between posteriors of the weights (Kim et al., 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.options import option
from pseudocoreset.engine.random import Rng
from pseudocoreset.methods.base import Context, Divergence, Estimate, Points
from pseudocoreset.methods.weight_space import (
    Segment,
    Update,
    WeightSpace,
    gathered,
    gradients_by,
    learned_leaves,
    nothing_gathered,
)
from pseudocoreset.methods.window import Window, refuse_drawing
from pseudocoreset.nets import Weights

LEAST_LR = 0.01
"""The learned learning rate stays above this share of its initial value."""


class _Update(Update):
    """A student, and the way back through its steps."""

    def __init__(self, method: WeightSpace, context: Context, size: int, rng: Rng) -> None:
        super().__init__(method, context, size, rng)
        assert isinstance(method, BPCWasserstein)
        self._method = method
        self._window = Window(context, method.student_steps, self.batch, rng)
        self._ahead = Loop(self._step_ahead, rng.device)
        self._back = Loop(self._step_back, rng.device)

    def estimate(self, coreset: Points, segment: Segment, state: State) -> Estimate:
        """The gradient by the images, and one step of the learning rate's own descent."""
        first = self._method.lr_student * self.likelihood.step_scale
        change = state["lr_change"]
        lr = first + change
        batches = self._window.draw(coreset)
        student = self._train(coreset, segment.start, lr, batches)
        way = segment.start.params - segment.target.params
        away, scale = student["params"] - segment.target.params, way.square().sum()
        found = self._go_back(coreset, 2 * away / scale, lr, batches)
        # Not as a new η less the first: its steps are small beside it and would be rounded away.
        change = change - self._method.lr_lr * found["slope_lr"]
        change = change.clamp(min=(LEAST_LR - 1) * first)
        info = {
            "distance": float(away.square().sum() / scale),
            "student_loss": float(student["loss_sum"] / self._method.student_steps),
            "lr_student": first + float(state["lr_change"]),
            "start_epoch": segment.epoch,
        }
        return Estimate(gathered(found), {"lr_change": change}, info)

    def _train(self, coreset: Points, start: Weights, lr: Tensor, batches: State) -> State:
        """All steps ahead; θ_t of each is kept in `path_…`."""
        named, path = start._asdict(), self._window.no_path(start)
        sums = {"loss_sum": coreset.inputs.new_zeros(()), "step": batches["index"].new_zeros(1)}
        self._ahead.load({**coreset._asdict(), **batches, **named, **path, **sums, "lr": lr})
        self._ahead.run(self._window.steps)
        return self._ahead.state

    def _go_back(self, coreset: Points, adjoint: Tensor, lr: Tensor, batches: State) -> State:
        """All steps back; `adjoint` is the gradient by where the student ended."""
        steps = self._window.steps
        self._back.load({**nothing_gathered(coreset), **batches, "lr": lr, "adjoint": adjoint})
        self._back.load({k: v for k, v in self._ahead.state.items() if k.startswith("path_")})
        last = batches["index"].new_full((1,), steps - 1)
        self._back.load({"step": last, "slope_lr": torch.zeros_like(lr)})
        self._back.run(steps)
        return self._back.state

    def _step_ahead(self, state: State) -> State:
        """θ_{t+1} from θ_t, which is kept."""
        theta = Weights(state["params"].detach().requires_grad_(), state["buffers"])
        with torch.enable_grad():
            loss, buffers = self._window.loss(theta, state["inputs"], state["targets"], state)
            (gradient,) = torch.autograd.grad(loss, theta.params)
        self._window.keep(state)
        return {
            "params": state["params"] - state["lr"] * gradient,
            "buffers": buffers,
            "loss_sum": state["loss_sum"] + loss.detach(),
            "step": state["step"] + 1,
        }

    def _step_back(self, state: State) -> State:
        """λ_t from λ_{t+1}, and what step t adds to the gradients."""
        theta = self._window.weights(state)
        theta.params.requires_grad_()
        leaves = learned_leaves(state)
        with torch.enable_grad():
            targets = leaves.get("targets", state["targets"])
            loss, _ = self._window.loss(theta, leaves["inputs"], targets, state)
            (gradient,) = torch.autograd.grad(loss, theta.params, create_graph=True)
            phi = gradient @ state["adjoint"]
            slopes = gradients_by({"theta": theta.params, **leaves}, phi)
        slopes["adjoint"] = slopes.pop("gradient_theta")
        changed = {name: state[name] - state["lr"] * slope for name, slope in slopes.items()}
        return {
            **changed,
            "slope_lr": state["slope_lr"] - phi.detach(),
            "step": state["step"] - 1,
        }


@dataclass(frozen=True)
class BPCWasserstein(WeightSpace):
    """BPC-W: the gradient of the Wasserstein distance ‖μ_u − μ_x‖², relative to the expert's path.

        ∇_u ‖θ_T − μ_x‖² / ‖θ₀ − μ_x‖²    with θ_{t+1} = θ_t − η ∇_θ CE(u_t; θ_t)

    u_t is the coreset with a new augmentation in each step. The gradient flows through all steps.
    The learning rate η is learned too and kept between updates.

    The gradient is computed backwards, step by step. With λ_T = ∂/∂θ_T and
    φ_t = ⟨∇_θ CE(u_t; θ_t), λ_t+1⟩:

        λ_t = λ_t+1 − η ∂φ_t/∂θ_t,    ∂/∂u = −η Σ_t ∂φ_t/∂u,    ∂/∂η = −Σ_t φ_t

    so the memory needed is that of one step and of T weight vectors. Networks with random forward
    passes (dropout) are refused, because the steps must be repeatable.

    If the coreset has more than `batch` images, each step uses `batch` of them in random order.
    """

    name: ClassVar[str] = "bpc-w"
    title: ClassVar[str] = "BPC-W"
    update: ClassVar[type[Update]] = _Update

    expert_epochs: int = option(
        1, "epochs of the expert that the student is compared after", at_least=1
    )
    lr_lr: float = option(
        1e-5, "learning rate of the students' learning rate; 0 keeps it fixed", at_least=0
    )

    @property
    def follows(self) -> int:
        """Epochs of the expert between θ₀ and μ_x."""
        return self.expert_epochs

    def prepare(self, context: Context) -> Divergence:
        """The gradient for one network."""
        refuse_drawing(context, self.name)
        return super().prepare(context)

    def begin(self, context: Context) -> State:
        """By how much η has changed."""
        return {"lr_change": torch.zeros((), device=context.device)}
