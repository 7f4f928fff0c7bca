"""The last linear layer of a network."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from pseudocoreset.errors import UserError

if TYPE_CHECKING:
    from .net import Net


class Head(NamedTuple):
    """The names of the last layer's parameters, and how many features go into it."""

    weight: str
    bias: str
    features: int


class _PassOn(nn.Linear):
    """A linear layer that gives out what goes in."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The input."""
        return input


def find_head(module: nn.Module, outputs: int, spec: str) -> Head:
    """The linear layer that stands last in the module, which must have a bias.

    Args:
        module: the network
        outputs: how many numbers the network puts out
        spec: the network's name
    """
    name, layer = _last_linear(module)
    if layer is None or layer.out_features != outputs or layer.bias is None:
        raise _refusal(spec)
    prefix = f"{name}." if name else ""
    return Head(f"{prefix}weight", f"{prefix}bias", layer.in_features)


def without_head(module: nn.Module) -> nn.Module:
    """The module itself, which from now on gives out what goes into its last linear layer.

    Args:
        module: a network that `find_head` took
    """
    _, layer = _last_linear(module)
    assert layer is not None
    layer.__class__ = _PassOn  # in its place, also where it is the whole network
    return module


def refuse_other_heads(net: "Net", head: Head) -> None:
    """Refuse a network whose outputs are not what its last linear layer makes of its features.

    Args:
        net: a user's own network
        head: what `find_head` found
    """
    generator = torch.Generator().manual_seed(0)
    weights = net.init(generator)
    inputs = torch.randn(3, *net.input_shape, generator=generator)
    weight = torch.randn(net.outputs, head.features, generator=generator)
    bias = torch.randn(net.outputs, generator=generator)
    named = net.unflatten(weights.params)
    if not {head.weight, head.bias} <= named.keys():  # it shares them with another layer
        raise _refusal(net.spec)
    params = net.flatten({**named, head.weight: weight, head.bias: bias})
    with torch.no_grad():
        try:
            features = net.features(weights, inputs)
            expected = F.linear(features, weight, bias)
            found = net.apply(weights._replace(params=params), inputs)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise _refusal(net.spec) from error
    good = features.shape == (3, head.features) and torch.allclose(found, expected, rtol=1e-3)
    if not good:
        raise _refusal(net.spec)


def _last_linear(module: nn.Module) -> tuple[str, nn.Linear | None]:
    name, layer = "", None
    for each, found in module.named_modules():
        if isinstance(found, nn.Linear):
            name, layer = each, found
    return name, layer


def _refusal(spec: str) -> UserError:
    return UserError(
        f"The outputs of {spec} do not come from a last linear layer with a bias, which is "
        "needed here: give another `net`.",
        parameter="net",
    )
