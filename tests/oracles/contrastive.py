"""One update of BPC-CD, slowly: modules, loops and lists; and a model with a known posterior.

It draws random numbers in the package's order, so that one seed gives both the same update. Each
chain has a stream of its own, first those of the data, then those of the coreset: a new network if
it begins, an order of its points whenever it has gone through them, and for each step an
augmentation and then the noise. The estimate draws which points move, and an augmentation a pair.
"""

from math import sqrt

import torch
from torch import Tensor, nn

from oracles.fbpc import _module, log_likelihoods, shrinking
from oracles.linear_gaussian import NOISE_VARIANCE, features
from oracles.weight_space import leaves_of, spread
from pseudocoreset.augment import Augmentation
from pseudocoreset.data import Scaling, Split
from pseudocoreset.engine.random import Rng
from pseudocoreset.likelihoods import Gaussian
from pseudocoreset.methods import Context, Method, Points
from pseudocoreset.nets import Net
from pseudocoreset.training import RealPoints


def slow_chain(
    method: Method,
    context: Context,
    points: tuple[Tensor, Tensor],
    batch: int | None,
    steps: int,
    generator: torch.Generator,
    module: nn.Module | None,
    velocity: Tensor | None,
) -> tuple[nn.Module, Tensor]:
    """SGHMC in its textbook form, for the potential of n points at the method's temperature."""
    inputs, targets = points
    n = len(context.real.split)
    step = method.lr_chains * shrinking(context.likelihood)
    noise = sqrt(2 * step * method.friction * method.temperature / n)
    if module is None:
        module = _module(context.net, context.net.init(generator), inputs.dtype)
        velocity = torch.zeros_like(nn.utils.parameters_to_vector(module.parameters()))
    assert velocity is not None
    module.train()
    order: list[int] = []
    for _ in range(steps):
        index = list(range(len(inputs)))
        if batch is not None:
            if len(order) < batch:  # what is left of an epoch is dropped
                order = torch.randperm(len(inputs), generator=generator).tolist()
            index, order = order[:batch], order[batch:]
        seen = context.augmentation(inputs[index], generator)
        loss = -log_likelihoods(context.likelihood, module(seen), targets[index]).sum() / len(index)
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, module.parameters())])
        theta = nn.utils.parameters_to_vector(module.parameters()).detach()
        force = gradient + method.prior / n * theta
        velocity = (1 - method.friction) * velocity - step * force
        if noise > 0:
            kick = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
            velocity = velocity + noise * kick
        nn.utils.vector_to_parameters(theta + velocity, module.parameters())
    return module.eval(), velocity


class SlowContrastive:
    """The chains, and the gradient where they are."""

    def __init__(self, method: Method, context: Context, coreset: Points, rng: Rng) -> None:
        self._method, self._context, self._rng = method, context, rng
        self._beside = [rng.side() for _ in range(2 * method.chains)]
        n = len(context.real.split)
        real = context.real({}, torch.arange(n))
        whole = context.batch >= len(coreset.inputs)
        self._real = real
        self._batches = {
            "x": min(method.real_batch, n),
            "u": None if whole else context.batch,
        }
        none: list[tuple[nn.Module | None, Tensor | None]] = [(None, None)] * method.chains
        self._chains = {"x": list(none), "u": list(none)}

    def walk(self, coreset: Points, steps: int) -> None:
        """All chains take some steps, those of the coreset on the points that it has now."""
        streams = iter(self._beside)
        for side, points in {"x": self._real, "u": tuple(coreset)}.items():
            common = self._method, self._context, points, self._batches[side], steps
            self._chains[side] = [
                slow_chain(*common, next(streams).device, *at) for at in self._chains[side]
            ]

    def gradients(self, coreset: Points) -> tuple[dict[str, Tensor], dict[str, float]]:
        """The gradients of the mean loss at u under x minus that under u, and both losses."""
        context, generator = self._context, self._rng.device
        size = len(coreset.inputs)
        chosen = list(range(size))
        if context.batch < size:
            chosen = torch.randperm(size, generator=generator)[: context.batch].tolist()
        leaves, labels = leaves_of(coreset, chosen)
        losses = {"x": torch.zeros(()), "u": torch.zeros(())}
        for pair in range(self._method.chains):
            draw = context.augmentation.draw(len(chosen), coreset.inputs.shape[-1], generator)
            seen = context.augmentation.apply(leaves["inputs"], draw)
            for side in losses:
                outputs = self._chains[side][pair][0](seen)
                log_p = log_likelihoods(context.likelihood, outputs, labels)
                losses[side] = losses[side] - log_p.sum() / len(chosen) / self._method.chains
        difference = losses["x"] - losses["u"]
        found = torch.autograd.grad(difference, list(leaves.values()))
        gradients = spread(coreset, chosen, dict(zip(leaves, found, strict=True)))
        return gradients, {f"loss_{side}": float(loss.detach()) for side, loss in losses.items()}


class _Features(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Linear(3, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.weights(features(x.squeeze(1)))


def linear_gaussian(x: Tensor, y: Tensor) -> Context:
    """A network that is linear in the three features of points on the line."""
    net = Net("features", _Features, input_shape=(1,), outputs=1, default_init=False)
    return Context(
        net,
        None,
        RealPoints(Split(x[:, None].float(), y[:, None].float()), Scaling((0.0,), (1.0,))),
        Augmentation(()),
        Gaussian(1, noise=NOISE_VARIANCE**0.5),
        100,
    )
