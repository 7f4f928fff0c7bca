"""`make_net`: from the name of a network to the network."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from torch import nn

from pseudocoreset.engine.plugins import is_plugin_name
from pseudocoreset.errors import UserError

from .alexnet import AlexNet
from .convnet import ConvNet, default_depth
from .lenet import LeNet
from .net import Net
from .norms import NORM_NAMES, STATS_NAMES, Norm
from .own import make_own_net
from .resnet import RESNET18_BLOCKS, RESNET34_BLOCKS, ResNet
from .vgg import VGG11

_NAMES = ("convnet", "lenet", "alexnet", "vgg11", "resnet18", "resnet34")
_LARGEST_SIZE = 64
DEFAULT_NET = "convnet"
"""Where none is given."""


class _Plan(NamedTuple):
    """A canonical spec and the function that builds its module."""

    spec: str
    build: Callable[[], nn.Module]


def make_net(spec: str, *, channels: int, image_size: int, classes: int) -> Net:
    """The network that `spec` names, for square images of this size and this many classes.

    `convnet[:depth=3,width=128,norm=instance]`, `lenet`, `alexnet`, `vgg11[:norm=instance]`,
    `resnet18[:norm=instance]`, `resnet34[:norm=instance]`, or `package.module:factory`, called as
    `factory(channels, image_size, classes) -> nn.Module`. A norm is instance, group, layer, batch
    or none; `norm=batch` also takes `stats=batch` or `stats=kept` (see `norms`).
    """
    if spec.partition(":")[0] not in _NAMES:
        if not is_plugin_name(spec):
            raise UserError(
                f"no network is called {spec!r}; "
                f"use {', '.join(_NAMES)} or your own as package.module:factory"
            )
        return make_own_net(spec, channels=channels, image_size=image_size, classes=classes)
    return _known_net(spec, channels, image_size, classes)


@lru_cache(maxsize=64)
def _known_net(spec: str, channels: int, image_size: int, classes: int) -> Net:
    """A network of ours; the same object each time, since what is compiled for it hangs on it."""
    name, colon, rest = spec.partition(":")
    _check_images(name, channels, image_size)
    options = _read_options(spec, rest) if colon else {}
    plan = _plan(name, options, channels, image_size, classes)
    if options:
        unknown = ", ".join(options)
        raise UserError(f"the network {name} has no option {unknown} (in {spec!r}); leave it out")
    return Net(
        plan.spec,
        plan.build,
        channels=channels,
        image_size=image_size,
        classes=classes,
        default_init=True,
    )


def _plan(
    name: str, options: dict[str, str], channels: int, image_size: int, classes: int
) -> _Plan:
    """Take out of the options what the network has; what is left over is the caller's to refuse."""
    shape = (channels, image_size, classes)
    if name == "lenet":
        return _Plan(name, lambda: LeNet(*shape))
    if name == "alexnet":
        return _Plan(name, lambda: AlexNet(*shape))
    norm = _take_norm(options)
    if name == "vgg11":
        return _Plan(f"{name}:{norm}", lambda: VGG11(*shape, norm=norm))
    if name in ("resnet18", "resnet34"):
        blocks = RESNET18_BLOCKS if name == "resnet18" else RESNET34_BLOCKS
        return _Plan(f"{name}:{norm}", lambda: ResNet(*shape, blocks=blocks, norm=norm))
    depth = _take_number(options, "depth", default_depth(image_size))
    width = _take_number(options, "width", 128)
    return _Plan(
        f"{name}:depth={depth},width={width},{norm}",
        lambda: ConvNet(*shape, depth=depth, width=width, norm=norm),
    )


def _check_images(name: str, channels: int, image_size: int) -> None:
    smallest = 8 if name == "convnet" else 28
    if channels not in (1, 3):
        raise UserError(
            f"the network {name} takes images of 1 or 3 channels and got {channels}; "
            "convert the images, or give a network of your own as package.module:factory"
        )
    if not smallest <= image_size <= _LARGEST_SIZE:
        raise UserError(
            f"the network {name} takes images from {smallest}×{smallest} to "
            f"{_LARGEST_SIZE}×{_LARGEST_SIZE} and got {image_size}×{image_size}; "
            "resize the images or use another network"
        )


def _read_options(spec: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not (name and equals and value) or name in options:
            raise UserError(
                f"the network {spec!r} has {part!r} where one option=value was expected, "
                "each option once; write it like convnet:depth=3,norm=group"
            )
        options[name] = value
    return options


def _take_norm(options: dict[str, str]) -> Norm:
    name = _take_choice(options, "norm", NORM_NAMES)
    if "stats" in options and name != "batch":
        raise UserError(
            f"the network option stats belongs to norm=batch and the norm is {name}; leave it out"
        )
    return Norm(name, _take_choice(options, "stats", STATS_NAMES))


def _take_choice(options: dict[str, str], option: str, choices: tuple[str, ...]) -> str:
    """The option's value; the first choice is the default."""
    value = options.pop(option, choices[0])
    if value not in choices:
        raise UserError(
            f"the network option {option}={value} is unknown; use one of {', '.join(choices)}"
        )
    return value


def _take_number(options: dict[str, str], option: str, default: int) -> int:
    value = options.pop(option, str(default))
    if not re.fullmatch(r"[1-9][0-9]{0,4}", value):
        raise UserError(
            f"the network option {option}={value} is not a whole number from 1 to 99999; "
            f"write it like {option}={default}"
        )
    return int(value)
