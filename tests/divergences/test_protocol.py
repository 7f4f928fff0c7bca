"""What every method promises to the loop; a new one is added to METHODS and must pass."""

import pytest
import torch
from safetensors.torch import load_file

from pseudocoreset import DistillSettings, distill
from pseudocoreset.divergences import METHODS, Divergence, make_divergence
from pseudocoreset.errors import UserError
from pseudocoreset.run_folder import read_metrics
from pseudocoreset.settings import USED_BY
from small_world import make_context, make_points, make_rng, same

NAMES = [*METHODS, "several networks"]


@pytest.fixture(params=NAMES)
def method(request, store, other_store, data):
    """A function that makes the method anew."""

    def make(**changes):
        contexts = [make_context(store, data, **changes)]
        if request.param == "several networks":
            contexts.append(make_context(other_store, data, **changes))
        name = request.param if request.param in METHODS else "fbpc"
        return make_divergence(name, contexts)

    return make


def one_update(method, coreset, seed=0):
    return method.gradient(coreset, method.start(), make_rng(seed))


@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_gradients_have_the_coresets_shapes_and_are_finite(method, data, soft):
    coreset = make_points(data, soft=soft)
    estimate = one_update(method(gamma=0.75), coreset)
    assert set(estimate.gradients) == ({"images", "labels"} if soft else {"images"})
    for name, gradient in estimate.gradients.items():
        held = getattr(coreset, name)
        assert gradient.shape == held.shape
        assert gradient.dtype == held.dtype
        assert gradient.isfinite().all()
        assert not gradient.requires_grad
        assert gradient.abs().max() > 0
    assert all(isinstance(value, int | float) for value in estimate.info.values())


def test_coreset_is_left_as_it_is(method, data):
    coreset = make_points(data)
    before = {name: value.clone() for name, value in coreset._asdict().items()}
    one_update(method(), coreset)
    assert same(before, coreset._asdict())


def test_state_can_be_kept_and_given_back(method, data):
    """What a checkpoint would do to it: tensors by name, copied."""
    coreset, made = make_points(data), method()
    start = made.start()
    first = made.gradient(coreset, start, make_rng())
    assert first.state.keys() == start.keys()
    kept = {name: value.clone() for name, value in first.state.items()}
    after = made.gradient(coreset, first.state, make_rng(1))
    again = method().gradient(coreset, kept, make_rng(1))
    assert same(after.gradients, again.gradients)
    assert same(after.state, again.state)


def test_seed_decides(method, data):
    coreset = make_points(data)
    first, second, other = (one_update(method(), coreset, seed) for seed in (0, 0, 1))
    assert same(first.gradients, second.gradients)
    assert first.info == second.info
    assert not torch.equal(first.gradients["images"], other.gradients["images"])


def test_global_random_state_is_not_touched(method, data):
    before = torch.get_rng_state()
    one_update(method(), make_points(data))
    assert torch.equal(before, torch.get_rng_state())


def test_gradients_given_out_do_not_change_later(method, data):
    """They are values, not the buffers of a loop."""
    coreset, made, rng = make_points(data), method(), make_rng()
    first = made.gradient(coreset, made.start(), rng)
    kept = {name: value.clone() for name, value in first.gradients.items()}
    made.gradient(coreset, first.state, rng)
    assert same(kept, first.gradients)


def test_second_update_of_one_method_is_that_of_a_fresh_one(method, data):
    """Nothing of an update is left in the loops that the next one uses again."""
    coreset, made, rng = make_points(data), method(batch=4), make_rng()
    first = made.gradient(coreset, made.start(), rng)
    rng.reseed(1, "test")
    moved = coreset._replace(images=coreset.images * 0.9)
    again = made.gradient(moved, first.state, rng)
    fresh = method(batch=4).gradient(moved, first.state, make_rng(1))
    assert same(again.gradients, fresh.gradients)
    assert again.info == fresh.info
    assert same(again.state, fresh.state)


def test_batch_leaves_the_other_images_without_gradient(method, data):
    # Of one step: a student of BPC-W takes other images in the next.
    made = method(batch=2, student_steps=1)
    gradient = one_update(made, make_points(data)).gradients["images"]
    touched = (gradient.flatten(1) != 0).any(1)
    assert 2 <= int(touched.sum()) <= 4  # each network chooses its own two
    assert not touched.all()


def settings_of(name, **changes):
    """Short updates of any method, in batches."""
    if name == "random":
        return DistillSettings(name, 2)
    values = {"gamma": 1.5, "max_map_steps": 40, "from_epoch": 1, "covariance_steps": 3}
    values |= {"real_batch": 16, "samples": 4, "student_steps": 4, "lr_student": 0.1}
    values |= {"lr_lr": 0.001, "lr_images": 0.1, "batch": 4, **changes}
    used = {k: value for k, value in values.items() if name in USED_BY.get(k, METHODS)}
    return DistillSettings(name, 2, **used)


@pytest.mark.parametrize("networks", [1, 2])
@pytest.mark.parametrize("name", [*METHODS, "random"])
def test_a_run_goes_on_where_it_stopped(name, networks, store, other_store, data, tmp_path):
    stores = [store, other_store][:networks]
    for folder, steps in [("whole", 4), ("cut", 2), ("cut", 4)]:
        settings = settings_of(name, steps=steps)
        distill(data, stores, settings, out=tmp_path / folder, seed=5, device="cpu")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    found = load_file(whole / "coreset.safetensors")
    assert same(found, load_file(cut / "coreset.safetensors"))
    start = distill(data, stores, settings_of(name, steps=0), seed=5, device="cpu")
    moved = (found["images"] != start.images).flatten(1).any(1)
    if name == "random":
        assert not moved.any()
        return
    assert moved.all()
    kept = load_file(whole / "checkpoint.safetensors")
    assert same(kept, load_file(cut / "checkpoint.safetensors"))
    rows = read_metrics(whole)
    assert rows == read_metrics(cut)
    assert len(rows) == 4
    if name == "bpc-w" and networks == 2:  # the learned rates went through it, and differ
        assert len({0.0, *(float(kept[f"method/{i}/lr_change"]) for i in (0, 1))}) == 3


@pytest.mark.parametrize("name", METHODS)
def test_images_that_receive_no_gradient_stay_put(name, store, data):
    coresets = [
        distill(data, store, settings_of(name, steps=steps, batch=2, student_steps=1), seed=5)
        for steps in (0, 1)
    ]
    moved = (coresets[0].images != coresets[1].images).flatten(1).any(1)
    assert int(moved.sum()) == 2


def test_methods_are_divergences(method):
    assert isinstance(method(), Divergence)


def test_unknown_method_is_refused():
    with pytest.raises(UserError, match="no method is called 'fbcp': use random, fbpc"):
        make_divergence("fbcp", [])
    with pytest.raises(UserError, match="no_such_module"):
        make_divergence("no_such_module:factory", [])
