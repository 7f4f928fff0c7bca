"""The benchmark's plain twins compute what the package does: on a CPU, one seed, to rounding."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import fast_and_plain
import plain
from pseudocoreset import (
    DistillSettings,
    ExpertSettings,
    distill,
    evaluate,
    load_data,
    train_experts,
)
from pseudocoreset.augment import KINDS, Augmentation
from pseudocoreset.divergences import METHODS, make_divergence
from pseudocoreset.measure import Stopwatch
from pseudocoreset.posterior import named_protocol
from small_world import NET, make_context, make_points, make_rng

CPU = torch.device("cpu")


def assert_close(found, wanted):
    scale = float(wanted.abs().max())
    assert scale > 0
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4 * scale)


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


@pytest.mark.parametrize("method", ["fbpc", "bpc-fkl"])
def test_a_coreset_is_the_same(store, data, method):
    """Over several updates, momentum and all; few steps to each MAP solution, as rounding grows."""
    own = {"gamma": 3.0, "from_epoch": 1} if method == "fbpc" else {"start_epochs": 1}
    settings = DistillSettings(method, 2, steps=3, momentum=0.7, lr_images=1.0, dsa="off", **own)
    watch = Stopwatch(CPU)
    made = distill(data, store, settings, device="cpu", progress=watch)
    map_steps = [int(figures.get("map_steps", 0)) for figures in watch.figures]
    config = settings.resolved(data, [store])
    *_, last, images = plain.coreset_updates(data, store, config, CPU, map_steps)
    assert last is images
    start = distill(data, store, replace(settings, steps=0), device="cpu")
    assert_close(images - start.images, made.images - start.images)


def test_the_command_that_compares_them(tmp_path):
    data, few = load_data("digits"), ExpertSettings(num=1, epochs=11, lr=0.1, batch=256)
    train_experts(data, NET, tmp_path / "experts", few, device="cpu")
    given = ["--data", "digits", "--device", "cpu", "--experts", tmp_path / "experts"]
    given += ["--ipc", 1, "--steps", 2, "--seeds", 1, "--again", 1]
    given += ["--out", tmp_path / "found.json"]
    command = [sys.executable, fast_and_plain.__file__, *map(str, given)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads((tmp_path / "found.json").read_text())
    # A bias before a norm has no gradient but rounding, which Adam makes a step of; in time an
    # activation passes zero on one side only.
    assert 0 <= found["images_apart"] < 0.5
    assert len(found["map_steps"]) == 2
    fast, twin, other = found["rows"]
    assert twin["nll"] == pytest.approx(fast["nll"], rel=0.1)
    assert [row["made_by"] for row in (fast, twin)] == ["the package", "its plain twin"]
    assert other["made_by"] == "the package, seed 1"
    assert other["nll"] != fast["nll"]


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
