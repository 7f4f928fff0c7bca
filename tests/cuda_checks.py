"""What the engine does on one CUDA device; run by test_cuda.py in a process of its own, since
torch.compile can't trace what the tests' type checker wraps."""

import sys
import tempfile
from dataclasses import replace

import torch
from torch.nn import functional as F

from pseudocoreset import DistillSettings, ExpertSettings, distill, load_data, train_experts
from pseudocoreset.divergences import METHODS
from pseudocoreset.engine import loop
from pseudocoreset.engine.streams import Beside
from pseudocoreset.evaluation import predictive
from pseudocoreset.experts import train
from pseudocoreset.measure import Stopwatch
from pseudocoreset.nets import convnet, fused, make_net
from pseudocoreset.posterior import named_protocol, sample_posterior, sample_posteriors
from pseudocoreset.settings import USED_BY

NET = "convnet:width=16"
CPU = torch.device("cpu")


def plainly() -> None:
    """Take capture, compiler, half precision and kernels of our own out: one layer at a time."""
    loop.Loop.run = lambda self, times: [self._advance() for _ in range(times)] and None
    loop.torch.compile = lambda function, **_: function
    loop.torch.autocast = lambda *_, **__: torch.enable_grad()
    convnet.can_fuse = lambda *_: False


def results() -> dict[str, torch.Tensor]:
    """An expert, an update by every method, a posterior, and predictions."""
    data = load_data("digits")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = ExpertSettings(num=2, epochs=3, lr=0.1, batch=64)
        store = train_experts(data, NET, folder, settings, device="cuda")
        found["expert"] = store.snapshot(store.trajectories[1], 3, CPU).params
        for method in METHODS:
            own = {"gamma": 1.0, "from_epoch": 2, "draws": 2} if method.startswith("fbpc") else {}
            own |= {"group": 3} if method in USED_BY["group"] else {}
            wanted = DistillSettings(method, ipc=2, steps=1, batch=15, lr_images=1.0, **own)
            start = distill(data, store, replace(wanted, steps=0), device="cuda")
            watch = Stopwatch(torch.device("cuda"))
            made = distill(data, store, wanted, device="cuda", progress=watch)
            found[method] = made.images - start.images
            if method == "fbpc":
                found["variance"] = torch.tensor(watch.figures[0]["variance_x"])
    protocol = named_protocol("paper", epochs=20, every=10, batch=15)
    found["posterior"] = sample_posterior(made, protocol=protocol, device="cuda").params.cpu()
    net = make_net(NET, **data.shape)
    images = data.train.images.cuda()
    assert len(images) > predictive.TEST_BATCH  # a whole batch, and what is left over
    predictor = predictive.Predictor(net, images, data.normalisation)
    weights = [net.init(torch.Generator().manual_seed(seed)) for seed in range(2)]
    found["predictions"] = torch.stack([predictor.logits(each) for each in weights]).cpu()
    return found


def check_repeats() -> None:
    """Work side by side must not meddle: a seed gives one result, alone or beside others."""
    data = load_data("digits")
    with tempfile.TemporaryDirectory() as folder:
        settings = ExpertSettings(num=2, epochs=3, lr=0.1, batch=64)
        stores = []
        for at_once in (1, 2):  # of three, so that one is begun amid another's epochs
            train.AT_ONCE = at_once
            three = replace(settings, num=3)
            stores.append(train_experts(data, NET, f"{folder}/{at_once}", three, device="cuda"))
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
        wanted = DistillSettings(ipc=5, steps=3, gamma=0.5, from_epoch=2, lr_images=1.0)
        start = distill(data, store, replace(wanted, steps=0), device="cuda").images
        images = [distill(data, store, wanted, device="cuda").images for _ in range(4)]
    for other in images[1:]:
        difference = (other - images[0]).norm() / (images[0] - start).norm()
        assert difference < 1e-3, f"an FBPC run differs from itself by {difference:.5f}"
    check_first_weights()
    coreset = distill(data, (), DistillSettings("random", ipc=5), net=NET, device="cuda")
    protocol = named_protocol("paper", epochs=40, every=20)
    beside = sample_posteriors(coreset, protocol=protocol, seeds=range(4), device="cuda")
    for seed, one in enumerate(beside):
        alone = sample_posterior(coreset, protocol=protocol, seed=seed, device="cuda")
        difference = (one.params - alone.params).norm() / alone.params.norm()
        assert difference < 1e-3, f"chain {seed} differs by {difference:.5f} beside others"


def check_first_weights() -> None:
    """What a network keeps for its first weights, made in one line of work, is whole in another."""
    device = torch.device("cuda")
    net = make_net("convnet:width=24", channels=3, image_size=32, classes=10)
    busy, beside = Beside(device), Beside(device)
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
            y = function(maps, *inputs[1:])
            found.append([y, *torch.autograd.grad(y.float().pow(3).sum(), maps)])
        for ours, plain in zip(*found, strict=True):
            difference = (ours.float() - plain).norm() / plain.norm()
            assert 0 < difference < 0.02, f"bfloat16 {channels}×{side}: {difference:.6f}"


def main() -> None:
    """`plain FILE` and `fast FILE` store results; `repeats` and `kernels DEVICE` check."""
    match sys.argv[1]:
        case "repeats":
            check_repeats()
        case "kernels":
            check_kernels(sys.argv[2])
        case way:
            if way == "plain":
                plainly()
            torch.save(results(), sys.argv[2])


if __name__ == "__main__":
    main()
