"""What the engine does on one CUDA device; run by test_cuda.py in a process of its own, since
torch.compile can't trace what the tests' type checker wraps."""

import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

from pseudocoreset import SGHMC, augment, distill, load_data, sample, train_experts, training
from pseudocoreset.engine import loop
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.experts import ExpertOptions, train
from pseudocoreset.kernels import norm_relu_pool as fused
from pseudocoreset.kernels.convolution import convolved
from pseudocoreset.kernels.patches import patches_of
from pseudocoreset.methods import METHODS
from pseudocoreset.nets import convnet, make_net
from pseudocoreset.plan.measure import Stopwatch
from pseudocoreset.posterior import named_sampler, sample_posteriors
from pseudocoreset.posterior.sample import chains_for
from pseudocoreset.predictor import TEST_BATCH, Predictor

NET = "convnet:width=16"
CPU = torch.device("cpu")
EXPERTS = {"epochs": 3, "lr": 0.1, "batch": 64, "device": "cuda", "progress": False}
QUIET = {"device": "cuda", "progress": False}


def plainly() -> None:
    """Take capture, compiler, half precision and kernels of our own out: one layer at a time."""
    loop.Loop.run = lambda self, times: [self._advance() for _ in range(times)] and None
    loop.torch.compile = lambda function, **_: function
    loop.torch.autocast = lambda *_, **__: torch.enable_grad()
    convnet.can_fuse = lambda *_: False
    augment.can_augment = lambda _: False
    training.can_step = lambda _: False


def results() -> dict[str, torch.Tensor]:
    """An expert, an update by every method, a posterior, and predictions."""
    data = load_data("digits")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        store = train_experts(data, NET, folder, num=2, **EXPERTS)
        found["expert"] = store.snapshot(store.trajectories[1], 3, CPU).params
        for name, kind in METHODS.items():
            if not kind.makes_updates:
                continue
            own = {"gamma": 1.0, "from_epoch": 2, "draws": 2, "group": 3}
            own |= {"window": 5, "longest": 10, "warm_up": 5, "chains": 2}
            method = kind(**{k: v for k, v in own.items() if k in kind().as_dict()})
            wanted = {"ipc": 2, "batch": 15, "lr_images": 1.0, "recipe": "paper"}
            start = distill(data, store, method, steps=0, **wanted, **QUIET)
            watch = Stopwatch(torch.device("cuda"))
            made = distill(data, store, method, steps=1, **wanted, device="cuda", progress=watch)
            found[name] = made.inputs - start.inputs
            if name == "fbpc":
                found["variance"] = torch.tensor(watch.figures[0]["variance_x"])
    sampler = named_sampler("paper", SGHMC(epochs=20, every=10, batch=15))
    posterior = sample(made, sampler, chains=1, **QUIET)
    found["posterior"] = posterior.params.cpu()
    net = make_net(NET, **data.shape)
    images = data.train.inputs.cuda()
    assert len(images) > TEST_BATCH  # a whole batch, and what is left over
    predictor = Predictor(net, images, data.scaling)
    weights = [net.init(torch.Generator().manual_seed(seed)) for seed in range(2)]
    found["predictions"] = torch.stack([predictor.outputs(each) for each in weights]).cpu()
    return found


def check_repeats() -> None:
    """Work side by side must not meddle: a seed gives one result, alone or beside others."""
    data = load_data("digits")
    with tempfile.TemporaryDirectory() as folder:
        stores = []
        for at_once in (1, 2):  # of three, so that one is begun amid another's epochs
            train.AT_ONCE = at_once
            stores.append(train_experts(data, NET, f"{folder}/{at_once}", num=3, **EXPERTS))
        for number in range(3):
            alone, beside = (store.describe(store.trajectory_path(number)) for store in stores)
            for name in ("train_loss", "test_accuracy"):
                one, other = torch.tensor(alone[name]), torch.tensor(beside[name])
                torch.testing.assert_close(other, one, rtol=0.01, atol=0.01)
            for epoch in range(4):
                one, other = (s.snapshot(s.trajectory_path(number), epoch, CPU) for s in stores)
                difference = (one.params - other.params).norm() / one.params.norm()
                assert difference < 1e-3, f"expert {number} differs by {difference:.5f} beside one"
        store = stores[1]
        method = METHODS["fbpc"](gamma=0.5, from_epoch=2)
        wanted = {"ipc": 5, "lr_images": 1.0, "recipe": "paper", **QUIET}
        start = distill(data, store, method, steps=0, **wanted).inputs
        images = [distill(data, store, method, steps=3, **wanted).inputs for _ in range(4)]
    for other in images[1:]:
        difference = (other - images[0]).norm() / (images[0] - start).norm()
        assert difference < 1e-3, f"an FBPC run differs from itself by {difference:.5f}"
    check_first_weights()
    coreset = distill(data, (), "random", ipc=5, net=NET, **QUIET)
    sampler = named_sampler("paper", SGHMC(epochs=40, every=20))
    work = chains_for(coreset, sampler, 1, None)
    beside = sample_posteriors(coreset, work, seeds=range(4), **QUIET)
    for seed, one in enumerate(beside):
        alone = sample(coreset, sampler, chains=1, seed=seed, **QUIET)
        difference = (one.params - alone.params).norm() / alone.params.norm()
        assert difference < 1e-3, f"chain {seed} differs by {difference:.5f} beside others"


def with_dropout(channels: int, image_size: int, classes: int) -> nn.Module:
    """A network of a person's own that draws random numbers as it trains."""
    size = channels * image_size * image_size
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(size, classes))


def check_dropout() -> None:
    """Dropout follows the seed, and leaves the person's own generators alone."""
    data = load_data("digits")
    torch.cuda.manual_seed(3)
    before = torch.cuda.get_rng_state()
    ends = []
    with tempfile.TemporaryDirectory() as folder:
        for name, seed, mess in (("a", 0, 1), ("b", 0, 5), ("c", 1, 1)):
            state = torch.cuda.get_rng_state()
            torch.cuda.manual_seed(mess)  # what the person draws elsewhere is no matter
            options = ExpertOptions(num=2, epochs=2, lr=0.1, batch=64, dsa="off")
            store = train_experts(
                data, with_dropout, f"{folder}/{name}", options, seed=seed, **QUIET
            )
            snapshots = [store.snapshot(path, 2, CPU).params for path in store.trajectories]
            ends.append(torch.stack(snapshots))
            torch.cuda.set_rng_state(state)
    coreset = distill(data, (), "random", ipc=5, net=with_dropout, **QUIET)
    sampler = SGHMC(epochs=20, every=10, dsa="off")
    for seed in (0, 0, 1):
        posterior = sample(coreset, sampler, chains=2, net=with_dropout, seed=seed, **QUIET)
        ends.append(posterior.params.cpu())
    for one, same, other in (ends[:3], ends[3:]):
        assert torch.equal(one, same), f"{float((one - same).abs().max())} apart with one seed"
        assert not torch.equal(one, other)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    check_dropout_is_fresh()


def check_dropout_is_fresh() -> None:
    """Captured or not, every step drops other units: otherwise a unit would never learn."""
    from pseudocoreset.augment import Augmentation
    from pseudocoreset.likelihoods import Categorical
    from pseudocoreset.training import SGD, Training, coreset_points

    net = make_net(with_dropout, input_shape=(1, 8, 8), outputs=3)
    generator = torch.Generator("cuda").manual_seed(0)
    training = Training(net, SGD(0.1), coreset_points, Augmentation(()), Categorical(3), generator)
    points = {"inputs": torch.ones(1, 1, 8, 8), "targets": torch.zeros(1, dtype=torch.int64)}
    training.start(net.init(generator), {k: v.cuda() for k, v in points.items()})
    steps = []
    for _ in range(12):
        before = training.weights.params.clone()
        training.run(1)
        steps.append((training.weights.params != before)[: 3 * 64].view(3, 64)[0].cpu())
    dropped = torch.stack(steps)
    assert len({tuple(row.tolist()) for row in dropped}) > 8
    assert 0.3 < float(dropped.double().mean()) < 0.7


def check_first_weights() -> None:
    """What a network keeps for its first weights, made in one line of work, is whole in another."""
    device = torch.device("cuda")
    net = make_net("convnet:width=24", input_shape=(3, 32, 32), outputs=10)
    busy, beside = SideStream(device), SideStream(device)
    with busy:
        torch.cuda._sleep(1_000_000_000)  # a good half second
        net.init(torch.Generator(device).manual_seed(1))
    with beside:
        found = net.init(torch.Generator(device).manual_seed(0)).params
    torch.cuda.synchronize()  # what is expected is drawn when all of it is there for sure
    torch.testing.assert_close(found, net.init(torch.Generator(device).manual_seed(0)).params)


def plain_norm_relu_pool(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """What the kernels do, out of PyTorch's own pieces."""
    return F.avg_pool2d(F.relu(F.group_norm(x, x.shape[1], weight, bias, fused.EPS)), 2)


def check_kernels(device: str) -> None:
    """The fused kernels against PyTorch's own pieces, values and gradients, twice over."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    many = [(64, 128, 32)] if device == "cuda" else []  # the interpreter is slow
    for images, channels, side in (*many, (3, 128, 16), (5, 48, 8), (2, 16, 2)):
        x = normal(images, channels, side, side) * 2 + 3
        x = x.contiguous(memory_format=torch.channels_last)
        inputs = [t.requires_grad_() for t in (x, normal(channels), normal(channels))]
        found = []
        for function in (fused.norm_relu_pool, plain_norm_relu_pool):
            y = function(*inputs)
            first = torch.autograd.grad(y.pow(3).sum(), inputs, create_graph=True)
            second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
            found.append([y, *first, *second])
        for ours, plain in zip(*found, strict=True):
            difference = (ours - plain).norm() / plain.norm()
            assert difference < 1e-3, f"{images}×{channels}×{side}: {difference:.6f}"
        # Channels first, in bfloat16: beside the pieces in float32, from the same rounded maps.
        rounded = x.detach().to(torch.bfloat16).contiguous()
        found = []
        for function, maps in (
            (fused.norm_relu_pool, rounded.requires_grad_()),
            (plain_norm_relu_pool, rounded.detach().float().requires_grad_()),
        ):
            leaves = [maps, *inputs[1:]]
            y = function(*leaves)
            first = torch.autograd.grad(y.float().pow(3).sum(), leaves, create_graph=True)
            second = torch.autograd.grad(sum(g.float().square().sum() for g in first), leaves)
            found.append([y, first[0], second[0]])
        for ours, plain in zip(*found, strict=True):
            difference = (ours.float() - plain).norm() / plain.norm()
            assert 0 < difference < 0.02, f"bfloat16 {channels}×{side}: {difference:.6f}"


def check_patches(device: str) -> None:
    """The rows of patches are those of PyTorch's `unfold`, and zeros."""
    generator = torch.Generator(device).manual_seed(0)
    for images, channels, side, edge in ((5, 3, 32, 1), (3, 1, 28, 3), (2, 4, 9, 1)):
        shape = (images, channels, side, side)
        maps = torch.randn(shape, generator=generator, device=device)
        found = patches_of(maps, edge, torch.float32)
        expected = F.unfold(maps, 3, padding=edge).transpose(1, 2).flatten(0, 1)
        assert torch.equal(found[:, : 9 * channels], expected)
        assert not found[:, 9 * channels :].any()
        halved = patches_of(maps, edge, torch.bfloat16)
        torch.testing.assert_close(halved.float(), found, rtol=2**-7, atol=0)


def check_product(device: str) -> None:
    """The first convolution and its gradient are PyTorch's own without the bias."""
    generator = torch.Generator(device).manual_seed(0)
    layer = nn.Conv2d(3, 16, 3, padding=1, device=device)
    for images in (4, 5):
        maps = torch.randn((images, 3, 16, 16), generator=generator, device=device)
        outer = torch.randn((images, 16, 16, 16), generator=generator, device=device)
        found = convolved(maps, layer)
        expected = F.conv2d(maps, layer.weight, padding=1)
        for ours, plain in (
            (found, expected),
            (grad(found, layer.weight, outer), grad(expected, layer.weight, outer)),
        ):
            assert (ours - plain).norm() < 2e-3 * plain.norm()  # TF32 on CUDA


def grad(y: torch.Tensor, x: torch.Tensor, outer: torch.Tensor) -> torch.Tensor:
    """The gradient of one tensor."""
    return torch.autograd.grad(y, x, outer)[0]


def check_adam(device: str) -> None:
    """Ten steps, beside the same in PyTorch's own pieces."""
    generator = torch.Generator(device).manual_seed(0)
    rule = training.Adam(0.01)
    start = torch.randn(3000, generator=generator, device=device)
    states = [{"params": start, **rule.slots(start)} for _ in range(2)]
    possible = training.can_step
    for _ in range(10):
        gradient = torch.randn(3000, generator=generator, device=device)
        for number, takes in enumerate((lambda _: True, lambda _: False)):
            training.can_step = takes
            states[number] = rule.update(states[number], gradient)
    training.can_step = possible
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], rtol=1e-4, atol=1e-6)


def check_augmentation(device: str) -> None:
    """Each kind, alone and among all, as PyTorch's own pieces make it of the same chance."""
    generator = torch.Generator(device).manual_seed(0)
    everything = augment.Augmentation(augment.KINDS)
    alone = [augment.Augmentation((kind,)) for kind in augment.KINDS]
    for images, channels, side in ((7, 3, 32), (4, 1, 28), (3, 3, 64), (5, 4, 9)):
        shape = (images, channels, side, side)
        maps = torch.randn(shape, generator=generator, device=device)
        for kinds in (everything, *alone):
            for place in range(len(kinds.kinds)):
                unit = torch.rand(7, images, generator=generator, device=device)
                chance = augment.Chance(torch.tensor([place], device=device), unit)
                expected = kinds.apply(maps, kinds.draw_from(chance, side))
                places = {
                    k: kinds.kinds.index(k) if k in kinds.kinds else -1 for k in augment.KINDS
                }
                found = augment.augmented(maps, *chance, places, augment._reach(side))
                # A place between pixels is rounded: by 1e-6 of the side, times the maps' slope.
                difference = (found - expected).abs().max()
                assert difference < 2e-4, f"{kinds.kinds[place]} of {kinds}, {side}: {difference}"


def main() -> None:
    """`plain FILE` and `fast FILE` store results; `repeats`, `dropout` and `kernels DEVICE`
    check."""
    match sys.argv[1]:
        case "repeats":
            check_repeats()
        case "dropout":
            check_dropout()
        case "kernels":
            check_kernels(sys.argv[2])
            check_patches(sys.argv[2])
            check_product(sys.argv[2])
            check_adam(sys.argv[2])
            check_augmentation(sys.argv[2])
        case way:
            if way == "plain":
                plainly()
            torch.save(results(), sys.argv[2])


if __name__ == "__main__":
    main()
