import pytest
import torch
from torch import nn

from oracles.nets import slow_convnet, slow_instance_norm
from pseudocoreset.nets import Net, Weights, default_net, make_net
from pseudocoreset.nets.norms import Norm
from pseudocoreset.nets.resnet import BasicBlock


def small_net(spec: str, channels: int = 3, image_size: int = 32, classes: int = 10) -> Net:
    return make_net(spec, input_shape=(channels, image_size, image_size), outputs=classes)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("spec", "image_size", "classes", "count"),
    [
        ("convnet", 32, 10, 320_010),
        ("convnet:norm=layer", 32, 10, 663_306),
        ("convnet", 32, 100, 504_420),
        ("convnet", 64, 200, 857_160),
        ("lenet", 32, 10, 62_006),
        ("alexnet", 32, 10, 1_872_202),
        ("vgg11", 32, 10, 9_231_114),
        ("resnet18", 32, 10, 11_173_962),
        ("resnet34", 32, 10, 21_282_122),
        ("mlp", 32, 10, 3072 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10),
    ],
)
def test_parameter_counts_are_those_of_the_reference_networks(spec, image_size, classes, count):
    assert small_net(spec, 3, image_size, classes).num_params == count


@pytest.mark.parametrize(
    ("size", "depth"), [(8, 2), (16, 2), (27, 2), (28, 3), (32, 3), (63, 3), (64, 4)]
)
def test_convnet_has_the_depth_of_its_image_size(size, depth):
    net = small_net("convnet", 1, size)
    assert net.spec == f"convnet:depth={depth},width=128,norm=instance"


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("convnet:norm=batch", "convnet:depth=3,width=128,norm=batch,stats=batch"),
        (
            "convnet:stats=kept,norm=batch,depth=1",
            "convnet:depth=1,width=128,norm=batch,stats=kept",
        ),
        ("lenet", "lenet"),
        ("alexnet", "alexnet"),
        ("vgg11", "vgg11:norm=instance"),
        ("resnet18:norm=group", "resnet18:norm=group"),
        ("resnet34", "resnet34:norm=instance"),
        ("mlp", "mlp:depth=2,width=64"),
        ("mlp:width=5", "mlp:depth=2,width=5"),
    ],
)
def test_the_canonical_spec_makes_the_same_network(spec, canonical):
    net = small_net(spec)
    again = small_net(net.spec)
    assert net.spec == again.spec == canonical
    assert net.num_params == again.num_params


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 11, 28, 31, 64])
@pytest.mark.parametrize("norm", ["instance", "group", "layer", "batch", "none"])
def test_convnet_gives_logits_for_every_size(channels, size, norm):
    net = small_net(f"convnet:width=4,norm={norm}", channels, size, 7)
    logits = net.apply(net.init(generator()), torch.zeros(2, channels, size, size))
    assert logits.shape == (2, 7)
    assert logits.isfinite().all()


# On the meta device, so that the large networks cost nothing: shapes are all that is looked at.
@pytest.mark.parametrize(
    ("channels", "size"), [(1, 28), (3, 28), (3, 32), (3, 33), (1, 63), (3, 64)]
)
@pytest.mark.parametrize(
    "spec",
    ["lenet", "alexnet"]
    + [
        f"{name}:norm={norm}"
        for name in ("vgg11", "resnet18")
        for norm in ("instance", "group", "layer", "batch", "none")
    ],
)
def test_the_other_networks_give_logits_for_every_size(spec, channels, size):
    net = small_net(spec, channels, size, 7)
    with torch.device("meta"):
        weights = Weights(torch.empty(net.num_params), torch.empty(net.num_buffers))
        assert net.apply(weights, torch.empty(2, channels, size, size)).shape == (2, 7)


@pytest.mark.parametrize("name", ["convnet", "lenet", "alexnet", "vgg11", "resnet18"])
def test_a_28_pixel_image_is_a_32_pixel_image_with_a_frame_of_zeros(name):
    small, large = small_net(name, 1, 28), small_net(name, 1, 32)
    weights = small.init(generator())
    images = torch.randn(2, 1, 28, 28, generator=generator())
    framed = nn.functional.pad(images, (2, 2, 2, 2))
    torch.testing.assert_close(small.apply(weights, images), large.apply(weights, framed))


@pytest.mark.parametrize("name", ["convnet", "vgg11"])
def test_parameters_come_layer_by_layer(name):
    net = small_net(name)
    shapes = [tuple(tensor.shape) for tensor in net.unflatten(torch.zeros(net.num_params)).values()]
    width = 128 if name == "convnet" else 64
    assert shapes[:4] == [(width, 3, 3, 3), (width,), (width,), (width,)]
    assert shapes[-1] == (10,)
    assert shapes[-2][0] == 10


@pytest.mark.parametrize("size", [8, 9, 28])
def test_convnet_equals_its_slow_twin(size):
    net = small_net("convnet:width=5", 3, size, 4)
    weights = net.init(generator(1))
    params = (weights.params + 0.1 * torch.randn(net.num_params, generator=generator(2))).double()
    images = torch.randn(2, 3, size, size, generator=generator(3), dtype=torch.float64)
    expected = slow_convnet(net.unflatten(params), images)
    torch.testing.assert_close(net.apply(weights._replace(params=params), images), expected)


def test_instance_norm_equals_its_slow_twin():
    layer = Norm("instance").layer(5, 6)
    maps = 3 + 2 * torch.randn(4, 5, 6, 6, generator=generator())
    scale, shift = torch.randn(2, 5, generator=generator(1))
    with torch.no_grad():
        layer.weight.copy_(scale)
        layer.bias.copy_(shift)
        torch.testing.assert_close(layer(maps), slow_instance_norm(maps, scale, shift))


@pytest.mark.parametrize(
    ("name", "dims", "groups"), [("layer", (1, 2, 3), None), ("group", (2, 3, 4), 4)]
)
def test_layer_and_group_norm_standardise_what_they_should(name, dims, groups):
    maps = 3 + 2 * torch.randn(2, 8, 6, 6, generator=generator())
    out = Norm(name).layer(8, 6)(maps).detach()
    out = out if groups is None else out.unflatten(1, (groups, -1))
    torch.testing.assert_close(out.mean(dims), torch.zeros_like(out.mean(dims)), atol=1e-5, rtol=0)
    variance = out.var(dims, correction=0)
    torch.testing.assert_close(variance, torch.ones_like(variance), atol=1e-4, rtol=0)


def test_resnet_block_adds_its_shortcut():
    plain = BasicBlock(4, 4, 1, 6, Norm("none"))
    maps = torch.randn(2, 4, 6, 6, generator=generator())
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.zero_()
        torch.testing.assert_close(plain(maps), maps.clamp(min=0))
        assert BasicBlock(4, 8, 2, 3, Norm("instance"))(maps).shape == (2, 8, 3, 3)


@pytest.mark.parametrize("shape", [(7,), (1,), (3, 4, 4)])
@pytest.mark.parametrize("depth", [1, 3])
def test_mlp_equals_its_products_written_out(shape, depth):
    net = make_net(f"mlp:depth={depth},width=5", input_shape=shape, outputs=2)
    weights = net.init(generator())
    inputs = torch.randn(4, *shape, generator=generator(1))
    tensors = list(net.unflatten(weights.params).values())
    hidden = inputs.reshape(4, -1)
    for layer in range(depth):
        hidden = (hidden @ tensors[2 * layer].T + tensors[2 * layer + 1]).clamp(min=0)
    expected = hidden @ tensors[-2].T + tensors[-1]
    assert len(tensors) == 2 * depth + 2
    assert net.num_buffers == 0
    assert net.by_image
    torch.testing.assert_close(net.apply(weights, inputs), expected)
    torch.testing.assert_close(net.train(weights, inputs)[0], expected)


def test_net_says_what_it_is_in_one_line():
    net = make_net("mlp:width=3,depth=1", input_shape=(4,), outputs=2)
    assert repr(net) == "Net(mlp:depth=1,width=3, 4 to 2, 23 parameters)"
    assert (net.input_shape, net.outputs, net.source_digest) == ((4,), 2, None)


def test_the_same_name_and_shape_give_the_same_object():
    assert small_net("convnet") is small_net("convnet")
    assert small_net("convnet") is not small_net("convnet", 1)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 64, 64), (1,), (30,)])
def test_the_default_network_takes_the_inputs(shape):
    assert make_net(default_net(shape), input_shape=shape, outputs=2).input_shape == shape
