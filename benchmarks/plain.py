"""Plain PyTorch versions of what the package computes.

Ordinary eager PyTorch: modules, `torch.optim` with its defaults, `F.cross_entropy`, data on the
device, samples in one batch where that is the obvious way; nothing is captured, compiled or fused.
Of the augmentation only the kind that was drawn is computed. From the package come the networks,
the reading of snapshots and images, and figures such as the number of a student's steps.

Random numbers are drawn in the package's order, so that on a CPU one seed gives both the same
update (on CUDA the kind of augmentation is drawn on the host, as nobody would wait for the device
there). The whole coreset is one batch, as in the paper's settings for CIFAR-10.
"""

from collections.abc import Iterable, Iterator
from math import ceil, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from pseudocoreset import augment
from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.distillation import Job, start_points
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertOptions, ExpertStore
from pseudocoreset.likelihoods import LABEL_SHARE
from pseudocoreset.methods import FBPC, Context, Method, Points, method_name
from pseudocoreset.methods.weight_space import Segment, draw_segment
from pseudocoreset.nets import Net, Weights, make_net
from pseudocoreset.nets.convnet import ConvNet
from pseudocoreset.posterior import SGHMC
from pseudocoreset.training import RealPoints

LOOK = 10  # Adam steps between two looks at the loss


class Change(NamedTuple):
    """One augmentation: its kind, and seven numbers in [0, 1) an image."""

    kind: str | None
    unit: Tensor


def draw_change(augmentation: Augmentation, number: int, rng: Rng) -> Change:
    """Draw a kind, and its parameters for `number` images."""
    device = rng.device.device
    host = rng.device if device.type == "cpu" else rng.host
    kinds = augmentation.kinds or (None,)
    chosen = int(torch.randint(len(kinds), (1,), generator=host))
    return Change(kinds[chosen], torch.rand(7, number, generator=rng.device, device=device))


def changed(images: Tensor, change: Change) -> Tensor:
    """The images under an augmentation."""
    kind, unit = change
    size = images.shape[-1]
    if kind == "color":
        brightness, saturation, contrast = unit[:3].view(3, -1, 1, 1, 1)
        images = images + (brightness - 0.5) * augment.BRIGHTNESS
        grey = images.mean(1, keepdim=True)
        images = (images - grey) * (saturation * augment.SATURATION) + grey
        mean = images.mean((1, 2, 3), keepdim=True)
        return (images - mean) * (contrast + augment.CONTRAST) + mean
    if kind == "cutout":
        side = int(size * augment.CUTOUT + 0.5)
        first = torch.floor(unit[:2] * (size + 1 - side % 2)) - side // 2
        place = torch.arange(size, device=images.device)
        inside = (place >= first[:, :, None]) & (place < first[:, :, None] + side)
        return images * ~(inside[0, :, None, :, None] & inside[1, :, None, None, :])
    if kind == "flip":
        return torch.where((unit[2] < 0.5).view(-1, 1, 1, 1), images.flip(3), images)
    if kind is None:
        return images
    warp = torch.zeros(len(images), 2, 3, device=images.device)
    warp[:, 0, 0] = warp[:, 1, 1] = 1
    if kind == "crop":
        reach = int(size * augment.CROP + 0.5)
        shift = torch.floor(unit[:2] * (2 * reach + 1)) - reach
        warp[:, :, 2] = shift.T * 2 / (size - 1)
    elif kind == "scale":
        low, high = 1 / augment.SCALE, augment.SCALE
        warp[:, 0, 0], warp[:, 1, 1] = low + unit[3:5] * (high - low)
    elif kind == "rotate":
        angle = (unit[5] * 2 - 1) * (augment.ROTATE * pi / 180)
        warp[:, 0, 0] = warp[:, 1, 1] = angle.cos()
        warp[:, 0, 1], warp[:, 1, 0] = -angle.sin(), angle.sin()
    grid = F.affine_grid(warp.to(images.dtype), list(images.shape), align_corners=True)
    return F.grid_sample(images, grid, align_corners=True)


def augmented(images: Tensor, augmentation: Augmentation, rng: Rng) -> Tensor:
    """Draw and apply."""
    if not augmentation.kinds:
        return images
    return changed(images, draw_change(augmentation, len(images), rng))


def build(net: Net) -> nn.Module:
    """A module that runs layer by layer: the package's ConvNet has kernels of its own on CUDA."""
    module = net.build()
    if isinstance(module, ConvNet):
        module.forward = lambda images: module.classifier(module.features(images).flatten(1))
    return module


@torch.no_grad()
def load(module: nn.Module, net: Net, weights: Weights) -> None:
    """Give the module these weights; the benchmark's networks have no buffers."""
    for name, value in net.unflatten(weights.params).items():
        module.get_parameter(name).copy_(value)


def step(
    module: nn.Module, optimiser: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> Tensor:
    """One training step; its loss."""
    loss = F.cross_entropy(module(images), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.detach()


def coreset_updates(
    data: Data, store: ExpertStore, job: Job, device: torch.device, map_steps: Iterable[int]
) -> Iterator[Tensor]:
    """The images of the coreset that `distill` makes with seed 0, after one update and another.

    Each of FBPC's updates takes the number of steps to its MAP solution that `map_steps` gives.
    """
    real, options = RealPoints(data.train, data.scaling), job.options
    net, batch = store.make_net(), options.batch
    context = Context(net, store, real, job.augmentation, job.likelihood, batch)
    rng = Rng(device, 0, "start")
    images, labels = start_points(data, options, job.form, rng)
    twin, velocity = PlainUpdates(job.method, context), torch.zeros_like(images)
    for update, steps in enumerate(map_steps, 1):
        rng.reseed(0, "update", update)
        gradient = twin.update(Points(images, labels), rng, steps)
        velocity.mul_(options.momentum).add_(gradient)
        images.sub_(velocity, alpha=options.lr_images)
        yield images


class PlainUpdates:
    """Updates of all methods; modules are built once and loaded anew for each update.

    Of VBPC the first alone: later ones go on with a pool of networks.
    """

    def __init__(self, method: Method, context: Context) -> None:
        self.method: Any = method
        self.context = context
        self._streams: tuple[Rng, Rng] | None = None
        self.expert, self.student, self.walker = (
            build(context.net).to(context.device) for _ in range(3)
        )

    def update(self, coreset: Points, rng: Rng, map_steps: int = 0) -> Tensor:
        """The gradient of the images; FBPC's MAP solution takes `map_steps` steps."""
        name = method_name(self.method)
        if name.startswith("fbpc"):
            return self._fbpc(coreset, rng, map_steps)
        own = {"bpc-fkl": self._fkl, "bpc-rkl": self._rkl, "bpc-w": self._w, "vbpc": self._vbpc}
        return own[name](coreset, rng)

    def _fbpc(self, coreset: Points, rng: Rng, map_steps: int) -> Tensor:
        context, method = self.context, self.method
        changes = [self._draw(coreset, rng) for _ in range(method.draws)]
        first, last = method.from_epoch, method.to_epoch
        snapshot = context.experts.draw(first, rng, context.device, last)
        load(self.expert, context.net, snapshot)
        self._train_to_map(coreset, rng, map_steps)
        images = coreset.inputs.detach().requires_grad_()
        views = [changed(images, change) for change in changes]
        if not isinstance(method, FBPC):  # isotropic
            variances = [torch.ones((), device=context.device)] * 2
        else:
            number, second = method.covariance_steps * method.real_batch, self._second_stream(rng)
            order = torch.randint(
                len(context.real.split), (number,), generator=second.device, device=context.device
            )
            real = (context.real({}, index) for index in order.split(method.real_batch))
            own = (coreset for _ in range(method.covariance_steps))
            variances = [
                self._variance(self.expert, coreset, method.lr_x, real, second),
                self._variance(self.student, coreset, method.lr_u, own, rng),
            ]
        losses = []
        for module, variance in zip((self.expert, self.student), variances, strict=True):
            losses.append(
                sum(
                    self._likelihood(module(view), variance, coreset.targets, rng) for view in views
                )
                / len(views)
            )
        (gradient,) = torch.autograd.grad(losses[0] - losses[1], images)
        return gradient

    def _second_stream(self, rng: Rng) -> Rng:
        """What the steps on real images draw from, which may run at the same time."""
        if self._streams is None or self._streams[0] is not rng:
            self._streams = (rng, rng.side())
        return self._streams[1]

    def _train_to_map(self, coreset: Points, rng: Rng, steps: int) -> None:
        load(self.student, self.context.net, self.context.net.init(rng.device))
        optimiser = torch.optim.Adam(self.student.parameters(), lr=self.method.lr_map)
        total = 0.0
        for number in range(steps):
            images = augmented(coreset.inputs, self.context.augmentation, rng)
            total = total + step(self.student, optimiser, images, coreset.targets)
            if number % LOOK == LOOK - 1:
                float(total)  # where it would be compared with γ
                total = 0.0

    def _variance(
        self, start: nn.Module, coreset: Points, lr: float, batches: Iterable[Any], rng: Rng
    ) -> Tensor:
        """Of the outputs over SGD steps from `start`, each under an augmentation of its own."""
        self.walker.load_state_dict(start.state_dict())
        optimiser = torch.optim.SGD(self.walker.parameters(), lr=lr)
        outputs = []
        for images, labels in batches:
            step(self.walker, optimiser, augmented(images, self.context.augmentation, rng), labels)
            with torch.no_grad():
                view = augmented(coreset.inputs, self.context.augmentation, rng)
                outputs.append(self.walker(view))
        return torch.stack(outputs).var(0, correction=0)

    def _likelihood(self, mean: Tensor, variance: Tensor, labels: Tensor, rng: Rng) -> Tensor:
        samples = self.method.samples
        noise = torch.randn(
            (samples, *mean.shape), generator=rng.device, device=mean.device, dtype=mean.dtype
        )
        outputs = mean + variance.sqrt() * noise
        return F.cross_entropy(outputs.flatten(0, 1), labels.repeat(samples))

    def _train_student(self, coreset: Points, start: Weights, rng: Rng) -> Tensor:
        """SGD on the coreset from an expert's snapshot; the weights as one vector."""
        load(self.student, self.context.net, start)
        optimiser = torch.optim.SGD(self.student.parameters(), lr=self.method.lr_student)
        for _ in range(self.method.student_steps):
            images = augmented(coreset.inputs, self.context.augmentation, rng)
            step(self.student, optimiser, images, coreset.targets)
        return nn.utils.parameters_to_vector(self.student.parameters()).detach()

    def _around(self, mean: Tensor, rng: Rng) -> dict[str, Tensor]:
        noise = torch.randn(mean.shape, generator=rng.device, device=mean.device, dtype=mean.dtype)
        return self.context.net.unflatten(mean + self.method.noise * noise)

    def _segment(self, rng: Rng) -> Segment:
        return draw_segment(self.context.experts, self.method, self.context.device, rng)

    def _fkl(self, coreset: Points, rng: Rng) -> Tensor:
        segment = self._segment(rng)
        mean_u = self._train_student(coreset, segment.start, rng)
        images = coreset.inputs.detach().requires_grad_()
        samples = self.method.samples
        gradient = torch.zeros_like(images)
        for _ in range(samples):
            view = changed(images, self._draw(coreset, rng))
            losses = [
                F.cross_entropy(
                    functional_call(self.student, self._around(mean, rng), (view,)), coreset.targets
                )
                for mean in (segment.target.params, mean_u)
            ]
            gradient += torch.autograd.grad(losses[0] - losses[1], images)[0]
        return gradient / samples

    def _rkl(self, coreset: Points, rng: Rng) -> Tensor:
        method, real = self.method, self.context.real
        segment = self._segment(rng)
        mean_u = self._train_student(coreset, segment.start, rng)
        change = self._draw(coreset, rng)
        some = torch.randperm(len(real.split), generator=rng.device, device=self.context.device)
        real_images, real_labels = real({}, some[: method.likelihood_batch])
        real_images = augmented(real_images, self.context.augmentation, rng)
        images = coreset.inputs.detach().requires_grad_()
        gradients, excess = [], []
        for _ in range(method.samples):
            params = self._around(mean_u, rng)
            view = changed(images, change)
            loss_u = F.cross_entropy(
                functional_call(self.student, params, (view,)), coreset.targets
            )
            gradients.append(torch.autograd.grad(-loss_u, images)[0])
            with torch.no_grad():
                loss_x = F.cross_entropy(
                    functional_call(self.student, params, (real_images,)), real_labels
                )
            excess.append(method.weight_u * loss_u.detach() - method.weight_x * loss_x)
        away = torch.stack(excess) - torch.stack(excess).mean()
        return -torch.einsum("s,s...->...", away, torch.stack(gradients)) / (method.samples - 1)

    def _w(self, coreset: Points, rng: Rng) -> Tensor:
        """One autograd graph through all of the student's steps."""
        segment = self._segment(rng)
        method = self.method
        images = coreset.inputs.detach().requires_grad_()
        theta = segment.start.params.detach().requires_grad_()
        for change in [self._draw(coreset, rng) for _ in range(method.student_steps)]:
            params = self.context.net.unflatten(theta)
            logits = functional_call(self.student, params, (changed(images, change),))
            loss = F.cross_entropy(logits, coreset.targets)
            (slope,) = torch.autograd.grad(loss, theta, create_graph=True)
            theta = theta - method.lr_student * slope
        target = segment.target.params
        distance = (theta - target).square().sum() / (segment.start.params - target).square().sum()
        return torch.autograd.grad(distance, images)[0]

    def _vbpc(self, coreset: Points, rng: Rng) -> Tensor:
        """The first update, by a fresh network of the pool, on classes as targets."""
        method, context = self.method, self.context
        rng.choose(method.pool)
        weights = context.net.init(rng.device)
        change = self._draw(coreset, rng)
        number, classes = len(context.real.split), context.likelihood.classes
        index = torch.randint(
            number, (method.real_batch,), generator=rng.device, device=context.device
        )
        real_images, real_labels = context.real({}, index)
        images = coreset.inputs.detach().requires_grad_()
        views = (changed(images, change), real_images)
        phi, at = (_regressors(context.net.features(weights, view)) for view in views)
        shares = (1 - LABEL_SHARE) / classes + LABEL_SHARE * F.one_hot(coreset.targets, classes)
        targets = shares.log() - shares.log().mean(1, keepdim=True)
        prior, precision = method.head_prior, method.head_precision
        inverse = prior * torch.eye(phi.shape[1], device=phi.device) + precision * phi.T @ phi
        covariance = torch.linalg.inv(inverse)
        mean = precision * covariance @ phi.T @ targets
        variance = ((at @ covariance) * at).sum(1, keepdim=True)
        nll = F.cross_entropy(at @ mean / (1 + pi / 8 * variance).sqrt(), real_labels)
        volume = torch.logdet(inverse / prior) + prior * covariance.trace() - len(covariance)
        kl = (classes * volume + prior * mean.square().sum()) / 2
        return torch.autograd.grad(nll + method.kl_weight / number * kl, images)[0]

    def _draw(self, coreset: Points, rng: Rng) -> Change:
        return draw_change(self.context.augmentation, len(coreset.inputs), rng)


def _regressors(features: Tensor) -> Tensor:
    return F.pad(features / features.shape[1] ** 0.5, (0, 1), value=1.0)


class PlainExpert:
    """An expert on the whole data."""

    def __init__(
        self, data: Data, net: str, options: ExpertOptions, device: torch.device, seed: int
    ) -> None:
        self._data = data.to(device)
        self._batch = min(options.batch, len(data.train))
        self._augmentation = Augmentation.parse(options.dsa or "on", data.mirror)
        self._rng = Rng(device, seed)
        self._rng.reseed(seed, "expert", 0)
        network = make_net(net, **data.shape)
        self.module = build(network).to(device)
        load(self.module, network, network.init(self._rng.device))
        self._optimiser = torch.optim.SGD(self.module.parameters(), lr=options.lr)

    def epoch(self) -> None:
        """As many whole batches as there are."""
        data, number = self._data, len(self._data.train)
        order = torch.randperm(number, generator=self._rng.device, device=self._rng.device.device)
        for index in order[: number // self._batch * self._batch].split(self._batch):
            images = data.scaling.apply(data.train.inputs[index])
            images = augmented(images, self._augmentation, self._rng)
            step(self.module, self._optimiser, images, data.train.targets[index])


def sghmc_scores(
    coreset: Pseudocoreset, data: Data, sampler: SGHMC, device: torch.device, seed: int
) -> tuple[float, float]:
    """One chain, and accuracy and NLL of its averaged predictions; coreset and data on `device`.

    SGHMC is SGD with momentum 1 − α and weight decay λ, and noise in the gradient.
    """
    images, rng = coreset.inputs, Rng(device, seed)
    rng.reseed(seed, "chain", 0)
    network = make_net(coreset.provenance.net, **data.shape)
    module = build(network).to(device)
    load(module, network, network.init(rng.device))
    optimiser = torch.optim.SGD(
        module.parameters(),
        lr=sampler.step,
        momentum=1 - sampler.friction,
        weight_decay=sampler.prior / len(images),
    )
    temperature = sampler.temperature_for(len(images))
    variance = 2 * sampler.step * sampler.friction * temperature / len(images)
    augmentation = Augmentation.parse(coreset.dsa if sampler.dsa == "on" else "off", mirror=True)
    probabilities = torch.zeros(len(data.test), data.classes, device=device)
    steps = ceil(len(images) / sampler.batch)
    places = torch.arange(steps * ceil(len(images) / steps), device=device) % len(images)
    for epoch in range(1, sampler.epochs + 1):
        if steps > 1:
            order = torch.randperm(len(images), generator=rng.device, device=device)
        else:
            order = torch.arange(len(images), device=device)
        for index in order[places].chunk(steps):
            views = augmented(images[index], augmentation, rng)
            optimiser.zero_grad()
            F.cross_entropy(module(views), coreset.targets[index]).backward()
            if temperature > 0:
                noise = torch.randn(network.num_params, generator=rng.device, device=device)
                for name, part in network.unflatten(noise).items():
                    gradient = module.get_parameter(name).grad
                    gradient.add_(part, alpha=-(variance**0.5) / sampler.step)
            optimiser.step()
        if epoch % sampler.every == 0:
            with torch.no_grad():
                parts = data.test.inputs.split(1000)
                logits = [module(data.scaling.apply(part)) for part in parts]
                probabilities += torch.cat(logits).softmax(1)
    probabilities /= sampler.epochs // sampler.every
    accuracy = (probabilities.argmax(1) == data.test.targets).float().mean()
    return float(accuracy), float(F.nll_loss(probabilities.log(), data.test.targets))
