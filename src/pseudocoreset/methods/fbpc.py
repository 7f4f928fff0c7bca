"""FBPC, the function-space Bayesian pseudocoreset (Kim, Lee and Lee, 2023), Algorithm 1."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.augment import Draw
from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.options import option
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.search import Around, Epochs
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.errors import UserError
from pseudocoreset.methods.base import Context, Divergence, Estimate, Method, Points
from pseudocoreset.methods.function_space import (
    FunctionPosterior,
    OutputVariance,
    negative_log_likelihood,
)
from pseudocoreset.methods.map_solution import MapSolution, MapSolver, random_order
from pseudocoreset.nets import Weights
from pseudocoreset.training import coreset_points, outputs_of


@dataclass(frozen=True)
class _FunctionSpace(Method):
    samples: int = option(30, "Monte-Carlo samples (S)", at_least=1)
    from_epoch: int = option(
        2, "first epoch of the experts to use (T)", at_least=0, search=Epochs()
    )
    to_epoch: int | None = option(
        None,
        "last epoch of the experts to use; none: their last",
        at_least=0,
        search=Epochs(after="from_epoch"),
    )
    gamma: float = option(
        0.1,
        "training loss at which the MAP solution of the coreset counts as found (γ), measured "
        "from the lowest possible loss",
        above=0,
        search=Around(2, 8),
    )
    lr_map: float = option(0.001, "learning rate of Adam for the MAP solution", above=0)
    max_map_steps: int = option(5000, "most steps for the MAP solution", at_least=1)
    draws: int = option(1, "augmented copies of the coreset per update", at_least=1)
    experts_each: int = option(
        1, "experts per update; the augmented copies are divided among them", at_least=1
    )
    reuse: int = option(1, "number of updates that share one MAP solution", at_least=1)
    reuse_steps: int = option(
        10, "training steps on a shared MAP solution between updates", at_least=1
    )

    def check(self) -> None:
        if self.to_epoch is not None and self.to_epoch < self.from_epoch:
            raise UserError(
                f"`to_epoch` {self.to_epoch} is before `from_epoch` {self.from_epoch}: give a "
                "later one.",
                "to_epoch",
            )
        if self.experts_each > self.draws:
            raise UserError(
                f"`experts_each` is {self.experts_each}, more than the {self.draws} `draws` that "
                "they share: give fewer.",
                "experts_each",
            )

    def resolved(self, values: Mapping[str, Any]) -> Self:
        """A recipe's last epoch does not count where a later first one is given."""
        last = values.get("to_epoch")
        if "from_epoch" in self.given and last is not None and last < self.from_epoch:
            values = {**values, "to_epoch": None}
        return super().resolved(values)

    def within(self, last_epoch: int, given: frozenset[str]) -> Self:
        """A recipe's epochs, as far as the experts go."""
        first, last = self.from_epoch, self.to_epoch
        if "from_epoch" not in given and first > last_epoch:
            first = max(1, last_epoch // 2)
        if "to_epoch" not in given and last is not None and last > last_epoch:
            last = None
        return replace(self, from_epoch=first, to_epoch=last)

    def prepare(self, context: Context) -> Divergence:
        return _FBPCDivergence(self, context)


@dataclass(frozen=True)
class FBPC(_FunctionSpace):
    """FBPC: the gradient of KL[ν_x ‖ ν_u] over network outputs (Kim, Lee and Lee, 2023).

        ∇_u ≈ 1/S Σ_s ( −∇_u log p(ỹ | μ̂_x + Ψ̂_x^½ ε_x) + ∇_u log p(ỹ | μ̂_u + Ψ̂_u^½ ε_u) )

    The means μ̂ are the outputs at u of a MAP solution: an expert's snapshot for the real data, and
    a network trained on the coreset until its loss is below `gamma`. Ψ̂ is the variance of the
    outputs over K more steps from there, each with a new augmentation of u. No gradient flows
    through θ and Ψ̂.

    Both means use the same augmentations of u. If the coreset has more than `batch` points, an
    update moves `batch` of them. If `reuse` is above 1, several updates share a MAP solution of
    the coreset, which is trained for a few more steps each time. If `experts_each` is above 1, the
    loss under the data's posterior is the mean over several experts.
    """

    name: ClassVar[str] = "fbpc"
    lr_x: float = option(0.05, "learning rate of the steps on real data (λ_x)", above=0)
    lr_u: float = option(0.01, "learning rate of the steps on the coreset (λ_u)", above=0)
    covariance_steps: int = option(
        30, "training steps for the empirical covariance (K)", at_least=1
    )
    real_batch: int = option(256, "real points per step", at_least=1)


@dataclass(frozen=True)
class FBPCIsotropic(_FunctionSpace):
    """FBPC with variances Ψ̂ = 1. It needs no covariance steps and is faster."""

    name: ClassVar[str] = "fbpc-isotropic"


class _FBPCDivergence:
    """One network's share of the gradient."""

    def __init__(self, method: _FunctionSpace, context: Context) -> None:
        if context.experts is None:
            raise UserError("FBPC needs trained experts: give `experts`.", "experts")
        last = context.experts.last_epoch if method.to_epoch is None else method.to_epoch
        context.experts.require(method.from_epoch, last)
        self._method = method
        self._context = context
        self._experts = context.experts
        self._inner: _Inner | None = None

    def start(self) -> State:
        """Nothing; later, the MAP solution that several updates share."""
        return {}

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """One pass through the body of Algorithm 1."""
        if self._inner is None or self._inner.rng is not rng:
            self._inner = _Inner(self._method, self._context, len(coreset.inputs), rng)
        inner, method = self._inner, self._method

        index = inner.draw_batch()
        batch = coreset if index is None else Points(*(part[index] for part in coreset))
        draws = inner.draw_augmentations(batch.inputs)
        experts = [
            self._experts.draw(method.from_epoch, rng, self._context.device, method.to_epoch)
            for _ in range(method.experts_each)
        ]
        followed = state if state and int(state["uses"]) < method.reuse else {}
        if not inner.has_covariance:
            solution = inner.solution(coreset, followed)
            unit = batch.inputs.new_ones((len(batch.inputs), self._context.net.outputs))
            variances_x, variance_u = [unit] * len(experts), unit
        else:
            with inner.side:
                variances_x = [inner.variance_on_real_data(one, batch.inputs) for one in experts]
            solution = inner.solution(coreset, followed)
            variance_u = inner.variance_on_coreset(solution.weights, batch.inputs, coreset)
            inner.side.wait()
        kept: State = {}
        if method.reuse > 1:
            uses = int(followed["uses"]) + 1 if followed else 1
            kept = {**inner.solver.kept(), "uses": torch.tensor(uses)}
        found = inner.estimate(batch, draws, (experts, variances_x), (solution, variance_u))
        info = {
            "loss_x": float(found["loss_x"]),
            "loss_u": float(found["loss_u"]),
            "variance_x": float(torch.stack(variances_x).mean()),
            "variance_u": float(variance_u.mean()),
            "map_loss": solution.loss,
            "map_steps": solution.steps,
            "map_missed": int(not solution.reached),
        }
        return Estimate(_spread(found, coreset, index), kept, info)


def _spread(found: State, coreset: Points, index: Tensor | None) -> State:
    """The gradients of a batch as gradients of the whole coreset, zero elsewhere."""
    gradients = {
        name: found[f"gradient_{name}"]
        for name in ("inputs", "targets")
        if f"gradient_{name}" in found
    }
    if index is None:
        return {name: value.clone() for name, value in gradients.items()}
    return {
        name: torch.zeros_like(getattr(coreset, name)).index_copy(0, index, value)
        for name, value in gradients.items()
    }


class _Inner:
    """The loops of one update, made once: their steps are captured on first use."""

    def __init__(self, method: _FunctionSpace, context: Context, size: int, rng: Rng) -> None:
        self.rng = rng
        self._method = method
        self._context = context
        self._size = size
        batch = context.batch_of(size)
        self._batch = batch
        self.solver = MapSolver(method, context, batch, rng)
        self.side = SideStream(context.device, apart=not context.net.draws)
        self._side_rng = rng.side()
        self.has_covariance = isinstance(method, FBPC)
        if isinstance(method, FBPC):
            steps, real = method.covariance_steps, method.real_batch
            self._needed = steps * real
            self._on_real = OutputVariance(
                context, context.real, method.lr_x, steps, real, self._side_rng
            )
            self._on_coreset = OutputVariance(
                context, coreset_points, method.lr_u, steps, batch, rng
            )
        self._outputs = outputs_of(context.net, context.device)
        self._estimator = Loop(self._estimate, rng.device)

    def draw_batch(self) -> Tensor | None:
        """Which images this update moves; None for all."""
        return None if self._batch is None else random_order(self._size, self.rng)[: self._batch]

    def draw_augmentations(self, images: Float[Tensor, "b ..."]) -> list[Draw]:
        """The siamese draws of this update."""
        return [
            self._context.augmentation.draw(len(images), images.shape[-1], self.rng.device)
            for _ in range(self._method.draws)
        ]

    def solution(self, coreset: Points, kept: State) -> MapSolution:
        """A MAP solution of the coreset: one that follows it, or a new one."""
        if kept:
            return self.solver.follow(coreset, kept, self._method.reuse_steps)
        return self.solver.solve(coreset)

    def variance_on_real_data(self, theta: Weights, points: Tensor) -> Tensor:
        """Ψ̂_x: K steps on batches of the real data."""
        order = torch.randint(
            len(self._context.real.split),
            (self._needed,),
            generator=self._side_rng.device,
            device=self._context.device,
        )
        return self._on_real.along(theta, points, {}, order)

    def variance_on_coreset(self, theta: Weights, points: Tensor, coreset: Points) -> Tensor:
        """Ψ̂_u: K steps on the coreset."""
        order = None if self._batch is None else random_order(self._size, self.rng)
        return self._on_coreset.along(theta, points, coreset._asdict(), order)

    def estimate(
        self,
        batch: Points,
        draws: list[Draw],
        data: tuple[list[Weights], list[Tensor]],
        coreset: tuple[MapSolution, Tensor],
    ) -> State:
        """Equation `fbpc_mc_grad`, given MAP solutions and variances of both posteriors."""
        inputs: State = dict(batch._asdict())
        solution, variance = coreset
        sides = {"x": data, "u": ([solution.weights], [variance])}
        for name, (weights, variances) in sides.items():
            inputs[f"params_{name}"] = torch.stack([one.params for one in weights])
            inputs[f"buffers_{name}"] = torch.stack([one.buffers for one in weights])
            inputs[f"variance_{name}"] = torch.stack(variances)
        for name in Draw._fields:
            inputs[f"draw_{name}"] = torch.stack([getattr(draw, name) for draw in draws])
        if not self._estimator.state:  # what the step is to write must be there before it
            zero = batch.inputs.new_zeros(())
            inputs |= {"loss_x": zero, "loss_u": zero, "gradient_inputs": batch.inputs}
            if batch.targets.is_floating_point():
                inputs["gradient_targets"] = batch.targets
        self._estimator.load(inputs)
        self._estimator.run(1)
        return self._estimator.state

    def _estimate(self, state: State) -> State:
        """The losses of both posteriors and the gradient of their difference.

        A posterior and a draw at a time, so that memory does not grow with the draws.
        """
        learned = ["inputs", "targets"] if state["targets"].is_floating_point() else ["inputs"]
        found = {f"gradient_{name}": torch.zeros_like(state[name]) for name in learned}
        for side, sign in (("x", 1), ("u", -1)):
            losses = []
            for number in range(self._method.draws):
                which = number % len(state[f"params_{side}"])
                theta = Weights(state[f"params_{side}"][which], state[f"buffers_{side}"][which])
                leaves = {name: state[name].detach().requires_grad_() for name in learned}
                draw = Draw(*(state[f"draw_{field}"][number] for field in Draw._fields))
                with torch.enable_grad():
                    points = self._context.augmentation.apply(leaves["inputs"], draw)
                    mean = self._outputs(theta, points)
                    posterior = FunctionPosterior(mean, state[f"variance_{side}"][which])
                    outputs = posterior.sample(self._method.samples, self.rng.device)
                    targets = leaves.get("targets", state["targets"])
                    loss = negative_log_likelihood(self._context.likelihood, outputs, targets)
                    gradients = torch.autograd.grad(loss, list(leaves.values()))
                losses.append(loss.detach())
                share = sign / self._method.draws
                for name, gradient in zip(leaves, gradients, strict=True):
                    found[f"gradient_{name}"] += share * gradient
            found[f"loss_{side}"] = torch.stack(losses).mean()
        return found
