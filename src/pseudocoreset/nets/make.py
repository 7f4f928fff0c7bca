"""The function `make_net`."""

import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from pseudocoreset.engine.plugins import imported, is_plugin_name, remembered
from pseudocoreset.engine.text import nearest, printable
from pseudocoreset.errors import UserError

from .alexnet import AlexNet
from .convnet import ConvNet, default_depth
from .lenet import LeNet
from .mlp import MLP
from .net import Net
from .norms import NORM_NAMES, STATS_NAMES, Norm
from .own import own_net
from .resnet import RESNET18_BLOCKS, RESNET34_BLOCKS, ResNet
from .vgg import VGG11

NET_NAMES = ("convnet", "lenet", "alexnet", "vgg11", "resnet18", "resnet34", "mlp")
"""The networks of the package; all but the last take images only."""
DEFAULT_NET = "convnet"
"""The default network for images."""
NetLike = str | Callable[..., nn.Module]
"""How a network is named: a spec, an `nn.Module` class, or a function that builds a module."""

_OPTIONS = {
    "convnet": ("depth", "width", "norm", "stats"),
    "vgg11": ("norm", "stats"),
    "resnet18": ("norm", "stats"),
    "resnet34": ("norm", "stats"),
    "mlp": ("depth", "width"),
}
_LARGEST_SIZE = 64
_DEEPEST_MLP = 100
_OWN = "your own as package.module:factory"


class _Plan(NamedTuple):
    """A canonical spec and the function that builds its module."""

    spec: str
    build: Callable[[], nn.Module]


def make_net(
    net: NetLike,
    *,
    input_shape: Sequence[int],
    outputs: int,
    source: Path | str | None = None,
    trust_code: bool = False,
) -> Net:
    """Make a network for inputs of a shape and a number of outputs.

    A spec is `convnet[:depth=3,width=128,norm=instance]`, `lenet`, `alexnet`,
    `vgg11[:norm=instance]`, `resnet18[:norm=instance]`, `resnet34[:norm=instance]`,
    `mlp[:depth=2,width=64]`, or `package.module:factory`. A norm is instance, group, layer, batch
    or none; `norm=batch` also takes `stats=batch` or `stats=kept` (see `norms`).

    A factory or class of your own is called as `factory(channels, image_size, classes)` for images
    and as `factory(features, outputs)` for tables. It must return an `nn.Module`.

    Args:
        net: a spec, an `nn.Module` class, or a function that builds a module
        input_shape: (channels, height, width) of images, or (features,) of a table
        outputs: the number of classes, or of regression targets
        source: the file that the spec was read from, if any. Your own networks are then made only
            if you have also named them in this process
        trust_code: run code that `source` names
    """
    shape = _checked_shape(input_shape, outputs)
    if isinstance(net, str):
        if net.partition(":")[0] in NET_NAMES:
            return _known_net(net, shape, outputs)
        if not is_plugin_name(net):
            raise _refusal(_unknown_name(net))
        factory = imported(net, "network", source=source, trust_code=trust_code)
        return own_net(net, factory, shape, outputs)
    factory = _checked_factory(net)
    return own_net(remembered(factory, "network"), factory, shape, outputs)


def make_stored_net(
    spec: str,
    *,
    input_shape: Sequence[int],
    outputs: int,
    source: Path | str | None,
    trust_code: bool,
    digest: str | None,
) -> Net:
    """The network that a file names; a user's own is told where its source has changed.

    Args:
        spec: the network's name in the file
        input_shape: as for `make_net`
        outputs: as for `make_net`
        source: the file; None where it was named in this process
        trust_code: run code that the file names
        digest: the digest of the network's source when the file was made
    """
    net = make_net(
        spec, input_shape=input_shape, outputs=outputs, source=source, trust_code=trust_code
    )
    if digest is not None and net.source_digest not in (None, digest):
        where = "" if source is None else f" since {source} was made"
        warnings.warn(
            f"the source of the network {spec} has changed{where}: results may differ.",
            RuntimeWarning,
            stacklevel=3,
        )
    return net


def default_net(input_shape: Sequence[int]) -> str:
    """The network that is taken if none is given.

    Args:
        input_shape: (channels, height, width) of images, or (features,) of a table
    """
    return DEFAULT_NET if len(input_shape) == 3 else "mlp"


def _refusal(message: str) -> UserError:
    return UserError(message, parameter="net")


def _checked_factory(net: object) -> Callable[..., Any]:
    if isinstance(net, nn.Module):
        raise _refusal(
            f"`net` is a {type(net).__name__} that is built already: give its class, or a function "
            "that builds a new one at each call."
        )
    if not callable(net) or not isinstance(net, Hashable):
        raise _refusal(
            f"`net` is of type {type(net).__name__}, not a name, an nn.Module class or a function "
            "that builds a module."
        )
    return net


def _checked_shape(input_shape: Sequence[int], outputs: int) -> tuple[int, ...]:
    shape = tuple(input_shape)
    square = len(shape) == 1 or (len(shape) == 3 and shape[1] == shape[2])
    if not square or not all(isinstance(n, int) and n > 0 for n in shape):
        raise UserError(
            f"`input_shape` is {shape}, not (channels, side, side) or (features,).",
            parameter="input_shape",
        )
    if not isinstance(outputs, int) or outputs < 1:
        raise UserError(f"`outputs` is {outputs}, not 1 or more.", parameter="outputs")
    return shape


def _unknown_name(spec: str) -> str:
    name = spec.partition(":")[0]
    meant = nearest(name, NET_NAMES)
    if meant is not None:
        return f"there is no network {printable(name)}: did you mean {meant}?"
    return f"there is no network '{printable(spec)}': use {', '.join(NET_NAMES)}, or {_OWN}."


@lru_cache(maxsize=64)
def _known_net(spec: str, input_shape: tuple[int, ...], outputs: int) -> Net:
    """A network of ours; the same object each time, since what is compiled for it hangs on it."""
    name, colon, rest = spec.partition(":")
    if name != "mlp":
        _check_images(name, input_shape)
    options = _read_options(spec, rest) if colon else {}
    plan = _plan(name, options, input_shape, outputs)
    if options:
        unknown = next(iter(options))
        meant = nearest(unknown, _OPTIONS.get(name, ()))
        hint = "leave it out." if meant is None else f"did you mean {meant}?"
        raise _refusal(f"The network {name} has no option {printable(unknown)}: {hint}")
    return Net(plan.spec, plan.build, input_shape=input_shape, outputs=outputs, default_init=True)


def _plan(name: str, options: dict[str, str], input_shape: tuple[int, ...], outputs: int) -> _Plan:
    """Take out of the options what the network has; what is left over is the caller's to refuse."""
    if name == "mlp":
        depth = _take_number(options, "depth", 2, most=_DEEPEST_MLP)
        width = _take_number(options, "width", 64)
        return _Plan(
            f"{name}:depth={depth},width={width}",
            partial(MLP, input_shape, outputs, depth=depth, width=width),
        )
    channels, size, _ = input_shape
    shape = (channels, size, outputs)
    if name == "lenet":
        return _Plan(name, partial(LeNet, *shape))
    if name == "alexnet":
        return _Plan(name, partial(AlexNet, *shape))
    norm = _take_norm(options)
    if name == "vgg11":
        return _Plan(f"{name}:{norm}", partial(VGG11, *shape, norm=norm))
    if name in ("resnet18", "resnet34"):
        blocks = RESNET18_BLOCKS if name == "resnet18" else RESNET34_BLOCKS
        return _Plan(f"{name}:{norm}", partial(ResNet, *shape, blocks=blocks, norm=norm))
    depth = _take_number(options, "depth", default_depth(size))
    width = _take_number(options, "width", 128)
    return _Plan(
        f"{name}:depth={depth},width={width},{norm}",
        partial(ConvNet, *shape, depth=depth, width=width, norm=norm),
    )


def _check_images(name: str, input_shape: tuple[int, ...]) -> None:
    if len(input_shape) == 1:
        raise _refusal(f"The network {name} takes images, not a table: use mlp, or {_OWN}.")
    channels, size, _ = input_shape
    smallest = 8 if name == "convnet" else 28
    if channels not in (1, 3):
        raise _refusal(
            f"The network {name} takes images of 1 or 3 channels, not {channels}: use mlp, or "
            f"{_OWN}."
        )
    if not smallest <= size <= _LARGEST_SIZE:
        raise _refusal(
            f"The network {name} takes images from {smallest}×{smallest} to "
            f"{_LARGEST_SIZE}×{_LARGEST_SIZE}, not {size}×{size}: resize them, or use mlp, or "
            f"{_OWN}."
        )


def _read_options(spec: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not (name and equals and value) or name in options:
            raise _refusal(
                f"The network {printable(spec)} has '{printable(part)}' where option=value was "
                "expected, each option once: write it like convnet:depth=3,norm=group."
            )
        options[name] = value
    return options


def _take_norm(options: dict[str, str]) -> Norm:
    name = _take_choice(options, "norm", NORM_NAMES)
    if "stats" in options and name != "batch":
        raise _refusal(
            f"The network option stats belongs to norm=batch, and the norm is {name}: leave it out."
        )
    return Norm(name, _take_choice(options, "stats", STATS_NAMES))


def _take_choice(options: dict[str, str], option: str, choices: tuple[str, ...]) -> str:
    """The option's value; the first choice is the default."""
    value = options.pop(option, choices[0])
    if value not in choices:
        raise _refusal(
            f"The network option {option} is {printable(value)}, not one of {', '.join(choices)}."
        )
    return value


def _take_number(options: dict[str, str], option: str, default: int, most: int = 99999) -> int:
    value = options.pop(option, str(default))
    if not re.fullmatch(r"[1-9][0-9]{0,4}", value) or int(value) > most:
        raise _refusal(
            f"The network option {option} is {printable(value)}, not a whole number from 1 to "
            f"{most}."
        )
    return int(value)
