"""Factories of a person's own, named in the tests as `own_factories:NAME`."""

import torch
from torch import Tensor, nn

from pseudocoreset.errors import UserError


class Custom(nn.Module):
    """Its own init, tied weights, a buffer that is replaced, an integer one, and BatchNorm."""

    def __init__(self, channels: int, image_size: int, classes: int) -> None:
        super().__init__()
        size = channels * image_size**2
        self.norm = nn.BatchNorm2d(channels)
        self.first = nn.Linear(size, size)
        self.second = nn.Linear(size, size)
        self.second.weight = self.first.weight
        self.head = nn.Linear(size, classes)
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("mean", torch.full((1,), 0.5))
        nn.init.normal_(self.first.weight, std=0.01)
        nn.init.constant_(self.head.bias, 3.0)

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
            self.mean = 0.5 * self.mean + images.mean()
        hidden = self.second(self.first(self.norm(images).flatten(1)))
        return self.head(hidden)


def custom(channels: int, image_size: int, classes: int) -> nn.Module:
    return Custom(channels, image_size, classes)


def plain(channels: int, image_size: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, classes))


def raises(channels: int, image_size: int, classes: int) -> nn.Module:
    raise RuntimeError("two\nlines")


def refuses(channels: int, image_size: int, classes: int) -> nn.Module:
    raise UserError("only for 32×32")


def no_arguments() -> nn.Module:
    return nn.Flatten()


def not_a_module(channels: int, image_size: int, classes: int) -> str:
    return "module"


_SHARED = nn.Linear(2, 2)


def same(channels: int, image_size: int, classes: int) -> nn.Module:
    return _SHARED


def lazy(channels: int, image_size: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))


def no_parameters(channels: int, image_size: int, classes: int) -> nn.Module:
    return nn.Flatten()


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, dtype=torch.complex64))


def complex_weights(channels: int, image_size: int, classes: int) -> nn.Module:
    return Complex()


def fixed_size(channels: int, image_size: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(999, classes))


def wrong_classes(channels: int, image_size: int, classes: int) -> nn.Module:
    return plain(channels, image_size, classes + 1)


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module, kind: str) -> None:
        super().__init__()
        self.inner = inner
        self.kind = kind

    def forward(self, images: Tensor) -> object:
        logits = self.inner(images.double() if self.kind == "doubles" else images)
        if self.kind == "two images":
            return logits.reshape(2, -1)
        if self.kind == "detached":
            return logits.detach()
        return (logits, logits) if self.kind == "pair" else logits.argmax(1)


def pair(channels: int, image_size: int, classes: int) -> nn.Module:
    return Wrapped(plain(channels, image_size, classes), "pair")


def doubles(channels: int, image_size: int, classes: int) -> nn.Module:
    return Wrapped(plain(channels, image_size, classes).double(), "doubles")


def two_images(channels: int, image_size: int, classes: int) -> nn.Module:
    return Wrapped(plain(channels, image_size, classes), "two images")


def detached(channels: int, image_size: int, classes: int) -> nn.Module:
    return Wrapped(plain(channels, image_size, classes), "detached")


def labels(channels: int, image_size: int, classes: int) -> nn.Module:
    return Wrapped(plain(channels, image_size, classes), "labels")


def _with_norm(norm: nn.Module, image_size: int, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, image_size), norm, nn.ReLU(), nn.Flatten(), nn.Linear(4, classes)
    )


def single_group(channels: int, image_size: int, classes: int) -> nn.Module:
    return _with_norm(nn.GroupNorm(4, 4), image_size, classes)


def single_instance(channels: int, image_size: int, classes: int) -> nn.Module:
    return _with_norm(nn.InstanceNorm2d(4), image_size, classes)


def two_groups(channels: int, image_size: int, classes: int) -> nn.Module:
    return _with_norm(nn.GroupNorm(2, 4), image_size, classes)


def dropout(channels: int, image_size: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Dropout(), plain(channels, image_size, classes))
