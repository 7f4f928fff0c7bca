"""Unrolled: the gradient through a window of training steps."""

from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import torch
from torch import Tensor

from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.options import option
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.search import Around
from pseudocoreset.errors import UserError
from pseudocoreset.methods.base import Context, Divergence, Estimate, Method, Points
from pseudocoreset.methods.map_solution import random_order
from pseudocoreset.methods.weight_space import (
    gathered,
    gradients_by,
    learned_leaves,
    nothing_gathered,
)
from pseudocoreset.methods.window import Window, refuse_drawing
from pseudocoreset.nets import Weights
from pseudocoreset.training import outputs_of

UNBORN = -1
"""The age of a network of the pool that was not used yet."""
NEWEST = 0.1
"""What the newest gradient counts in the running mean of their norms."""
MEMBER = ("params", "buffers", "velocity")
"""What the pool keeps of a network, beside its age."""


@dataclass(frozen=True)
class Unrolled(Method):
    """The gradient of the loss on real data through W training steps on the coreset.

        ∇_u,ỹ mean_x −log 1/J Σ_j p(y | f_θj(x)),    θj = θ_W after W steps from a network of a pool

    A step is one of SGHMC at temperature 0, on an augmented batch u_t of the coreset:

        v_t+1 = (1−α) v_t − η (∇_θ CE(u_t; θ_t) + d θ_t),    θ_t+1 = θ_t + v_t+1

    The gradient is computed backwards, step by step. With λ_t and κ_t the gradients by θ_t and v_t,
    λ_W = ∂/∂θ_W, κ_W = 0, r_t = λ_t+1 + κ_t+1 and φ_t = ⟨∇_θ CE(u_t; θ_t), r_t⟩:

        κ_t = (1−α) r_t,    λ_t = λ_t+1 − η (∂φ_t/∂θ_t + d r_t),    ∂/∂u = −η Σ_t ∂φ_t/∂u

    and ∂/∂ỹ likewise. The memory needed is that of one step and of J·W weight vectors. Networks
    with random forward passes (dropout) are refused, because the steps must be repeatable.

    Each update trains J networks of the pool further. A network that is `longest` steps old is
    replaced by a new one. So that ages differ from the beginning, network i of P is trained for
    i/P of `longest` steps before it is first used.

    If the norm of the gradient with respect to the inputs is above `clip` times its running mean,
    the whole gradient is scaled down to that.
    """

    name: ClassVar[str] = "unrolled"
    needs_experts: ClassVar[bool] = False

    window: int = option(20, "steps that the gradient goes through (W)", at_least=1)
    networks: int = option(2, "networks per update; their predictions are averaged", at_least=1)
    pool: int = option(8, "number of networks in the pool", at_least=1)
    longest: int = option(
        300, "steps after which a network of the pool is replaced by a new one", at_least=1
    )
    real_batch: int = option(1000, "real points per update", at_least=1)
    inner_step: float = option(
        0.03, "step size of the networks' training (η)", above=0, search=Around(4)
    )
    inner_friction: float = option(
        0.1, "1 − momentum of the networks' training (α)", above=0, at_most=1
    )
    inner_decay: float = option(0.001, "weight decay of the networks' training (d)", at_least=0)
    clip: float = option(2.0, "largest gradient norm, relative to its running mean", above=0)

    def check(self) -> None:
        """An update's networks are different ones."""
        if self.networks > self.pool:
            raise UserError(
                f"`networks` is {self.networks}, more than the `pool` of {self.pool}: give fewer.",
                "networks",
            )

    def prepare(self, context: Context) -> Divergence:
        """The gradient for one network."""
        refuse_drawing(context, self.name)
        return _UnrolledDivergence(self, context)


class _UnrolledDivergence:
    """One architecture's pool and the gradient through it."""

    def __init__(self, method: Unrolled, context: Context) -> None:
        self._method = method
        self._context = context
        self._update: _Update | None = None

    def start(self) -> State:
        """A pool of networks that are yet to be made, and no norm."""
        pool, net, device = self._method.pool, self._context.net, self._context.device
        sizes = {"params": net.num_params, "buffers": net.num_buffers, "velocity": net.num_params}
        return {
            **{name: torch.zeros(pool, size, device=device) for name, size in sizes.items()},
            "age": torch.full((pool,), UNBORN, device=device),
            "usual_norm": torch.zeros((), device=device),
        }

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """Draw networks, train them for a window each, and go back."""
        if self._update is None or self._update.rng is not rng:
            self._update = _Update(self._method, self._context, len(coreset.inputs), rng)
        return self._update.estimate(coreset, state)


class _Update:
    """The loops of one update, made once: their steps are captured on first use.

    The windows of all its networks lie one after another in one path: network j has the steps from
    j·W on.
    """

    def __init__(self, method: Unrolled, context: Context, size: int, rng: Rng) -> None:
        self.rng = rng
        self._method = method
        self._context = context
        self._step_size = method.inner_step * context.likelihood.step_scale
        steps, batch = method.networks * method.window, context.batch_of(size)
        self._window = Window(context, steps, batch, rng, half=True)
        self._outputs = outputs_of(context.net, context.device)
        self._ahead = Loop(self._step_ahead, rng.device)
        self._outer = Loop(self._real_loss, rng.device)
        self._back = Loop(self._step_back, rng.device)

    def estimate(self, coreset: Points, state: State) -> Estimate:
        """The gradient, clipped, and the pool after it."""
        method = self._method
        order = torch.randperm(method.pool, generator=self.rng.host)
        chosen = order[: method.networks].tolist()
        pool = {name: state[name].clone() for name in (*MEMBER, "age")}
        self._load(coreset, pool)
        for number in chosen:
            self._make_ready(coreset, pool, number)
        batches = self._window.draw(coreset)
        self._ahead.load({**batches, "step": batches["index"].new_zeros(1)})
        self._ahead.state["loss_sum"].zero_()
        for number in chosen:
            self._train(pool, number, method.window)
        found = self._loss_at_end(pool, chosen)
        gradients = self._go_back(coreset, batches, found["slopes"])
        norm = gradients["inputs"].norm()
        gradients, usual = self._clipped(gradients, norm, state["usual_norm"])
        info = {
            "nll": float(found["nll"]),
            "student_loss": float(self._ahead.state["loss_sum"] / self._window.steps),
            "age": fmean(pool["age"][chosen].tolist()),
            "gradient_norm": float(norm),
        }
        return Estimate(gradients, {**pool, "usual_norm": usual}, info)

    def _load(self, coreset: Points, pool: State) -> None:
        """Show the way ahead the coreset, and make room for what it writes."""
        self._ahead.load(coreset._asdict())
        if "params" not in self._ahead.state:
            member = {name: pool[name][0] for name in MEMBER}
            path = self._window.no_path(Weights(member["params"], member["buffers"]))
            zero = coreset.inputs.new_zeros(())
            self._ahead.load({**member, **path, "loss_sum": zero})

    def _make_ready(self, coreset: Points, pool: State, number: int) -> None:
        """Start a network anew if it is old; train one that is new to its first age."""
        method, age = self._method, int(pool["age"][number])
        if UNBORN < age < method.longest:
            return
        weights = self._context.net.init(self.rng.device)
        pool["params"][number], pool["buffers"][number] = weights
        pool["velocity"][number] = 0
        pool["age"][number] = 0
        left = number * method.longest // method.pool if age == UNBORN else 0
        while left > 0:
            steps = min(left, self._window.steps)
            batches = self._window.draw(coreset)
            self._ahead.load({**batches, "step": batches["index"].new_zeros(1)})
            self._train(pool, number, steps)
            left -= steps

    def _train(self, pool: State, number: int, steps: int) -> None:
        """Take a network of the pool this many steps on."""
        self._ahead.load({name: pool[name][number] for name in MEMBER})
        self._ahead.run(steps)
        for name in MEMBER:
            pool[name][number] = self._ahead.state[name]
        pool["age"][number] += steps

    def _loss_at_end(self, pool: State, chosen: list[int]) -> State:
        """The `nll` of real points where the windows ended, and its `slopes` by each network."""
        real = self._context.real
        some = random_order(len(real.split), self.rng)[: self._method.real_batch]
        inputs, targets = real({}, some)
        params, buffers = pool["params"][chosen], pool["buffers"][chosen]
        ends = {"params": params, "buffers": buffers, "inputs": inputs, "targets": targets}
        self._outer.load({**ends, "nll": inputs.new_zeros(()), "slopes": params})
        self._outer.run(1)
        return self._outer.state

    def _real_loss(self, state: State) -> State:
        params = state["params"].detach().requires_grad_()
        with torch.enable_grad():
            ends = map(Weights, params.unbind(), state["buffers"].unbind())
            outputs = torch.stack([self._outputs(end, state["inputs"]) for end in ends])
            losses = self._context.likelihood.nll_of_mixture(outputs, state["targets"])
            nll = losses.mean()
            (slopes,) = torch.autograd.grad(nll, params)
        return {"nll": nll.detach(), "slopes": slopes}

    def _go_back(self, coreset: Points, batches: State, slopes: Tensor) -> State:
        """All windows back, the last network's first; `slopes` are by where each network ended."""
        last = batches["index"].new_full((1,), self._window.steps - 1)
        self._back.load({**nothing_gathered(coreset), **batches, "step": last})
        self._back.load({k: v for k, v in self._ahead.state.items() if k.startswith("path_")})
        for slope in reversed(slopes):
            self._back.load({"by_params": slope, "by_velocity": torch.zeros_like(slope)})
            self._back.run(self._method.window)
        return gathered(self._back.state)

    def _step_ahead(self, state: State) -> State:
        """θ and v after a step; θ before it is kept."""
        method = self._method
        theta = Weights(state["params"].detach().requires_grad_(), state["buffers"])
        with torch.enable_grad():
            loss, buffers = self._window.loss(theta, state["inputs"], state["targets"], state)
            (gradient,) = torch.autograd.grad(loss, theta.params)
        force = gradient + method.inner_decay * state["params"]
        velocity = (1 - method.inner_friction) * state["velocity"] - self._step_size * force
        self._window.keep(state)
        return {
            "params": state["params"] + velocity,
            "velocity": velocity,
            "buffers": buffers,
            "loss_sum": state["loss_sum"] + loss.detach(),
            "step": state["step"] + 1,
        }

    def _step_back(self, state: State) -> State:
        """λ and κ before a step, and what it adds to the gradients."""
        method = self._method
        theta = self._window.weights(state)
        theta.params.requires_grad_()
        leaves = learned_leaves(state)
        new_velocity = state["by_params"] + state["by_velocity"]  # r_t
        with torch.enable_grad():
            targets = leaves.get("targets", state["targets"])
            loss, _ = self._window.loss(theta, leaves["inputs"], targets, state)
            (gradient,) = torch.autograd.grad(loss, theta.params, create_graph=True)
            slopes = gradients_by({"theta": theta.params, **leaves}, gradient @ new_velocity)
        by_theta = slopes.pop("gradient_theta") + method.inner_decay * new_velocity
        return {
            **{name: state[name] - self._step_size * slope for name, slope in slopes.items()},
            "by_params": state["by_params"] - self._step_size * by_theta,
            "by_velocity": (1 - method.inner_friction) * new_velocity,
            "step": state["step"] - 1,
        }

    def _clipped(self, gradients: State, norm: Tensor, usual: Tensor) -> tuple[State, Tensor]:
        """The gradients, scaled down where they are unusually large; and what is usual now."""
        usual = torch.where(usual > 0, usual.to(norm), norm)
        scale = (self._method.clip * usual / norm).nan_to_num(1.0).clamp(max=1)  # 0/0: as it is
        # As clipped: one that is far too large must not make others like it usual.
        usual = torch.lerp(usual, scale * norm, NEWEST)
        return {name: scale * gradient for name, gradient in gradients.items()}, usual
