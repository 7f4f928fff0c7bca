"""BPC-W: the Wasserstein distance between posteriors of the weights (Kim et al., 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pseudocoreset.augment import Draw
from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.options import option
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.methods.base import Context, Divergence, Estimate, Points
from pseudocoreset.methods.map_solution import random_order
from pseudocoreset.methods.weight_space import (
    Segment,
    Update,
    WeightSpace,
    draw_entries,
    gathered,
    gradients_by,
    learned_leaves,
    nothing_gathered,
)
from pseudocoreset.nets import Weights

LEAST_LR = 0.01
"""The learned learning rate stays above this share of what it was at first."""


class _Update(Update):
    """A student, and the way back through its steps."""

    def __init__(self, method: WeightSpace, context: Context, size: int, rng: Rng) -> None:
        super().__init__(method, context, size, rng)
        assert isinstance(method, BPCWasserstein)
        self._method = method
        self._ahead = Loop(self._step_ahead, rng.device)
        self._back = Loop(self._step_back, rng.device)

    def estimate(self, coreset: Points, segment: Segment, state: State) -> Estimate:
        """The gradient by the images, and one step of the learning rate's own descent."""
        first = self._method.lr_student * self.likelihood.step_scale
        change = state["lr_change"]
        lr = first + change
        batches = self._draw_batches(coreset)
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

    def _draw_batches(self, coreset: Points) -> State:
        """For each step, which images it takes (`index`) and their augmentation (`draw_…`)."""
        steps, size = self._method.student_steps, len(coreset.inputs)
        generator = self.rng.device
        index = torch.arange(size, device=generator.device).expand(steps, -1)
        if self.batch is not None:
            place = torch.arange(steps * self.batch, device=generator.device) % size
            index = random_order(size, self.rng)[place].view(steps, self.batch)
        number, side = index.shape[1], coreset.inputs.shape[-1]
        draws = [self.context.augmentation.draw(number, side, generator) for _ in range(steps)]
        stacked = Draw(*(torch.stack(part) for part in zip(*draws, strict=True)))
        return {"index": index, **draw_entries(stacked)}

    def _train(self, coreset: Points, start: Weights, lr: Tensor, batches: State) -> State:
        """All steps ahead; θ_t of each is kept in `path_…`."""
        steps = self._method.student_steps
        named = start._asdict()
        path = {f"path_{k}": v.new_zeros((steps, *v.shape)) for k, v in named.items()}
        sums = {"loss_sum": coreset.inputs.new_zeros(()), "step": batches["index"].new_zeros(1)}
        self._ahead.load({**coreset._asdict(), **batches, **named, **path, **sums, "lr": lr})
        self._ahead.run(steps)
        return self._ahead.state

    def _go_back(self, coreset: Points, adjoint: Tensor, lr: Tensor, batches: State) -> State:
        """All steps back; `adjoint` is the gradient by where the student ended."""
        steps = self._method.student_steps
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
            loss, buffers = self._loss(theta, state["inputs"], state["targets"], state)
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
            targets = leaves.get("targets", state["targets"])
            loss, _ = self._loss(theta, leaves["inputs"], targets, state)
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

    def _loss(
        self, theta: Weights, inputs: Tensor, targets: Tensor, state: State
    ) -> tuple[Tensor, Tensor]:
        """CE(u_t; θ), and the buffers after it."""
        draw = Draw(*(self._at_step(state, f"draw_{name}") for name in Draw._fields))
        index = self._at_step(state, "index")
        inputs, targets = (part.index_select(0, index) for part in (inputs, targets))
        points = self.context.augmentation.apply(inputs, draw)
        outputs, buffers = self.context.net.train(theta, points)
        return self.likelihood.loss(outputs, targets), buffers

    def _place(self, state: State) -> Tensor:
        # Round and round: a loop may call its step a few times more, before those that count.
        return state["step"] % self._method.student_steps

    def _at_step(self, state: State, name: str) -> Tensor:
        return state[name].index_select(0, self._place(state)).squeeze(0)


@dataclass(frozen=True)
class BPCWasserstein(WeightSpace):
    """The gradient of W₂²[N(μ_x, Σ), N(μ_u, Σ)] = ‖μ_u − μ_x‖², relative to the expert's own way.

        ∇_u ‖θ_T − μ_x‖² / ‖θ₀ − μ_x‖²    with θ_{t+1} = θ_t − η ∇_θ CE(u_t; θ_t)

    u_t is the coreset under an augmentation of its own each step. The gradient goes through all
    steps and to η too, which is learned: it is what the method keeps between updates.

    Gathered backwards, a step at a time: with λ_T = ∂/∂θ_T and φ_t = ⟨∇_θ CE(u_t; θ_t), λ_t+1⟩:

        λ_t = λ_t+1 − η ∂φ_t/∂θ_t,    ∂/∂u = −η Σ_t ∂φ_t/∂u,    ∂/∂η = −Σ_t φ_t

    so memory is that of one step and of T vectors of weights. A person's own network that draws
    random numbers in its forward pass (dropout) is refused: the way back would see others.

    A coreset of more than `batch` images is gone through in random order, `batch` a step.
    """

    name: ClassVar[str] = "bpc-w"
    title: ClassVar[str] = "BPC-W"
    update: ClassVar[type[Update]] = _Update

    expert_epochs: int = option(
        1, "compare the student with the expert so many epochs after its start", at_least=1
    )
    lr_lr: float = option(
        1e-5, "learning rate of the students' learning rate; 0 leaves it as it is", at_least=0
    )

    @property
    def follows(self) -> int:
        """Epochs of the expert that an update follows from its start."""
        return self.expert_epochs

    def prepare(self, context: Context) -> Divergence:
        """The gradient for one network."""
        if context.net.draws:
            raise UserError(
                f"{context.net.spec} draws random numbers as it trains (dropout, say), and bpc-w "
                "goes back through its steps, where they would be others: give another `method`.",
                "method",
            )
        return super().prepare(context)

    def begin(self, context: Context) -> State:
        """By how much η has changed."""
        return {"lr_change": torch.zeros((), device=context.device)}
