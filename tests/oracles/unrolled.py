"""One update of the unrolled method, slowly: one autograd graph through all steps of all networks.

Networks are modules; those that are trained without gradient have PyTorch's own SGD, whose momentum
buffer b is −v/η. Of the package it takes the augmentation, the reading of real points and the
networks' init, and it draws random numbers in the package's order, so that one seed gives both the
same update:

1. (on the host) an order of the pool; 2. for each network that starts anew its init, and for every
J·W steps or fewer that it is trained beforehand an order of the coreset (where it has batches) and
J·W augmentations; 3. the same once more, for the windows; 4. an order of the real points.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from oracles.fbpc import _module, _step, log_likelihoods, shrinking
from oracles.weight_space import leaves_of
from pseudocoreset.augment import Draw
from pseudocoreset.engine.random import Rng
from pseudocoreset.methods import Context, Method, Points


@dataclass
class Member:
    """A network of the pool: its module, the momentum of each parameter, and its age."""

    module: nn.Module
    velocity: list[Tensor]
    age: int = 0

    def params(self) -> Tensor:
        return nn.utils.parameters_to_vector(self.module.parameters()).detach()


@dataclass
class SlowUnrolled:
    """A pool of networks, the first age of each following from its place."""

    method: Method
    context: Context
    pool: dict[int, Member] = field(default_factory=dict)

    def update(self, coreset: Points, rng: Rng) -> "SlowWindows":
        """Choose and prepare networks, and draw what the windows need."""
        method = self.method
        chosen = torch.randperm(method.pool, generator=rng.host)[: method.networks].tolist()
        for number in chosen:
            if number not in self.pool:
                self._make(coreset, number, rng)
                self._age(coreset, self.pool[number], number * method.longest // method.pool, rng)
            elif self.pool[number].age >= method.longest:
                self._make(coreset, number, rng)
        batches = self._batches(coreset, rng)
        order = torch.randperm(len(self.context.real.split), generator=rng.device)
        real = self.context.real({}, order[: method.real_batch])
        return SlowWindows(self, coreset, [self.pool[n] for n in chosen], batches, real)

    @property
    def rate(self) -> float:
        return self.method.inner_step * shrinking(self.context.likelihood)

    def _make(self, coreset: Points, number: int, rng: Rng) -> None:
        weights = self.context.net.init(rng.device)
        module = _module(self.context.net, weights, coreset.inputs.dtype)
        self.pool[number] = Member(module, [torch.zeros_like(p) for p in module.parameters()])

    def _batches(self, coreset: Points, rng: Rng) -> list[tuple[list[int], Draw]]:
        """For each step of all windows, one after another: positions and an augmentation."""
        size, found = len(coreset.inputs), []
        order = list(range(size))
        batch = size
        if self.context.batch < size:
            batch = self.context.batch
            order = torch.randperm(size, generator=rng.device).tolist()
        for step in range(self.method.networks * self.method.window):
            index = [order[i % size] for i in range(step * batch, (step + 1) * batch)]
            draw = self.context.augmentation.draw(batch, coreset.inputs.shape[-1], rng.device)
            found.append((index, draw))
        return found

    def _age(self, coreset: Points, member: Member, steps: int, rng: Rng) -> None:
        """So many steps from rest, by PyTorch's SGD."""
        momentum, decay = 1 - self.method.inner_friction, self.method.inner_decay
        optimiser = torch.optim.SGD(
            member.module.parameters(), lr=self.rate, momentum=momentum, weight_decay=decay
        )
        while member.age < steps:
            for index, draw in self._batches(coreset, rng)[: steps - member.age]:
                points = self.context.augmentation.apply(coreset.inputs[index], draw)
                targets = coreset.targets[index]
                _step(self.context.likelihood, member.module.train(), optimiser, points, targets)
                member.age += 1
        for place, param in enumerate(member.module.parameters()):
            if steps > 0:
                member.velocity[place] = -self.rate * optimiser.state[param]["momentum_buffer"]


@dataclass
class SlowWindows:
    """The windows of an update as a function of the coreset, all else constant."""

    parent: SlowUnrolled
    coreset: Points
    members: list[Member]
    batches: list[tuple[list[int], Draw]]
    real: tuple[Tensor, Tensor]

    def loss(self, images: Tensor, labels: Tensor, *, move: bool = False) -> Tensor:
        """The NLL of the mean prediction; `move` leaves the networks where they end."""
        steps, outputs = self.parent.method.window, []
        for number, member in enumerate(self.members):
            batches = self.batches[number * steps : (number + 1) * steps]
            outputs.append(self._end(member, batches, images, labels, move))
        inputs, targets = self.real
        likelihood = self.parent.context.likelihood
        log_p = torch.stack([log_likelihoods(likelihood, f(inputs), targets) for f in outputs])
        return -(log_p.exp().sum(0).log() - math.log(len(outputs))).mean()

    def gradients(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its gradients, by autograd through everything."""
        leaves, labels = leaves_of(self.coreset, list(range(len(self.coreset.inputs))))
        loss = self.loss(leaves["inputs"], labels)
        found = torch.autograd.grad(loss, list(leaves.values()))
        return loss.detach(), dict(zip(leaves, found, strict=True))

    def _end(self, member, batches, images, labels, move):
        """The network after its window, as a function of inputs."""
        context, method = self.parent.context, self.parent.method
        module = member.module.train()
        params = dict(module.named_parameters())
        buffers = {name: value.clone() for name, value in module.named_buffers()}
        velocity = dict(zip(params, member.velocity, strict=True))
        for index, draw in batches:
            points = context.augmentation.apply(images[index], draw)
            outputs = torch.func.functional_call(module, {**params, **buffers}, (points,))
            loss = -log_likelihoods(context.likelihood, outputs, labels[index]).mean()
            decay = sum(value.square().sum() for value in params.values())
            whole = loss + method.inner_decay / 2 * decay
            slopes = torch.autograd.grad(whole, list(params.values()), create_graph=True)
            for name, slope in zip(params, slopes, strict=True):
                velocity[name] = velocity[name] * (1 - method.inner_friction)
                velocity[name] = velocity[name] - self.parent.rate * slope
            params = {name: value + velocity[name] for name, value in params.items()}
        if move:
            member.velocity = [value.detach() for value in velocity.values()]
            member.age += len(batches)
            named = {**params, **buffers}
            member.module.load_state_dict({k: v.detach() for k, v in named.items()})

        def after(inputs):
            return torch.func.functional_call(module.eval(), {**params, **buffers}, (inputs,))

        return after
