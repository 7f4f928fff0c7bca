"""The last layer of a network: what goes in, and other weights in its place."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pseudocoreset.errors import UserError
from pseudocoreset.nets import Weights, make_net

SPECS = (
    "convnet:width=8",
    "convnet:width=8,norm=batch",
    "convnet:width=8,norm=batch,stats=kept",
    "lenet",
    "alexnet",
    "vgg11",
    "resnet18",
    "mlp:width=8",
    "own_factories:custom",
    "own_factories:plain",
)


def made(spec, input_shape=(3, 28, 28)):
    net = make_net(spec, input_shape=input_shape, outputs=4)
    generator = torch.Generator().manual_seed(0)
    return net, net.init(generator), torch.randn(3, *input_shape, generator=generator)


@pytest.mark.parametrize("spec", SPECS)
def test_outputs_are_the_last_layers_of_the_features(spec):
    net, weights, inputs = made(spec)
    with torch.no_grad():
        features = net.features(weights, inputs)
        layer = net.unflatten(weights.params)
        found = F.linear(features, layer[net.head.weight], layer[net.head.bias])
        torch.testing.assert_close(found, net.apply(weights, inputs))
    assert features.shape == (3, net.head.features)


@pytest.mark.parametrize("spec", SPECS)
def test_other_last_layer_changes_nothing_else(spec):
    net, weights, inputs = made(spec)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(4, net.head.features, generator=generator)
    bias = torch.randn(4, generator=generator)
    other = net.with_head(weights, weight, bias)
    with torch.no_grad():
        features = net.features(weights, inputs)
        torch.testing.assert_close(net.features(other, inputs), features)
        torch.testing.assert_close(net.apply(other, inputs), F.linear(features, weight, bias))
    same = net.unflatten(weights.params)
    changed = {k for k, v in net.unflatten(other.params).items() if not torch.equal(v, same[k])}
    assert changed == {net.head.weight, net.head.bias}


def test_features_are_differentiable_in_inputs_and_weights():
    net, weights, inputs = made("convnet:width=8")
    params, inputs = weights.params.requires_grad_(), inputs.requires_grad_()
    found = net.features(Weights(params, weights.buffers), inputs).square().sum()
    by_params, by_inputs = torch.autograd.grad(found, [params, inputs])
    assert by_inputs.abs().max() > 0
    layers = net.unflatten(by_params)
    assert not layers[net.head.weight].any()
    assert layers["features.0.weight"].any()


def test_network_that_is_one_linear_layer_gives_its_inputs():
    net, weights, rows = made(nn.Linear, input_shape=(5,))
    assert torch.equal(net.features(weights, rows), rows)
    assert net.head == ("weight", "bias", 5)


class Ending(nn.Module):
    """A linear layer that is not where the outputs come from, in one way or another."""

    def __init__(self, way: str, features: int, outputs: int) -> None:
        super().__init__()
        self.way = way
        size = outputs if way in ("shared", "twice") else features
        self.first = nn.Linear(features, size)
        self.norm = nn.LayerNorm(outputs)
        self.head = nn.Linear(size, outputs, bias=way != "no bias")
        if way == "shared":
            self.head.weight = self.first.weight
        if way == "unused":
            self.last = nn.Linear(features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        found = self.head(self.first(rows).relu())
        if self.way == "softmax":
            return found.log_softmax(1)
        if self.way == "norm":
            return self.norm(found)
        if self.way == "sum":
            return found + rows.mean(1, keepdim=True)
        return self.head(found) if self.way == "twice" else found


def ending(way):
    def factory(features: int, outputs: int) -> nn.Module:
        return Ending(way, features, outputs)

    return factory


@pytest.mark.parametrize(
    "way", ["softmax", "norm", "sum", "no bias", "twice", "unused", "shared", "none"]
)
def test_network_that_does_not_end_with_a_linear_layer_is_refused(way):
    factory = ending(way)
    if way == "none":

        def factory(features: int, outputs: int) -> nn.Module:
            convolution = nn.Conv1d(1, outputs, features)
            return nn.Sequential(nn.Unflatten(1, (1, features)), convolution, nn.Flatten())

    net, _, _ = made(factory, input_shape=(4,))
    with pytest.raises(UserError, match="last linear layer") as refused:
        net.head  # noqa: B018
    assert refused.value.parameter == "net"


def test_ordinary_ending_is_taken():
    net, _, _ = made(ending("plain"), input_shape=(4,))
    assert net.head.features == 4
