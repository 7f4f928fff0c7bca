"""What every method promises to the loop; a new one is added to METHODS and must pass."""

import pytest
import torch

from pseudocoreset.divergences import METHODS, Divergence, make_divergence
from pseudocoreset.errors import UserError
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


def test_methods_are_divergences(method):
    assert isinstance(method(), Divergence)


def test_unknown_method_is_refused():
    with pytest.raises(UserError, match="no method is called 'fbcp': use random, fbpc"):
        make_divergence("fbcp", [])
    with pytest.raises(UserError, match="no_such_module"):
        make_divergence("no_such_module:factory", [])
