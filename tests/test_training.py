"""The inner loop: its rules against torch.optim, its batches, its sums, and starting again."""

import gc
import math
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import Scaling, Split
from pseudocoreset.engine.loop import Loop, State, compiled
from pseudocoreset.likelihoods import Categorical, Gaussian
from pseudocoreset.nets import Net, Weights, make_net
from pseudocoreset.training import SGD, Adam, RealPoints, Rule, Training, coreset_points

OFF = Augmentation(())
CLASSES = Categorical(3)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So little work is slower on two threads, and much slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_net(spec: str = "convnet:width=8") -> Net:
    return make_net(spec, input_shape=(1, 8, 8), outputs=3)


def doubles(net: Net, images: int) -> tuple[Weights, Tensor, Tensor]:
    """Weights, images and labels; in double precision, so that noise stays far below Adam's ε."""
    generator = rng(1)
    params, buffers = net.init(generator)
    points = torch.randn(images, 1, 8, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (images,), generator=generator)
    return Weights(params.double(), buffers.double()), points, labels


def module_with(net: Net, weights: Weights) -> nn.Module:
    module = net.build().double()
    module.load_state_dict(net.unflatten(weights.params.clone()), strict=False)
    return module


def optimised(
    module: nn.Module,
    make: Callable[[nn.Module], torch.optim.Optimizer],
    batches: list[tuple[Tensor, Tensor]],
) -> list[float]:
    """Train the module as anyone would; the losses."""
    optimizer, losses = make(module), []
    for images, labels in batches:
        loss = F.cross_entropy(module(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def make_sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.05)


def make_adam(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=0.002)


RULES = pytest.mark.parametrize(("rule", "make"), [(SGD(0.05), make_sgd), (Adam(0.002), make_adam)])


@RULES
@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_rules_are_those_of_torch(
    rule: Rule, make: Callable[[nn.Module], torch.optim.Optimizer], norm: str
) -> None:
    net = small_net(f"convnet:width=8,norm={norm}")
    weights, images, labels = doubles(net, 20)
    module = module_with(net, weights)
    places = [[(4 * t + i) % 20 for i in range(4)] for t in range(20)]
    losses = optimised(module, make, [(images[p], labels[p]) for p in places])

    training = Training(net, rule, coreset_points, OFF, CLASSES, rng(), batch=4)
    training.start(weights, {"inputs": images, "targets": labels})
    training.set_order(torch.arange(20))
    training.run(20)

    expected = net.flatten(dict(module.named_parameters())).detach()
    assert (expected - weights.params).abs().max() > 0.01  # it went somewhere
    torch.testing.assert_close(training.weights.params, expected, rtol=1e-7, atol=1e-9)
    assert training.take("loss_sum") == pytest.approx(sum(losses))


def test_running_statistics_are_those_of_torch() -> None:
    net = small_net("convnet:width=8,norm=batch,stats=kept")
    weights = net.init(rng(1))
    images, labels = torch.randn(6, 1, 8, 8, generator=rng(2)), torch.arange(6) % 3
    module = module_with(net, weights).float()
    optimised(module, make_sgd, [(images, labels)] * 10)
    training = Training(net, SGD(0.05), coreset_points, OFF, CLASSES, rng())
    training.start(weights, {"inputs": images, "targets": labels})
    training.run(10)
    buffers = torch.cat([buffer.float().reshape(-1) for buffer in module.buffers()])
    assert not torch.allclose(buffers, weights.buffers, atol=1e-2)
    torch.testing.assert_close(training.weights.buffers, buffers, rtol=1e-4, atol=1e-5)


def test_adam_is_that_of_torch_in_single_precision() -> None:
    """The bias correction is computed in float32; its error must not matter."""
    gradients = torch.randn(30, 5, generator=rng())
    parameter = nn.Parameter(torch.zeros(5))
    optimizer = torch.optim.Adam([parameter], lr=0.01)
    rule = Adam(0.01)
    state = {"params": torch.zeros(5)} | rule.slots(torch.zeros(5))
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
        state |= rule.update(state, gradient)
    torch.testing.assert_close(state["params"], parameter.detach(), rtol=1e-4, atol=1e-6)


def watched(images: int, batch: int | None) -> tuple[Training, Callable[[int], list[list[int]]]]:
    """A training on images that carry their own number, and how to see which ones it takes."""
    seen: list[list[int]] = []

    def source(state: State, index: Tensor | None) -> tuple[Tensor, Tensor]:
        taken, labels = coreset_points(state, index)
        seen.append(taken[:, 0, 0, 0].int().tolist())
        assert (labels == taken[:, 0, 0, 0] % 3).all()
        return taken, labels

    net = small_net()
    training = Training(net, SGD(1e-3), source, OFF, CLASSES, rng(), batch=batch)
    numbered = torch.arange(images).float().view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
    training.start(net.init(rng()), {"inputs": numbered, "targets": torch.arange(images) % 3})

    def run(steps: int) -> list[list[int]]:
        seen.clear()
        training.run(steps)
        return list(seen)

    return training, run


def test_epoch_visits_each_image_once_in_the_given_order() -> None:
    training, run = watched(12, 4)
    order = torch.randperm(12, generator=rng(3))
    training.set_order(order)
    assert run(3) == order.view(3, 4).tolist()
    training.set_order(order.flip(0))  # begins at the first again
    assert run(3) == order.flip(0).view(3, 4).tolist()


def test_batches_go_round_and_round() -> None:
    training, run = watched(5, 3)
    training.set_order(torch.tensor([4, 3, 2, 1, 0]))
    assert run(2) == [[4, 3, 2], [1, 0, 4]]
    assert run(3) == [[3, 2, 1], [0, 4, 3], [2, 1, 0]]


def test_without_a_batch_all_images_are_taken() -> None:
    _, run = watched(5, None)
    assert run(2) == [[0, 1, 2, 3, 4]] * 2


def test_sums_run_until_they_are_taken() -> None:
    """With a step size of nothing, every step has the same loss and accuracy."""
    net = small_net()
    weights, images, labels = doubles(net, 6)
    training = Training(net, SGD(0.0), coreset_points, OFF, CLASSES, rng())
    training.start(weights, {"inputs": images, "targets": labels})
    training.run(3)
    logits = net.train(weights, images)[0]
    loss = float(F.cross_entropy(logits, labels))
    share = float((logits.argmax(1) == labels).double().mean())
    assert training.take("loss_sum") == pytest.approx(3 * loss)
    training.run(1)
    assert training.take("loss_sum") == pytest.approx(loss)
    assert training.take("figure_sum") == pytest.approx(4 * share)
    assert training.take("figure_sum") == 0
    training.run(1)
    training.start(weights)
    assert training.take("loss_sum") == 0


@pytest.mark.parametrize("rule", [SGD(0.05), Adam(0.002)])
def test_started_again_it_does_the_same(rule: Rule) -> None:
    net = small_net("convnet:width=8,norm=batch,stats=kept")
    generator = rng()
    images = torch.randint(256, (10, 1, 8, 8), dtype=torch.uint8, generator=rng(2))
    split = Split(images, torch.arange(10) % 3)
    source = RealPoints(split, Scaling((0.5,), (0.25,)))
    augmentation = Augmentation.parse("on", True)
    training = Training(net, rule, source, augmentation, CLASSES, generator, batch=5)
    ends = []
    for seed in (4, 5, 4):
        generator.manual_seed(seed)
        training.start(net.init(generator))
        training.set_order(torch.randperm(10, generator=generator))
        training.run(6)
        ends.append(Weights(*(part.clone() for part in training.weights)))
    assert torch.equal(ends[0].params, ends[2].params)
    assert torch.equal(ends[0].buffers, ends[2].buffers)
    assert not torch.equal(ends[0].params, ends[1].params)


def test_weights_given_stay_as_they_are() -> None:
    net = small_net("convnet:width=8,norm=batch,stats=kept")
    weights, images, labels = net.init(rng()), torch.ones(6, 1, 8, 8), torch.arange(6) % 3
    before = Weights(*(part.clone() for part in weights))
    training = Training(net, SGD(0.1), coreset_points, OFF, CLASSES, rng())
    training.start(weights, {"inputs": images, "targets": labels})
    training.run(2)
    assert torch.equal(weights.params, before.params)
    assert torch.equal(weights.buffers, before.buffers)


def test_soft_labels_are_rows_of_probabilities() -> None:
    """The cross-entropy with probabilities; correct is the most probable class."""
    net = small_net()
    weights, images, labels = doubles(net, 6)
    hard = F.one_hot(labels, 3).double()
    soft = 0.7 * hard + 0.1
    losses = {}
    for name, given in (("index", labels), ("hard", hard), ("soft", soft)):
        training = Training(net, SGD(0.0), coreset_points, OFF, CLASSES, rng())
        training.start(weights, {"inputs": images, "targets": given})
        training.run(1)
        losses[name] = training.take("loss_sum")
        predicted = net.train(weights, images)[0].argmax(1)
        share = float((predicted == labels).double().mean())
        assert training.take("figure_sum") == pytest.approx(share)
    log_probabilities = net.train(weights, images)[0].log_softmax(1)
    assert losses["index"] == pytest.approx(losses["hard"])
    assert losses["soft"] == pytest.approx(float(-(soft * log_probabilities).sum(1).mean()))


def test_regression_descends_the_gaussian_loss() -> None:
    """½ ‖f − y‖²/σ² + …, its mean over a batch; the figure is the error's root mean square."""
    net = make_net("mlp:depth=1,width=8", input_shape=(3,), outputs=2)
    params, buffers = net.init(rng(1))
    weights = Weights(params.double(), buffers.double())
    inputs, targets = torch.randn(6, 5, generator=rng(2), dtype=torch.float64).split([3, 2], 1)
    module = module_with(net, weights)
    optimizer, losses, errors = make_sgd(module), [], []
    for _ in range(5):
        error = module(inputs) - targets
        constant = 2 * (math.log(0.5) + math.log(2 * math.pi) / 2)
        loss = (error / 0.5).square().sum(1).mean() / 2 + constant
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        errors.append(float(error.detach().square().mean().sqrt()))
    training = Training(net, SGD(0.05), coreset_points, OFF, Gaussian(2, 0.5), rng())
    training.start(weights, {"inputs": inputs, "targets": targets})
    training.run(5)
    expected = net.flatten(dict(module.named_parameters())).detach()
    torch.testing.assert_close(training.weights.params, expected, rtol=1e-7, atol=1e-9)
    assert training.take("loss_sum") == pytest.approx(sum(losses))
    assert training.take("figure_sum") == pytest.approx(sum(errors))


def test_real_points_of_a_table_are_scaled_with_their_targets() -> None:
    split = Split(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[10.0], [20.0]]))
    source = RealPoints(split, Scaling((1.0, 2.0), (2.0, 1.0)), Scaling((10.0,), (5.0,)))
    for index, rows in ((None, [0, 1]), (torch.tensor([1]), [1])):
        inputs, targets = source({}, index)
        assert inputs.tolist() == [[[0.0, 0.0], [1.0, 2.0]][row] for row in rows]
        assert targets.tolist() == [[[0.0], [2.0]][row] for row in rows]


def with_dropout(channels: int, image_size: int, classes: int) -> nn.Module:
    size = channels * image_size * image_size
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(size, classes))


def test_dropout_follows_the_seed_and_leaves_the_global_generator_alone() -> None:
    net = make_net(with_dropout, input_shape=(1, 8, 8), outputs=3)
    assert net.draws
    images, labels = torch.ones(4, 1, 8, 8), torch.arange(4) % 3
    ends = []
    for seed, mess in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(mess)
        before = torch.get_rng_state()
        generator = rng(seed)
        training = Training(net, SGD(0.1), coreset_points, OFF, CLASSES, generator)
        training.start(net.init(rng()), {"inputs": images, "targets": labels})
        training.run(2)
        first = training.weights.params.clone()
        training.run(3)
        assert not torch.equal(first, training.weights.params)
        assert torch.equal(torch.get_rng_state(), before)
        ends.append(training.weights.params.clone())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_observer_sees_the_step_done() -> None:
    net = small_net()
    weights, images, labels = doubles(net, 6)

    def observe(state: State) -> State:
        return {"total": state["total"] + state["params"]}

    training = Training(net, SGD(0.1), coreset_points, OFF, CLASSES, rng(), observe=observe)
    zeros = torch.zeros_like(weights.params)
    training.start(weights, {"inputs": images, "targets": labels, "total": zeros})
    total = zeros
    for _ in range(3):
        training.run(1)
        total = total + training.weights.params
    torch.testing.assert_close(training.state["total"], total)


def looped(step: Callable[[State], State], **entries: float) -> Loop:
    loop = Loop(step, rng())
    loop.load({name: torch.tensor(value) for name, value in entries.items()})
    return loop


def test_loop_computes_all_before_it_writes_any() -> None:
    loop = looped(lambda s: {"a": s["a"] + s["b"], "b": s["a"]}, a=1.0, b=1.0)
    loop.run(5)  # Fibonacci's numbers, if `b` gets the old `a`
    assert (float(loop.state["a"]), float(loop.state["b"])) == (13, 8)
    swap = looped(lambda s: {"b": s["a"], "a": s["b"].view(())}, a=1.0, b=2.0)
    swap.run(3)
    assert (float(swap.state["a"]), float(swap.state["b"])) == (2, 1)


def test_loop_keeps_what_a_step_does_not_change() -> None:
    loop = looped(lambda s: {"a": s["a"] + s["c"]}, a=0.0, c=3.0)
    held = loop.state["a"]
    loop.run(4)
    assert (float(loop.state["a"]), float(loop.state["c"])) == (12, 3)
    assert loop.state["a"] is held  # in place: a captured graph knows no other


@pytest.mark.parametrize("value", [torch.ones(1), torch.ones(3), torch.ones(2, dtype=torch.int64)])
def test_loop_refuses_other_shapes_and_types(value: Tensor) -> None:
    loop = Loop(dict, rng())
    loop.load({"a": torch.zeros(2)})
    with pytest.raises(ValueError, match="a is "):
        loop.load({"a": value})
    loop.load({"a": torch.ones(2)})
    assert loop.state["a"].tolist() == [1, 1]


def test_loop_loads_copies() -> None:
    given = torch.zeros(2)
    loop = Loop(lambda state: {"a": state["a"] + 1}, rng())
    loop.load({"a": given})
    loop.run(1)
    assert given.tolist() == [0, 0]


def test_training_is_gone_with_its_last_reference() -> None:
    """Without waiting for Python's search for circles: on a GPU, gigabytes hang on it."""
    net = small_net("convnet:width=8")
    training = Training(net, SGD(0.1), coreset_points, OFF, CLASSES, rng())
    training.start(net.init(rng()), {"inputs": torch.zeros(3, 1, 8, 8), "targets": torch.arange(3)})
    training.run(1)
    kept = weakref.ref(training._loop)
    gc.disable()
    try:
        del training
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # its own
def test_compiler_knows_its_options_and_starts_no_workers(monkeypatch):
    given, compile_ = {}, torch.compile  # which refuses options that it does not know

    def noted(function, **options):
        given.update(options)
        return compile_(function, **options)

    monkeypatch.setattr(torch, "compile", noted)
    assert compiled(torch.sin, torch.device("cuda"), fused=True) is torch.sin
    compiled(torch.sin, torch.device("cuda"), fused=False)
    from torch._inductor import config

    with config.patch(compile_threads=2), config.patch(given["options"]):
        assert config.compile_threads == 1
