"""The benchmark's plain twins compute what the package does: on a CPU, one seed, to rounding."""

from dataclasses import replace

import pytest
import torch

import plain
from pseudocoreset import DistillSettings, ExpertSettings, distill, evaluate, train_experts
from pseudocoreset.augment import KINDS, Augmentation
from pseudocoreset.divergences import METHODS, make_divergence
from pseudocoreset.posterior import named_protocol
from small_world import NET, make_context, make_points, make_rng

CPU = torch.device("cpu")


def assert_close(found, wanted):
    scale = float(wanted.abs().max())
    assert scale > 0
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-3 * scale)


@pytest.mark.parametrize("dsa", ["off", "crop,color"])
@pytest.mark.parametrize("method", METHODS)
def test_updates_are_the_same(store, data, method, dsa):
    context = make_context(store, data, draws=2, start_epochs=1, student_steps=4)
    context = replace(context, augmentation=Augmentation.parse(dsa, mirror=False))
    coreset = make_points(data)
    divergence = make_divergence(method, [context])
    fast = divergence.gradient(coreset, divergence.start(), make_rng())
    steps = int(fast.info.get("map_steps", 0))
    assert (steps > 0) == method.startswith("fbpc")
    twin = plain.PlainUpdates(context)
    assert_close(twin.update(method, coreset, make_rng(), steps), fast.gradients["images"])
    other = twin.update(method, coreset._replace(images=coreset.images * 0.9), make_rng(), steps)
    with pytest.raises(AssertionError):
        assert_close(other, fast.gradients["images"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8, 9])
def test_augmentations_are_the_same(kind, size):
    images = torch.randn(5, 3, size, size, generator=make_rng().device)
    augmentation = Augmentation((kind,))
    wanted = augmentation(images, make_rng().device)
    assert not torch.equal(wanted, images)
    found = plain.augmented(images, augmentation, make_rng())
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


def test_an_expert_is_the_same(data, tmp_path):
    settings = ExpertSettings(num=1, epochs=2, lr=0.1, batch=16, dsa="off")
    store = train_experts(data, NET, tmp_path, settings, seed=3, device="cpu")
    twin = plain.PlainExpert(data, NET, settings, CPU, seed=3)
    for _ in range(settings.epochs):
        twin.epoch()
    wanted = store.snapshot(store.trajectories[0], 2, CPU).params
    assert_close(torch.nn.utils.parameters_to_vector(twin.module.parameters()), wanted)


@pytest.mark.parametrize("batch", [256, 5], ids=["all at once", "in batches"])
@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_a_chain_is_the_same(data, temperature, batch):
    coreset = distill(data, (), DistillSettings("random", ipc=3, dsa="off"), net=NET, device="cpu")
    protocol = named_protocol("paper", epochs=20, every=5, temperature=temperature, batch=batch)
    scores = evaluate(coreset, data, protocol=protocol, seeds=1, first_seed=2, device="cpu")
    accuracy, nll = plain.sghmc_scores(coreset, data, protocol, CPU, seed=2)
    assert accuracy == pytest.approx(scores.mean("accuracy"))
    assert nll == pytest.approx(scores.mean("nll"), rel=1e-4)
    assert nll != pytest.approx(plain.sghmc_scores(coreset, data, protocol, CPU, seed=1)[1])
