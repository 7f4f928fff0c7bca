"""Several architectures: the sum of the gradients of any method, each with its own state."""

import pytest
import torch
from safetensors.torch import load_file

from pseudocoreset import DistillSettings, distill
from pseudocoreset.divergences import METHODS, make_divergence
from pseudocoreset.run_folder import read_metrics
from pseudocoreset.settings import USED_BY
from small_world import make_context, make_points, make_rng, same

LEARNED = {"lr_lr": 0.001}
"""Large enough that BPC-W's learning rates go apart in an update."""


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_gradients_are_summed_and_states_are_kept_apart(name, soft, store, other_store, data):
    """Algorithm 1: g ← g + g^(a), with the random numbers drawn one after the other."""
    coreset, rng, summed_rng = make_points(data, soft=soft), make_rng(), make_rng()
    contexts = [make_context(s, data, gamma=0.75, **LEARNED) for s in (store, other_store)]
    parts = [make_divergence(name, [context]) for context in contexts]
    multi = make_divergence(name, contexts)
    states, state = [part.start() for part in parts], multi.start()
    for _ in range(2):
        alone = [part.gradient(coreset, own, rng) for part, own in zip(parts, states, strict=True)]
        summed = multi.gradient(coreset, state, summed_rng)
        states, state = [estimate.state for estimate in alone], summed.state
        assert summed.gradients.keys() == alone[0].gradients.keys()
        for leaf, gradient in summed.gradients.items():
            one, other = (estimate.gradients[leaf] for estimate in alone)
            assert torch.equal(gradient, one + other)
            assert one.abs().max() > 0
            assert other.abs().max() > 0
        for number, estimate in enumerate(alone):
            own = {f"{number}/{key}": value for key, value in estimate.state.items()}
            assert same(own, {k: v for k, v in state.items() if k.startswith(f"{number}/")})
            assert estimate.info.items() == {
                (key.removesuffix(f"/{number}"), value)
                for key, value in summed.info.items()
                if key.endswith(f"/{number}")
            }


def test_each_network_learns_its_own_learning_rate(store, other_store, data):
    contexts = [make_context(s, data, **LEARNED) for s in (store, other_store)]
    multi, coreset = make_divergence("bpc-w", contexts), make_points(data)
    first = multi.gradient(coreset, multi.start(), make_rng(1))
    one, other = (float(first.state[f"{number}/lr_change"]) for number in (0, 1))
    assert first.state.keys() == {"0/lr_change", "1/lr_change"}
    assert len({0.0, one, other}) == 3
    second = multi.gradient(coreset, first.state, make_rng(2))
    assert second.info["lr_student/0"] == pytest.approx(0.1 + one)
    assert second.info["lr_student/1"] == pytest.approx(0.1 + other)


def settings_of(name, steps):
    """Short updates of any method, in batches."""
    values = {"gamma": 1.5, "max_map_steps": 40, "from_epoch": 1, "covariance_steps": 3}
    values |= {"real_batch": 16, "samples": 4, "student_steps": 4, "lr_student": 0.1} | LEARNED
    used = {option: value for option, value in values.items() if name in USED_BY[option]}
    return DistillSettings(name, 2, steps=steps, lr_images=0.1, batch=4, **used)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_for_several_networks_goes_on_where_it_stopped(
    name, store, other_store, data, tmp_path
):
    for folder, steps in [("whole", 4), ("cut", 2), ("cut", 4)]:
        distill(
            data,
            [store, other_store],
            settings_of(name, steps),
            out=tmp_path / folder,
            seed=5,
            device="cpu",
        )
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for file in ("coreset.safetensors", "checkpoint.safetensors"):
        assert same(load_file(whole / file), load_file(cut / file))
    rows = read_metrics(whole)
    assert rows == read_metrics(cut)
    assert len(rows) == 4
    start = distill(data, [store, other_store], settings_of(name, 0), seed=5, device="cpu")
    moved = load_file(whole / "coreset.safetensors")["images"] != start.images
    assert moved.flatten(1).any(1).all()
    if name == "bpc-w":  # the learned rates went through the checkpoint, and differ
        kept = load_file(whole / "checkpoint.safetensors")
        assert len({0.0, *(float(kept[f"method/{i}/lr_change"]) for i in (0, 1))}) == 3
