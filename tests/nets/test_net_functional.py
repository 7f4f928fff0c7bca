import pytest
import torch
from torch import Tensor, nn

from pseudocoreset.nets import Net, Weights, make_net

SPECS = (
    "convnet:width=8",
    "convnet:width=8,norm=group,depth=2",
    "convnet:width=8,norm=layer",
    "convnet:width=8,norm=batch",
    "convnet:width=8,norm=batch,stats=kept",
    "convnet:width=8,norm=none",
    "lenet",
    "alexnet",
    "vgg11",
    "resnet18:norm=batch,stats=kept",
    "mlp:width=8",
)


def make(spec: str) -> Net:
    return make_net(spec, input_shape=(3, 28, 28), outputs=4)


def draw(net: Net, seed: int = 0) -> tuple[Weights, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = net.init(generator)
    # Not the init itself, so that the norms' weights and biases are seen to count.
    params = weights.params + 0.02 * torch.randn(net.num_params, generator=generator)
    images = torch.randn(3, *net.input_shape, generator=generator)
    labels = torch.tensor([0, 1, 3])
    return weights._replace(params=params), images, labels


def module_with(net: Net, weights: Weights) -> nn.Module:
    """A real module that holds the weights."""
    module = net.build()
    state = dict(net.unflatten(weights.params))
    left = weights.buffers
    for name, buffer in module.named_buffers():
        state[name] = left[: buffer.numel()].view(buffer.shape).to(buffer.dtype)
        left = left[buffer.numel() :]
    assert left.numel() == 0
    module.load_state_dict(state)
    return module


@pytest.mark.parametrize("spec", SPECS)
def test_apply_train_and_gradients_equal_a_real_module(spec):
    net = make(spec)
    weights, images, labels = draw(net)
    module = module_with(net, weights)
    torch.testing.assert_close(net.apply(weights, images), module.eval()(images))

    params = weights.params.clone().requires_grad_()
    pixels = images.clone().requires_grad_()
    logits, buffers = net.train(Weights(params, weights.buffers), pixels)
    loss = nn.functional.cross_entropy(logits, labels)
    gradient, pixel_gradient = torch.autograd.grad(loss, (params, pixels))

    module_pixels = images.clone().requires_grad_()
    module_logits = module.train()(module_pixels)
    nn.functional.cross_entropy(module_logits, labels).backward()
    expected = net.flatten({n: p.grad for n, p in module.named_parameters()})
    torch.testing.assert_close(logits, module_logits)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(pixel_gradient, module_pixels.grad, rtol=1e-4, atol=1e-6)
    values = [buffer.reshape(-1).float() for buffer in module.buffers()]
    torch.testing.assert_close(buffers, torch.cat(values) if values else torch.empty(0))
    assert not buffers.requires_grad


@pytest.mark.parametrize("spec", SPECS)
def test_a_network_knows_whether_images_count_for_one_another(spec):
    net = make(spec)
    weights, images, _ = draw(net)
    alone = torch.cat([net.apply(weights, image[None]) for image in images])
    assert net.by_image == torch.allclose(alone, net.apply(weights, images), rtol=1e-3, atol=1e-4)


def test_inputs_stay_as_they_are():
    net = make("convnet:width=8,norm=batch,stats=kept")
    weights, images, _ = draw(net)
    before = [tensor.clone() for tensor in (*weights, images)]
    net.train(weights, images)
    net.apply(weights, images)
    for old, new in zip(before, (*weights, images), strict=True):
        assert torch.equal(old, new)


def test_a_network_without_buffers_returns_those_given():
    net = make("convnet:width=8")
    weights, images, _ = draw(net)
    assert net.num_buffers == 0
    assert net.train(weights, images)[1] is weights.buffers


def test_unflatten_gives_views_and_flatten_undoes_it():
    net = make("convnet:width=8")
    params = torch.arange(net.num_params, dtype=torch.float32)
    tensors = net.unflatten(params)
    module = net.build()
    assert [(n, t.shape) for n, t in tensors.items()] == [
        (n, p.shape) for n, p in module.named_parameters()
    ]
    assert torch.equal(net.flatten(dict(reversed(tensors.items()))), params)
    tensors["classifier.bias"].fill_(-1.0)
    assert params[-1] == -1


def test_one_network_serves_many_sets_of_weights():
    net = make("convnet:width=8,norm=batch,stats=kept")
    sets = [draw(net, seed)[0] for seed in range(3)]
    images = draw(net)[1]
    one_by_one = [net.apply(weights, images) for weights in sets]
    modules = [module_with(net, weights).eval()(images) for weights in sets]
    stacked = Weights(*(torch.stack(vectors) for vectors in zip(*sets, strict=True)))
    together = torch.vmap(net.apply, in_dims=(Weights(0, 0), None))(stacked, images)
    torch.testing.assert_close(torch.stack(one_by_one), torch.stack(modules))
    torch.testing.assert_close(together, torch.stack(one_by_one), rtol=1e-4, atol=1e-5)
    assert not torch.equal(one_by_one[0], one_by_one[1])


def test_gradients_can_be_differentiated_again():
    net = make_net("convnet:width=4,depth=1", input_shape=(1, 8, 8), outputs=2)
    generator = torch.Generator().manual_seed(0)
    params, buffers = net.init(generator)
    params = params.double().requires_grad_()
    images = torch.randn(2, 1, 8, 8, generator=generator, dtype=torch.float64, requires_grad=True)

    def loss(params: Tensor, images: Tensor) -> Tensor:
        return net.apply(Weights(params, buffers), images).square().sum()

    assert torch.autograd.gradcheck(loss, (params, images), fast_mode=True)
    assert torch.autograd.gradgradcheck(loss, (params, images), fast_mode=True)


def test_kept_statistics_are_buffers_that_training_updates_and_apply_uses():
    net = make("convnet:width=8,depth=1,norm=batch,stats=kept")
    weights, images, _ = draw(net)
    mean, variance, count = weights.buffers.split([8, 8, 1])
    assert (mean == 0).all()
    assert (variance == 1).all()
    assert count == 0
    maps = nn.functional.conv2d(
        images, *list(net.unflatten(weights.params).values())[:2], padding=3
    )
    _, buffers = net.train(weights, images)
    mean, variance, count = buffers.split([8, 8, 1])
    torch.testing.assert_close(mean, 0.1 * maps.mean((0, 2, 3)))
    torch.testing.assert_close(variance, 0.9 + 0.1 * maps.var((0, 2, 3)))
    assert count == 1
    trained = weights._replace(buffers=buffers)
    assert not torch.allclose(net.apply(trained, images), net.apply(weights, images))
    # One image's prediction does not depend on the images beside it.
    torch.testing.assert_close(net.apply(trained, images)[:1], net.apply(trained, images[:1]))


def test_batch_statistics_keep_nothing_and_are_used_at_test_time_too():
    net = make("convnet:width=8,norm=batch")
    weights, images, _ = draw(net)
    assert net.num_buffers == 0
    torch.testing.assert_close(net.apply(weights, images), net.train(weights, images)[0])
    assert not torch.allclose(net.apply(weights, images)[:1], net.apply(weights, images[:1]))


@pytest.mark.cuda
@pytest.mark.parametrize("spec", ["convnet", "convnet:norm=batch,stats=kept", "resnet18", "mlp"])
def test_a_cuda_graph_replays_what_the_cpu_computes(spec):
    net = make(spec)
    weights, images, _ = draw(net)
    generator = torch.Generator("cuda").manual_seed(0)
    fresh = net.init(generator)
    assert all(tensor.is_cuda for tensor in fresh)
    on_device = Weights(*(tensor.cuda() for tensor in weights))
    pixels = images.cuda()
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        net.train(on_device, pixels)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = net.train(on_device, pixels)
    graph.replay()
    torch.cuda.synchronize()
    for got, expected in zip(outputs, net.train(weights, images), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=5e-3, atol=5e-3)
