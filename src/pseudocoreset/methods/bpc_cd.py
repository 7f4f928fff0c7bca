"""BPC-CD: the forward KL by samples of both posteriors, from chains that follow the coreset."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch

from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.options import option
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.methods.base import Context, Divergence, Estimate, Method, Points
from pseudocoreset.methods.map_solution import random_order
from pseudocoreset.methods.weight_space import (
    gathered,
    gradients_by,
    learned_leaves,
    nothing_gathered,
)
from pseudocoreset.nets import Weights
from pseudocoreset.posterior.sghmc import SGHMCRule
from pseudocoreset.training import Source, Training, coreset_points, outputs_of

SIDES = ("x", "u")
"""The posterior of the data, and that of the coreset."""
KEPT = ("params", "buffers", "velocity")
"""A chain between two updates."""


@dataclass(frozen=True)
class BPCContrastive(Method):
    """BPC-CD: the gradient of KL[π_x ‖ π_u] over weights, by samples of both posteriors.

        ∇_u = E_{π_x}[∇_u U_u(θ)] − E_{π_u}[∇_u U_u(θ)],   U_u(θ) = −n/m Σ_i log p(ỹ_i | u_i, θ)

    Both expectations are means over chains of SGHMC with the same prior, temperature and step size:
    `chains` on batches of real points, and as many on the coreset, whose m points count n/m times
    each. The chains continue from update to update (persistent contrastive divergence), so those of
    the coreset follow it. Before the first update they make `warm_up` steps.

    The gradient is that of the mean loss over points. Each pair of chains has its own augmentation
    of u. If the coreset has more than `batch` points, a step of a chain uses `batch` of them, and
    an update moves as many.
    """

    name: ClassVar[str] = "bpc-cd"
    needs_experts: ClassVar[bool] = False

    chains: int = option(8, "chains for each of the two posteriors", at_least=1)
    chain_steps: int = option(5, "steps of each chain per update", at_least=1)
    warm_up: int = option(3000, "steps of each chain before the first update", at_least=0)
    lr_chains: float = option(0.03, "step size of the chains (η)", above=0)
    friction: float = option(0.1, "friction of the chains (α)", above=0, at_most=1)
    prior: float = option(1.0, "precision τ of the prior N(0, 1/τ) of the weights", at_least=0)
    temperature: float = option(1.0, "temperature of both posteriors", at_least=0)
    real_batch: int = option(256, "real points per step", at_least=1)

    def without_warm_up(self) -> tuple[Self, float]:
        """The same without the chains' first steps, and how many updates these take."""
        return replace(self, warm_up=0), self.warm_up / self.chain_steps

    def prepare(self, context: Context) -> Divergence:
        """The gradient for one network."""
        return _ContrastiveDivergence(self, context)


class _ContrastiveDivergence:
    """One network's share of the gradient, and its chains."""

    def __init__(self, method: BPCContrastive, context: Context) -> None:
        self._method = method
        self._context = context
        self._inner: _Inner | None = None

    def start(self) -> State:
        """Room for the chains, which begin with the first update."""
        weights = self._context.net.init(torch.Generator(self._context.device).manual_seed(0))
        one = {**weights._asdict(), "velocity": weights.params}
        room = {k: v.new_zeros((self._method.chains, *v.shape)) for k, v in one.items()}
        chains = {f"{name}_{side}": v for side in SIDES for name, v in room.items()}
        return {**chains, "begun": weights.params.new_zeros(())}

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """Let all chains take some steps, and compare the losses at u where they are."""
        if self._inner is None or self._inner.rng is not rng:
            self._inner = _Inner(self._method, self._context, len(coreset.inputs), rng)
        begun = float(state["begun"]) == 1
        steps = self._method.chain_steps + (0 if begun else self._method.warm_up)
        chains = self._inner.walked(coreset, state if begun else None, steps)
        found = self._inner.estimate(coreset, chains)
        info = {"loss_x": float(found["loss_x"]), "loss_u": float(found["loss_u"])}
        return Estimate(gathered(found), {**chains, "begun": torch.ones_like(state["begun"])}, info)


class _Chain:
    """Where a chain walks, beside the others; its step is captured once."""

    def __init__(self, method: BPCContrastive, context: Context, side: str, size: int, rng: Rng):
        number = len(context.real.split)
        likelihood = context.likelihood
        self._net = context.net
        self._rng = rng.side()
        self._stream = SideStream(context.device, apart=not context.net.draws)
        self._source: Source = context.real if side == "x" else coreset_points
        self._size = number if side == "x" else size
        batch = min(method.real_batch, number) if side == "x" else context.batch_of(size)
        self._batch = batch
        self._rule = SGHMCRule(
            method.lr_chains * likelihood.step_scale,
            method.friction,
            method.temperature,
            method.prior / number,
            number,
        )
        self._training = Training(
            context.net,
            self._rule,
            self._source,
            context.augmentation,
            likelihood,
            self._rng.device,
            batch=batch,
        )

    def go(self, coreset: Points, kept: State | None, steps: int) -> None:
        """Begin some steps, from where the chain was, or from a random network."""
        with self._stream:
            points = coreset._asdict() if self._source is coreset_points else {}
            if kept is None:
                self._training.start(self._net.init(self._rng.device), points)
            else:
                start = Weights(kept["params"], kept["buffers"])
                self._training.start(start, {**points, "velocity": kept["velocity"]})
            if self._batch is None:
                self._training.run(steps)
                return
            an_epoch = max(self._size // self._batch, 1)
            for done in range(0, steps, an_epoch):
                self._training.set_order(random_order(self._size, self._rng))
                self._training.run(min(an_epoch, steps - done))

    def state(self) -> State:
        """Where the chain is, after its steps."""
        self._stream.wait()
        return {name: self._training.state[name] for name in KEPT}


class _Inner:
    """The loops of one update, made once: their steps are captured on first use."""

    def __init__(self, method: BPCContrastive, context: Context, size: int, rng: Rng) -> None:
        self.rng = rng
        self._context = context
        self._number = method.chains
        self._size = size
        self._batch = context.batch_of(size)
        self._chains = {
            side: [_Chain(method, context, side, size, rng) for _ in range(method.chains)]
            for side in SIDES
        }
        self._outputs = outputs_of(context.net, context.device)
        self._samples = Loop(self._add_pair, rng.device)

    def walked(self, coreset: Points, begun: State | None, steps: int) -> State:
        """The chains after some steps; new ones if none were begun."""
        for place in range(self._number):
            for side in SIDES:
                kept = begun and {name: begun[f"{name}_{side}"][place] for name in KEPT}
                self._chains[side][place].go(coreset, kept, steps)
        ends = {side: [chain.state() for chain in self._chains[side]] for side in SIDES}
        return {
            f"{name}_{side}": torch.stack([end[name] for end in ends[side]])
            for side in SIDES
            for name in KEPT
        }

    def estimate(self, coreset: Points, chains: State) -> State:
        """The gradients, and the mean losses at u under both posteriors."""
        inputs = nothing_gathered(coreset, "loss_x", "loss_u")
        device = self.rng.device.device
        moved = torch.arange(self._size, device=device)
        if self._batch is not None:
            moved = random_order(self._size, self.rng)[: self._batch]
        where = {f"{name}_{side}": chains[f"{name}_{side}"] for side in SIDES for name in KEPT[:2]}
        place = torch.arange(1, device=device)
        self._samples.load({**inputs, **where, "moved": moved, "place": place})
        self._samples.run(self._number)
        return self._samples.state

    def _add_pair(self, state: State) -> State:
        """Add the gradients under one chain of each posterior."""
        augmentation, generator = self._context.augmentation, self.rng.device
        leaves, place = learned_leaves(state), state["place"]
        losses: State = {}
        with torch.enable_grad():
            inputs = leaves["inputs"].index_select(0, state["moved"])
            targets = leaves.get("targets", state["targets"]).index_select(0, state["moved"])
            draw = augmentation.draw(len(inputs), inputs.shape[-1], generator)
            points = augmentation.apply(inputs, draw)
            for side in SIDES:
                at = (state[f"{k}_{side}"].index_select(0, place).squeeze(0) for k in KEPT[:2])
                outputs = self._outputs(Weights(*at), points)
                losses[side] = self._context.likelihood.loss(outputs, targets) / self._number
            added = gradients_by(leaves, losses["x"] - losses["u"])
        added |= {f"loss_{side}": loss.detach() for side, loss in losses.items()}
        summed = {name: state[name] + value for name, value in added.items()}
        return {**summed, "place": (place + 1) % self._number}
