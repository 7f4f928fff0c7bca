"""BPC-fKL: the forward KL between posteriors of the weights (Kim et al., 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.options import option
from pseudocoreset.engine.random import Rng
from pseudocoreset.methods.base import Context, Estimate, Points
from pseudocoreset.methods.weight_space import (
    Sampled,
    Segment,
    Student,
    Update,
    WeightSpace,
    around,
    draw_chosen,
    gradients_by,
    learned_leaves,
    nothing_gathered,
    sampled_estimate,
)
from pseudocoreset.nets import Weights


class _Update(Update):
    """A student, then S samples of both posteriors, a group at a time."""

    def __init__(self, method: WeightSpace, context: Context, size: int, rng: Rng) -> None:
        super().__init__(method, context, size, rng)
        assert isinstance(method, Sampled)
        self._method = method
        self._student = Student(method, self)
        self._samples = Loop(self._add_group, rng.device)

    def estimate(self, coreset: Points, segment: Segment, state: State) -> Estimate:
        """Equation `bpc-fkl`."""
        mean_u = self._student.train(segment.start, coreset)
        inputs = nothing_gathered(coreset, "loss_x", "loss_u")
        inputs["chosen"] = draw_chosen(len(coreset.inputs), self)
        for name, weights in (("x", segment.target), ("u", mean_u)):
            inputs[f"params_{name}"], inputs[f"buffers_{name}"] = weights
        self._samples.load(inputs)
        self._samples.run(self._method.samples // self._method.group_size)
        return sampled_estimate(self._samples.state, segment, self._student, state)

    def _add_group(self, state: State) -> State:
        """Add the gradients of a group of samples."""
        augmentation, generator = self.context.augmentation, self.rng.device
        leaves = learned_leaves(state)
        losses = {name: state["loss_x"].new_zeros(()) for name in ("x", "u")}
        with torch.enable_grad():
            inputs = leaves["inputs"].index_select(0, state["chosen"])
            targets = leaves.get("targets", state["targets"]).index_select(0, state["chosen"])
            for _ in range(self._method.group_size):
                draw = augmentation.draw(len(inputs), inputs.shape[-1], generator)
                points = augmentation.apply(inputs, draw)
                for name in losses:
                    params = around(state[f"params_{name}"], self._method.noise, generator)
                    theta = Weights(params, state[f"buffers_{name}"])
                    loss = self.likelihood.loss(self.apply(theta, points), targets)
                    losses[name] = losses[name] + loss / self._method.samples
            added = gradients_by(leaves, losses["x"] - losses["u"])
        added |= {f"loss_{name}": loss.detach() for name, loss in losses.items()}
        return {name: state[name] + value for name, value in added.items()}


@dataclass(frozen=True)
class BPCForwardKL(Sampled):
    """BPC-fKL: the gradient of KL[π_x ‖ π_u] over weights (Kim et al., 2022).

        ∇_u ≈ 1/S Σ_s ( −∇_u log p(ỹ | u, μ_x + σ ε_x) + ∇_u log p(ỹ | u, μ_u + σ ε_u) ) / m

    μ_x is an expert one epoch after its snapshot θ₀. μ_u is a student, trained on the coreset for
    some steps from θ₀. No gradient flows through either. Each sample s has its own augmentation of
    u, the same for both terms.

    Samples are processed `group` at a time, so memory depends on `group` and not on `samples`.
    """

    name: ClassVar[str] = "bpc-fkl"
    title: ClassVar[str] = "BPC-fKL"
    update: ClassVar[type[Update]] = _Update

    expert_epochs: int = option(
        1, "epochs of the expert that the student is compared after", at_least=1
    )

    @property
    def follows(self) -> int:
        """Epochs of the expert between θ₀ and μ_x."""
        return self.expert_epochs
