"""One FBPC update, slowly: Algorithm 1, equations `mu_and_Psi` and `fbpc_mc_grad`, as printed.

Networks are modules, optimisers are PyTorch's, outputs are kept in lists, samples are a Python
loop. Of the package it takes the augmentation and the drawing of an expert, and it draws random
numbers in the package's order, so that one seed gives both the same update:

1. which images of the coreset (a permutation, where the batch is smaller than the coreset);
2. the siamese augmentations; 3. (on the host) the expert; 4. the init of θ_u;
5. for each ten Adam steps an order of the coreset (again where it has batches), and for each step
   an augmentation; 6. an order of the real images, and for each of the K steps an augmentation of
   its batch and one of the points; 7. the same on the coreset; 8. ε_x for each augmentation of 2.,
   then ε_u.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pseudocoreset.augment import Draw
from pseudocoreset.engine.random import Rng
from pseudocoreset.likelihoods import Gaussian, Likelihood
from pseudocoreset.methods import FBPC, Context, Method, Points
from pseudocoreset.nets import Net, Weights


def shrinking(likelihood: Likelihood) -> float:
    """What step sizes are multiplied by: a Gaussian's loss is steep where its noise is small."""
    return min(1.0, likelihood.noise**2) if isinstance(likelihood, Gaussian) else 1.0


def log_likelihoods(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    """log p(y | f) of each point, by its formula: softmax, or a normal distribution a target."""
    if isinstance(likelihood, Gaussian):
        sigma = likelihood.noise
        away = (outputs - targets) / sigma
        return -(away**2 / 2 + math.log(sigma) + math.log(2 * math.pi) / 2).sum(1)
    log_p = torch.log_softmax(outputs, 1)
    if targets.ndim == 1:
        return log_p[torch.arange(len(targets)), targets]
    return (targets * log_p).sum(1)


def lowest_loss(likelihood: Likelihood, targets: Tensor) -> float:
    """What is left of the mean loss at the best outputs."""
    if isinstance(likelihood, Gaussian):
        return -float(log_likelihoods(likelihood, targets, targets).mean())
    if not targets.is_floating_point():
        return 0.0
    return sum(-p * math.log(p) for p in targets.flatten().tolist() if p > 0) / len(targets)


@dataclass
class Side:
    """One of the two posteriors: θ as a module, Ψ̂, and ε for each augmentation.

    Where there are `more` networks, they take turns over the augmentations.
    """

    module: nn.Module
    psi: Tensor
    noise: list[Tensor]
    more: list[tuple[nn.Module, Tensor]] = field(default_factory=list)


@dataclass
class SlowUpdate:
    """All that an update draws and finds, and the gradient that follows."""

    context: Context
    coreset: Points
    chosen: list[int]
    draws: list[Draw]
    x: Side
    u: Side
    map_steps: int

    def loss(self, side: Side, images: Tensor, labels: Tensor) -> Tensor:
        """1/S Σ_s −log p(ỹ | μ̂ + Ψ̂^½ ε), mean over the points, mean over augmentations."""
        total = torch.zeros((), dtype=images.dtype)
        networks = [(side.module, side.psi), *side.more]
        for number, (draw, noise) in enumerate(zip(self.draws, side.noise, strict=True)):
            module, psi = networks[number % len(networks)]
            mean = module(self.context.augmentation.apply(images, draw))
            for epsilon in noise:
                outputs = mean + psi.sqrt() * epsilon
                log_p = log_likelihoods(self.context.likelihood, outputs, labels)
                total = total - log_p.sum() / (len(images) * len(noise) * len(self.draws))
        return total

    def difference(self, images: Tensor, labels: Tensor) -> Tensor:
        """What is descended, as a function of the chosen images with all else constant."""
        return self.loss(self.x, images, labels) - self.loss(self.u, images, labels)

    def gradients(self) -> dict[str, Tensor]:
        """The gradient of the whole coreset; zero where it was not chosen."""
        leaves = {"inputs": self.coreset.inputs[self.chosen].clone().requires_grad_()}
        labels = self.coreset.targets[self.chosen]
        if labels.is_floating_point():
            labels = leaves["targets"] = labels.clone().requires_grad_()
        found = torch.autograd.grad(
            self.difference(leaves["inputs"], labels), list(leaves.values())
        )
        gradients = {}
        for name, gradient in zip(leaves, found, strict=True):
            gradients[name] = torch.zeros_like(getattr(self.coreset, name))
            gradients[name][self.chosen] = gradient
        return gradients


def slow_update(
    method: Method,
    context: Context,
    coreset: Points,
    rng: Rng,
    points: Tensor | None = None,
) -> SlowUpdate:
    """The body of Algorithm 1; of the coreset's type, float32 or float64.

    `points`, given, take the place of the chosen images where Ψ̂ is measured; they may carry a
    gradient, which the paper stops.
    """
    generator, shrink = rng.device, shrinking(context.likelihood)
    images, dtype = coreset.inputs, coreset.inputs.dtype
    size = len(images)
    in_batches = context.batch < size
    chosen = list(range(size))
    if in_batches:
        chosen = torch.randperm(size, generator=generator)[: context.batch].tolist()
    draws = [
        context.augmentation.draw(len(chosen), images.shape[-1], generator)
        for _ in range(method.draws)
    ]
    points = images[chosen] if points is None else points
    first, last = method.from_epoch, method.to_epoch
    experts = [
        _module(context.net, context.experts.draw(first, rng, images.device, last), dtype)
        for _ in range(method.experts_each)
    ]
    u, map_steps = _map_solution(method, context, coreset, in_batches, generator)
    if not isinstance(method, FBPC):
        psi_u = torch.ones(len(chosen), context.net.outputs, dtype=dtype)
        psis_x = [psi_u] * len(experts)
    else:
        beside = rng.side()
        psis_x = []
        for expert in experts:
            batches = _real_batches(method, context, dtype, beside)
            psis_x.append(_variance(context, expert, points, method.lr_x * shrink, batches, beside))
        order = torch.randperm(size, generator=generator) if in_batches else None
        batches = _coreset_batches(method, context, coreset, order, rng)
        psi_u = _variance(context, u, points, method.lr_u * shrink, batches, rng)
    shape = (method.samples, len(chosen), context.net.outputs)
    noise = [torch.randn(shape, generator=generator, dtype=dtype) for _ in range(2 * len(draws))]
    more = list(zip(experts, psis_x, strict=True))[1:]
    x = Side(experts[0], psis_x[0], noise[: len(draws)], more)
    u = Side(u, psi_u, noise[len(draws) :])
    return SlowUpdate(context, coreset, chosen, draws, x, u, map_steps)


def _module(net: Net, weights: Weights, dtype: torch.dtype) -> nn.Module:
    """A module with these weights, in test mode."""
    module = net.build().to(dtype)
    nn.utils.vector_to_parameters(weights.params.to(dtype, copy=True), module.parameters())
    start = 0
    for buffer in module.buffers():
        buffer.copy_(weights.buffers[start : start + buffer.numel()].view(buffer.shape))
        start += buffer.numel()
    return module.eval()


def _copy(net: Net, module: nn.Module) -> nn.Module:
    fresh = net.build().to(next(module.parameters()).dtype)
    fresh.load_state_dict(module.state_dict())
    return fresh


def _step(
    likelihood: Likelihood,
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
) -> float:
    loss = -log_likelihoods(likelihood, module(images), labels).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()


def _map_solution(
    method: Method,
    context: Context,
    coreset: Points,
    in_batches: bool,
    generator: torch.Generator,
) -> tuple[nn.Module, int]:
    """θ_u: Adam until the mean loss of ten steps is at most γ, above the lowest loss."""
    least, size = lowest_loss(context.likelihood, coreset.targets), len(coreset.inputs)
    module = _module(context.net, context.net.init(generator), coreset.inputs.dtype).train()
    optimiser = torch.optim.Adam(module.parameters(), lr=method.lr_map)
    steps, mean = 0, float("inf")
    while mean > method.gamma and steps < method.max_map_steps:
        losses = []
        order = torch.randperm(size, generator=generator).tolist() if in_batches else None
        for step in range(10):
            index = list(range(size))
            if order is not None:
                first = step * context.batch
                index = [order[i % size] for i in range(first, first + context.batch)]
            images = context.augmentation(coreset.inputs[index], generator)
            targets = coreset.targets[index]
            losses.append(_step(context.likelihood, module, optimiser, images, targets))
        mean = sum(losses) / len(losses) - least
        steps += len(losses)
    return module.eval(), steps


def _real_batches(method, context, dtype, rng):
    """K batches of real points, scaled and augmented, one at a time."""
    split = context.real.split
    number = method.covariance_steps * method.real_batch
    order = torch.randint(len(split), (number,), generator=rng.device)
    for index in order.split(method.real_batch):
        inputs, targets = _scaled(context, index, dtype)
        yield context.augmentation(inputs, rng.device), targets


def _scaled(context, index, dtype):
    """Real points as networks see them, and their targets."""
    real = context.real
    inputs, targets = real.split.inputs[index], real.split.targets[index]
    mean, std = (torch.tensor(values) for values in (real.scaling.mean, real.scaling.std))
    if inputs.ndim == 4:
        inputs, mean, std = inputs.float() / 255, mean.view(-1, 1, 1), std.view(-1, 1, 1)
    if real.target_scaling is not None:
        mean_y, std_y = (
            torch.tensor(v) for v in (real.target_scaling.mean, real.target_scaling.std)
        )
        targets = ((targets - mean_y) / std_y).to(dtype)
    return ((inputs - mean) / std).to(dtype), targets


def _coreset_batches(method, context, coreset, order, rng):
    """K batches of the coreset, round and round; all of it where it has no batches."""
    size, batch = len(coreset.inputs), context.batch
    for step in range(method.covariance_steps):
        index = torch.arange(size)
        if order is not None:
            index = order[(step * batch + torch.arange(batch)) % size]
        yield context.augmentation(coreset.inputs[index], rng.device), coreset.targets[index]


def _variance(context, start, points, lr, batches, rng) -> Tensor:
    """diag(1/K Σ g² − (1/K Σ g)²) over θ^(1) … θ^(K), each with its own augmentation."""
    module = _copy(context.net, start)
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)
    outputs: list[Tensor] = []
    for images, labels in batches:
        _step(context.likelihood, module.train(), optimiser, images, labels)
        # Each θ^(k) is kept as a constant of its own: the next step changes the module in place.
        frozen = _copy(context.net, module).requires_grad_(False).eval()
        outputs.append(frozen(context.augmentation(points, rng.device)).double())
    steps = torch.stack(outputs)
    return (steps.square().mean(0) - steps.mean(0).square()).to(points.dtype)
