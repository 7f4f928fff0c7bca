"""VBPC: a variational pseudocoreset with a closed-form posterior of the last layer."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pseudocoreset.augment import Draw
from pseudocoreset.engine.loop import Loop, State, exact_products
from pseudocoreset.engine.options import option
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.search import Around
from pseudocoreset.last_layer import HEAD_PRECISION, HEAD_PRIOR, head_posterior
from pseudocoreset.methods.base import Context, Divergence, Estimate, Method, Points
from pseudocoreset.methods.map_solution import random_order
from pseudocoreset.methods.weight_space import (
    draw_entries,
    gathered,
    gradients_by,
    learned_leaves,
    nothing_gathered,
)
from pseudocoreset.nets import Weights
from pseudocoreset.training import Adam, Training, coreset_points, features_of


@dataclass(frozen=True)
class VBPC(Method):
    """VBPC: a variational pseudocoreset with a closed-form posterior of the last layer.

        loss = mean over a real batch of −log p(y | x, coreset)  +  β_D/n · KL[q(W) ‖ p(W)]

    q(W) is the posterior of the last layer's weights given the coreset's features and targets, in
    closed form (`last_layer`). Labels are softened (0.9 for the class, 0.1 spread over all),
    and the regression is on log-probabilities minus their mean. p(y | x) is the softmax of
    μ / √(1 + π/8 Σ), with mean and variance of the outputs at x; for regression, the normal
    density of variance Σ + σ². n is the number of real points.

    The features come from a network of a pool. After each use the network is trained on the coreset
    for one step of Adam, and after `pool_steps` steps it is replaced by a new one. The coreset is
    augmented in both; real points are not.

    If the coreset has more than `batch` points, an update moves `batch` of them. The posterior
    always uses all points.
    """

    name: ClassVar[str] = "vbpc"
    needs_experts: ClassVar[bool] = False

    head_prior: float = option(
        HEAD_PRIOR, "precision of the prior of the last layer's weights (ρ)", above=0
    )
    head_precision: float = option(
        HEAD_PRECISION,
        "precision of the coreset's targets, for the last layer (β)",
        above=0,
        search=Around(8),
    )
    kl_weight: float = option(
        0.01, "weight of the KL from the last layer's posterior to its prior (β_D)", at_least=0
    )
    pool: int = option(10, "number of networks in the pool", at_least=1)
    pool_steps: int = option(
        100, "steps after which a network of the pool is replaced by a new one", at_least=1
    )
    lr_pool: float = option(
        0.001, "learning rate of Adam for the networks", above=0, search=Around(4)
    )
    real_batch: int = option(1024, "real points per update", at_least=1)

    def prepare(self, context: Context) -> Divergence:
        """The gradient for one network."""
        return _VBPCDivergence(self, context)


class _VBPCDivergence:
    """One network's share of the gradient, and its pool."""

    def __init__(self, method: VBPC, context: Context) -> None:
        self._method = method
        self._context = context
        context.net.head  # noqa: B018 - refused now, where it is not the network's end
        self._inner: _Inner | None = None

    def start(self) -> State:
        """The pool: weights, what Adam keeps, and the steps taken (`count`).

        All networks are due to be replaced, so that each is fresh when its first turn comes.
        """
        weights = self._context.net.init(torch.Generator(self._context.device).manual_seed(0))
        slots = Adam(self._method.lr_pool).slots(weights.params)
        slots["count"] = torch.full_like(slots["count"], self._method.pool_steps)
        pool = self._method.pool
        empty = {k: torch.zeros_like(v) for k, v in weights._asdict().items()}
        return {k: torch.stack([v] * pool) for k, v in {**empty, **slots}.items()}

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """An update by one network of the pool, which then takes a step."""
        if self._inner is None or self._inner.rng is not rng:
            size = len(coreset.inputs)
            self._inner = _Inner(self._method, self._context, size, rng)
        number = rng.choose(self._method.pool)
        network = {name: values[number] for name, values in state.items()}
        age = int(network["count"])
        if age >= self._method.pool_steps:
            network, age = self._inner.fresh_network(), 0
        found = self._inner.estimate(coreset, network)
        info = {"nll": float(found["nll"]), "kl": float(found["kl"]), "age": age}
        trained, info["net_loss"] = self._inner.trained(coreset, network)
        place = torch.tensor([number]).to(self._context.device)
        kept = {k: v.index_copy(0, place, trained[k][None]) for k, v in state.items()}
        return Estimate(gathered(found), kept, info)


class _Inner:
    """The loops of one update, made once: their steps are captured on first use."""

    def __init__(self, method: VBPC, context: Context, size: int, rng: Rng) -> None:
        self.rng = rng
        self._method = method
        self._context = context
        self._size = size
        self._batch = context.batch_of(size)
        self._features = features_of(context.net, context.device)
        self._rule = Adam(method.lr_pool)
        self._estimator = Loop(self._step, rng.device)
        self._training = Training(
            context.net,
            self._rule,
            coreset_points,
            context.augmentation,
            context.likelihood,
            rng.device,
            batch=self._batch,
        )

    def fresh_network(self) -> State:
        """Random weights, and what Adam keeps at first."""
        weights = self._context.net.init(self.rng.device)
        return {**weights._asdict(), **self._rule.slots(weights.params)}

    def trained(self, coreset: Points, network: State) -> tuple[State, float]:
        """The network after a step on the coreset, and the loss before it."""
        weights = Weights(network["params"], network["buffers"])
        self._training.start(weights, {**coreset._asdict(), **network})
        if self._batch is not None:
            self._training.set_order(random_order(self._size, self.rng))
        self._training.run(1)
        return self._training.state, self._training.take("loss_sum")

    def estimate(self, coreset: Points, network: State) -> State:
        """The gradients, and the two parts of the loss: `nll` and `kl`."""
        draw = self._context.augmentation.draw(
            self._size, coreset.inputs.shape[-1], self.rng.device
        )
        inputs = {**nothing_gathered(coreset, "nll", "kl"), **draw_entries(draw)}
        inputs |= {name: network[name] for name in Weights._fields}
        if self._batch is not None:
            inputs["moved"] = random_order(self._size, self.rng)[: self._batch]
        self._estimator.load(inputs)
        self._estimator.run(1)
        return self._estimator.state

    def _step(self, state: State) -> State:
        """The loss and its gradients."""
        method, likelihood = self._method, self._context.likelihood
        leaves, real = learned_leaves(state), self._context.real
        theta = Weights(state["params"], state["buffers"])
        index = torch.randint(
            len(real.split),
            (method.real_batch,),
            generator=self.rng.device,
            device=self.rng.device.device,
        )
        points, labels = real(state, index)
        at = self._features(theta, points)
        with exact_products(), torch.enable_grad():
            features = self._coreset_features(theta, leaves["inputs"], state)
            targets = self._of_moved(leaves.get("targets", state["targets"]), state)
            posterior = head_posterior(
                features,
                likelihood.regression_targets(targets),
                method.head_prior,
                method.head_precision,
            )
            nll = likelihood.nll_of_gaussian(*posterior.at(at), labels).mean()
            kl = method.kl_weight / len(real.split) * posterior.kl()
            gradients = gradients_by(leaves, nll + kl)
        return {**gradients, "nll": nll.detach(), "kl": kl.detach()}

    def _coreset_features(self, theta: Weights, inputs: Tensor, state: State) -> Tensor:
        """Of the augmented coreset, with a gradient to those points that the update moves."""
        draw = Draw(*(state[f"draw_{name}"] for name in Draw._fields))
        augmentation = self._context.augmentation
        if self._batch is None:
            return self._features(theta, augmentation.apply(inputs, draw))
        moved = state["moved"]
        few = Draw(*(part[moved] for part in draw))
        found = self._features(theta, augmentation.apply(inputs[moved], few))
        rest = self._features(theta, augmentation.apply(inputs.detach(), draw))
        return rest.index_copy(0, moved, found)

    def _of_moved(self, targets: Tensor, state: State) -> Tensor:
        """The targets, with a gradient to those of points that the update moves."""
        if self._batch is None:
            return targets
        moved = state["moved"]
        return targets.detach().index_copy(0, moved, targets[moved])
