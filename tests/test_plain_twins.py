"""The benchmark's plain twins compute what the package does: on a CPU, one seed, to rounding."""

import json
import sys
from dataclasses import replace

import pytest
import torch

import fast_and_plain
import plain
from pseudocoreset import SGHMC, distill, evaluate, load_data, train_experts
from pseudocoreset.augment import KINDS, Augmentation
from pseudocoreset.distillation import run
from pseudocoreset.experts import ExpertOptions
from pseudocoreset.plan.measure import Stopwatch
from pseudocoreset.posterior import PROTOCOLS, named_sampler
from script import job_of
from small_world import NET, make_context, make_method, make_points, make_rng
from speed import METHODS as TIMED

CPU = torch.device("cpu")


def assert_close(found, wanted):
    scale = float(wanted.abs().max())
    assert scale > 0
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize("dsa", ["off", "crop,color"])
@pytest.mark.parametrize("name", TIMED)
def test_plain_update_has_the_same_gradient(store, data, name, dsa):
    few = {"draws": 2} if name.startswith("fbpc") else {"start_epochs": 1, "student_steps": 4}
    few = {} if name == "vbpc" else few
    method = make_method(name, **few)
    context = replace(make_context(store, data), augmentation=Augmentation.parse(dsa, mirror=False))
    coreset = make_points(data)
    divergence = method.prepare(context)
    fast = divergence.gradient(coreset, divergence.start(), make_rng())
    steps = int(fast.info.get("map_steps", 0))
    assert (steps > 0) == name.startswith("fbpc")
    twin = plain.PlainUpdates(method, context)
    assert_close(twin.update(coreset, make_rng(), steps), fast.gradients["inputs"])
    other = twin.update(coreset._replace(inputs=coreset.inputs * 0.9), make_rng(), steps)
    with pytest.raises(AssertionError):
        assert_close(other, fast.gradients["inputs"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8, 9])
def test_plain_augmentation_gives_the_same_images(kind, size):
    images = torch.randn(5, 3, size, size, generator=make_rng().device)
    augmentation = Augmentation((kind,))
    wanted = augmentation(images, make_rng().device)
    assert not torch.equal(wanted, images)
    found = plain.augmented(images, augmentation, make_rng())
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("method", ["fbpc", "bpc-fkl"])
def test_plain_coreset_moves_the_same_way(store, data, method):
    """Over several updates, momentum and all; few steps to each MAP solution, as rounding grows."""
    own = {"gamma": 3.0, "from_epoch": 1} if method == "fbpc" else {"start_epochs": 1}
    settings = {"method": method, "ipc": 2, "momentum": 0.7, "lr_images": 1.0, "dsa": "off", **own}
    job, begin = (job_of({**settings, "steps": steps}, data, [store]) for steps in (3, 0))
    watch = Stopwatch(CPU)
    made = run(job, data, [store], device="cpu", progress=watch)
    map_steps = [int(figures.get("map_steps", 0)) for figures in watch.figures]
    *_, last, images = plain.coreset_updates(data, store, job, CPU, map_steps)
    assert last is images
    start = run(begin, data, [store], device="cpu", progress=False)
    assert_close(images - start.inputs, made.inputs - start.inputs)


def test_fast_and_plain_stores_the_scores_of_both(tmp_path, monkeypatch):
    few = {"num": 1, "epochs": 11, "lr": 0.1, "batch": 256, "device": "cpu", "progress": False}
    train_experts(load_data("digits"), NET, tmp_path / "experts", **few)
    words = ["--data", "digits", "--device", "cpu", "--experts", tmp_path / "experts"]
    words += ["--ipc", 1, "--steps", 2, "--seeds", 1, "--again", 1]
    words += ["--out", tmp_path / "found.json"]
    monkeypatch.setattr(sys, "argv", [*map(str, ["fast_and_plain.py", *words])])
    monkeypatch.setitem(PROTOCOLS, "tuned", {"epochs": 40, "every": 20})
    fast_and_plain.main()
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


def test_plain_expert_reaches_the_same_weights(data, tmp_path):
    options = ExpertOptions(num=1, epochs=2, lr=0.1, batch=16, dsa="off")
    store = train_experts(data, NET, tmp_path, options, seed=3, device="cpu", progress=False)
    twin = plain.PlainExpert(data, NET, options, CPU, seed=3)
    for _ in range(options.epochs):
        twin.epoch()
    wanted = store.snapshot(store.trajectories[0], 2, CPU).params
    assert_close(torch.nn.utils.parameters_to_vector(twin.module.parameters()), wanted)


@pytest.mark.parametrize("batch", [256, 5], ids=["all at once", "in batches"])
@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_plain_chain_has_the_same_scores(data, temperature, batch):
    quiet = {"device": "cpu", "progress": False}
    coreset = distill(data, method="random", ipc=3, dsa="off", net=NET, **quiet)
    chain = SGHMC(epochs=20, every=5, temperature=temperature, batch=batch)
    sampler = named_sampler("paper", chain)
    scores = evaluate(coreset, data, sampler, seeds=1, first_seed=2, **quiet)
    accuracy, nll = plain.sghmc_scores(coreset, data, sampler, CPU, seed=2)
    assert accuracy == pytest.approx(scores.mean("accuracy"))
    assert nll == pytest.approx(scores.mean("nll"), rel=1e-4)
    assert nll != pytest.approx(plain.sghmc_scores(coreset, data, sampler, CPU, seed=1)[1])
