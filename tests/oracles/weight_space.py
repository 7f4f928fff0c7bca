"""One update of the weight-space methods, slowly; and a model in which theirs are exact.

Networks are modules, optimisers are PyTorch's, samples are a Python loop and are kept in lists. Of
the package it takes the augmentation and the reading of images and snapshots, and it draws random
numbers in the package's order, so that one seed gives both the same update:

1. (on the host) the trajectory and its epoch; 2. an order of the coreset (where it has batches),
and an augmentation for each of the student's steps; 3. which images of the coreset (a permutation,
again where it has batches); 4. what the method's own estimator draws.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from oracles.fbpc import _copy, _module, _step, log_likelihoods, shrinking
from pseudocoreset.augment import Augmentation, Draw
from pseudocoreset.data import Scaling, Split
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertStore
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.methods import Context, Method, Points
from pseudocoreset.nets import Net, Weights
from small_world import DoublePoints


@dataclass
class Start:
    """What all methods do first."""

    epoch: int
    begin: nn.Module
    expert: nn.Module
    student: nn.Module
    chosen: list[int]


def slow_start(method: Method, context: Context, coreset: Points, rng: Rng) -> Start:
    """θ₀ and μ_x from an expert, μ_u by SGD on the coreset, and the images of this update."""
    store, size = context.experts, len(coreset.inputs)
    trajectory = store.trajectories[rng.choose(len(store))]
    epoch = rng.choose(method.start_epochs)
    ahead = getattr(method, "expert_epochs", 0)
    begin, expert = (
        _module(
            context.net,
            store.snapshot(trajectory, e, coreset.inputs.device),
            coreset.inputs.dtype,
        )
        for e in (epoch, epoch + ahead)
    )
    in_batches = context.batch < size
    order = torch.randperm(size, generator=rng.device).tolist() if in_batches else None
    student = _copy(context.net, begin).train()
    rate = method.lr_student * shrinking(context.likelihood)
    optimiser = torch.optim.SGD(student.parameters(), lr=rate)
    for step in range(method.student_steps):
        index = list(range(size))
        if order is not None:
            first = step * context.batch
            index = [order[i % size] for i in range(first, first + context.batch)]
        images = context.augmentation(coreset.inputs[index], rng.device)
        _step(context.likelihood, student, optimiser, images, coreset.targets[index])
    chosen = list(range(size))
    if in_batches:
        chosen = torch.randperm(size, generator=rng.device)[: context.batch].tolist()
    return Start(epoch, begin, expert, student.eval(), chosen)


def noisy(net: Net, module: nn.Module, std: float, generator: torch.Generator) -> nn.Module:
    """A module whose parameters are those of another plus std·ε; a constant."""
    moved = _copy(net, module).requires_grad_(False).eval()
    params = nn.utils.parameters_to_vector(moved.parameters())
    noise = torch.randn(params.shape, generator=generator, dtype=params.dtype)
    nn.utils.vector_to_parameters(params + std * noise, moved.parameters())
    return moved


@dataclass
class SlowForwardKL:
    """All that an update draws and finds, and the gradient that follows."""

    context: Context
    coreset: Points
    start: Start
    samples: list[tuple[Draw, nn.Module, nn.Module]]

    def loss(self, side: int, images: Tensor, labels: Tensor) -> Tensor:
        """1/S Σ_s −log p(ỹ | u, μ + σ ε), mean over the images; side 0 is x and 1 is u."""
        total = torch.zeros((), dtype=images.dtype)
        for draw, *modules in self.samples:
            points = self.context.augmentation.apply(images, draw)
            outputs = modules[side](points)
            log_p = log_likelihoods(self.context.likelihood, outputs, labels)
            total = total - log_p.sum() / (len(images) * len(self.samples))
        return total

    def difference(self, images: Tensor, labels: Tensor) -> Tensor:
        """What is descended, as a function of the chosen images with all else constant."""
        return self.loss(0, images, labels) - self.loss(1, images, labels)

    def gradients(self) -> dict[str, Tensor]:
        leaves, labels = leaves_of(self.coreset, self.start.chosen)
        found = torch.autograd.grad(
            self.difference(leaves["inputs"], labels), list(leaves.values())
        )
        return spread(self.coreset, self.start.chosen, dict(zip(leaves, found, strict=True)))


def leaves_of(coreset: Points, chosen: list[int]) -> tuple[dict[str, Tensor], Tensor]:
    """What is learned of the chosen images, and their labels."""
    leaves = {"inputs": coreset.inputs[chosen].clone().requires_grad_()}
    labels = coreset.targets[chosen]
    if labels.is_floating_point():
        labels = leaves["targets"] = labels.clone().requires_grad_()
    return leaves, labels


def spread(coreset: Points, chosen: list[int], found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients of the whole coreset; zero where it was not chosen."""
    gradients = {}
    for name, gradient in found.items():
        gradients[name] = torch.zeros_like(getattr(coreset, name))
        gradients[name][chosen] = gradient
    return gradients


def slow_forward_kl(method: Method, context: Context, coreset: Points, rng: Rng) -> SlowForwardKL:
    """Equation `bpc-fkl` as printed; for each sample it draws T_s, ε_x and ε_u."""
    start = slow_start(method, context, coreset, rng)
    samples, size = [], coreset.inputs.shape[-1]
    for _ in range(method.samples):
        draw = context.augmentation.draw(len(start.chosen), size, rng.device)
        x, u = (
            noisy(context.net, module, method.noise, rng.device)
            for module in (start.expert, start.student)
        )
        samples.append((draw, x, u))
    return SlowForwardKL(context, coreset, start, samples)


def real_batch(method: Method, context: Context, rng: Rng) -> tuple[Tensor, Tensor]:
    """Different real images, augmented."""
    order = torch.randperm(len(context.real.split), generator=rng.device)
    images, labels = context.real({}, order[: method.likelihood_batch])
    return context.augmentation(images, rng.device), labels


@dataclass
class SlowReverseKL:
    """All samples' gradients and log-likelihoods, kept."""

    method: Method
    coreset: Points
    start: Start
    found: dict[str, list[Tensor]]
    """∇_u of the mean log-likelihood of the chosen images, by what it is a gradient of."""
    mean_x: list[Tensor]
    mean_u: list[Tensor]

    def gradients(self) -> dict[str, Tensor]:
        """−Cov, as the mean of products of what is centred, with S − 1 below."""
        weight_x, weight_u = self.method.weight_x, self.method.weight_u
        excess = torch.stack(
            [weight_x * x - weight_u * u for x, u in zip(self.mean_x, self.mean_u, strict=True)]
        )
        excess = excess - excess.mean()
        covariances = {}
        for name, samples in self.found.items():
            stacked = torch.stack(samples)
            centred = stacked - stacked.mean(0)
            covariances[name] = -torch.einsum("s,s...->...", excess, centred) / (len(samples) - 1)
        return spread(self.coreset, self.start.chosen, covariances)


def slow_reverse_kl(method: Method, context: Context, coreset: Points, rng: Rng) -> SlowReverseKL:
    """It draws an augmentation of the coreset, real images, theirs, and ε for each sample."""
    start = slow_start(method, context, coreset, rng)
    chosen, images = start.chosen, coreset.inputs
    draw = context.augmentation.draw(len(images), images.shape[-1], rng.device)
    real = real_batch(method, context, rng)
    found: dict[str, list[Tensor]] = {}
    mean_x, mean_u = [], []
    for _ in range(method.samples):
        theta = noisy(context.net, start.student, method.noise, rng.device)
        leaves, labels = leaves_of(coreset, chosen)
        everything = images.index_copy(0, torch.tensor(chosen), leaves["inputs"])
        all_labels = coreset.targets.index_copy(0, torch.tensor(chosen), labels)
        points = context.augmentation.apply(everything, draw)
        log_p = log_likelihoods(context.likelihood, theta(points), all_labels)
        moved = log_p[chosen].sum() / len(chosen)
        for name, g in zip(leaves, torch.autograd.grad(moved, list(leaves.values())), strict=True):
            found.setdefault(name, []).append(g)
        mean_u.append(log_p.detach().sum() / len(images))
        log_p = log_likelihoods(context.likelihood, theta(real[0]), real[1])
        mean_x.append(log_p.sum() / len(real[1]))
    return SlowReverseKL(method, coreset, start, found, mean_x, mean_u)


@dataclass
class SlowWasserstein:
    """The unrolled student as one autograd graph."""

    epoch: int
    distance: Tensor
    gradients: dict[str, Tensor]
    slope_lr: Tensor


def slow_wasserstein(
    method: Method, context: Context, coreset: Points, rng: Rng, lr: float
) -> SlowWasserstein:
    """It draws an order of the images (where it has batches), then an augmentation a step."""
    store, size = context.experts, len(coreset.inputs)
    trajectory = store.trajectories[rng.choose(len(store))]
    epoch = rng.choose(method.start_epochs)
    begin, target = (
        store.snapshot(trajectory, e, rng.device.device)
        for e in (epoch, epoch + method.expert_epochs)
    )
    module = _module(context.net, begin, coreset.inputs.dtype).train()
    batch, order = size, list(range(size))
    if context.batch < size:
        batch = context.batch
        order = torch.randperm(size, generator=rng.device).tolist()
    leaves, labels = leaves_of(coreset, list(range(size)))
    rate = torch.tensor(lr, dtype=torch.float64, requires_grad=True)
    params = dict(module.named_parameters())
    draws = [
        context.augmentation.draw(batch, coreset.inputs.shape[-1], rng.device)
        for _ in range(method.student_steps)
    ]
    for step, draw in enumerate(draws):
        index = [order[i % size] for i in range(step * batch, (step + 1) * batch)]
        points = context.augmentation.apply(leaves["inputs"][index], draw)
        outputs = torch.func.functional_call(module, params, (points,))
        loss = -log_likelihoods(context.likelihood, outputs, labels[index]).mean()
        slopes = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        params = {
            name: value - rate.to(value.dtype) * slope
            for (name, value), slope in zip(params.items(), slopes, strict=True)
        }
    end = nn.utils.parameters_to_vector(params.values())
    distance = (end - target.params).norm() ** 2 / (begin.params - target.params).norm() ** 2
    *found, slope_lr = torch.autograd.grad(distance, [*leaves.values(), rate])
    gradients = dict(zip(leaves, found, strict=True))
    return SlowWasserstein(epoch, distance.detach(), gradients, slope_lr)


class OneSegment(ExpertStore):
    """A store of one trajectory with two snapshots."""

    def __init__(self, start: Tensor, target: Tensor) -> None:
        self.path = Path("nowhere")
        self.__dict__["trajectories"] = [Path("only")]
        self._snapshots = [Weights(params, params.new_zeros(0)) for params in (start, target)]

    first_epoch, last_epoch = 0, 1

    def snapshot(self, trajectory, epoch, device):  # noqa: ARG002
        return self._snapshots[epoch]


PIXELS = 4


def softmax_regression(start: Tensor, target: Tensor, real: Split) -> Context:
    """Logits W x + b of 2×2 images of two classes, in float64; no augmentation."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 2)).double()

    net = Net("softmax", build, input_shape=(1, 2, 2), outputs=2, default_init=False)
    normalisation = Scaling(mean=(0.5,), std=(0.25,))
    return Context(
        net,
        OneSegment(start.double(), target.double()),
        DoublePoints(real, normalisation),
        Augmentation(()),
        Categorical(2),
        100,
    )


def split_weights(params: Tensor) -> tuple[Tensor, Tensor]:
    """W and b."""
    return params[: 2 * PIXELS].view(2, PIXELS), params[2 * PIXELS :]


def output_moments(params: Tensor, std: float, images: Tensor) -> tuple[Tensor, Tensor]:
    """W x + b with θ ~ N(params, std²·1): the two outputs are independent Gaussians."""
    weight, bias = split_weights(params)
    flat = images.flatten(1)
    variance = std**2 * (flat.square().sum(1, keepdim=True) + 1)
    return flat @ weight.T + bias, variance.expand(-1, 2)


def descended(params: Tensor, points: Points, steps: int, lr: float) -> Tensor:
    """Gradient descent on the mean loss: ∂/∂logits = softmax − one-hot."""
    params = params.double().clone()
    flat = points.inputs.flatten(1)
    target = nn.functional.one_hot(points.targets, 2).double()
    for _ in range(steps):
        weight, bias = split_weights(params)
        error = (torch.softmax(flat @ weight.T + bias, 1) - target) / len(flat)
        params = params - lr * torch.cat([(error.T @ flat).flatten(), error.sum(0)])
    return params
