"""What every method promises to the loop; a new one is added to METHODS and must pass."""

import pytest
import torch
from safetensors.torch import load_file

from pseudocoreset import Method, UserError, distill
from pseudocoreset.methods import METHODS, Divergence, method_class, method_name, prepare
from pseudocoreset.run_folder import read_metrics
from small_world import make_context, make_method, make_points, make_rng, same

UPDATING = [name for name, kind in METHODS.items() if kind.makes_updates]
NAMES = [*UPDATING, "several networks", "regression"]


@pytest.fixture(params=NAMES)
def method(request, store, other_store, data, table_store, table):
    """A function that makes the method anew, with those of the changes that it knows."""

    def make(batch=100, **changes):
        where = (table_store, table) if request.param == "regression" else (store, data)
        contexts = [make_context(*where, batch)]
        if request.param == "several networks":
            contexts.append(make_context(other_store, data, batch))
        name = request.param if request.param in METHODS else "fbpc"
        own = method_class(name)().as_dict()
        changes = {option: value for option, value in changes.items() if option in own}
        return prepare(make_method(name, **changes), contexts)

    return make


@pytest.fixture
def coreset(request, data, table):
    """Points that fit the method."""
    regression = request.node.callspec.params["method"] == "regression"
    return make_points(table if regression else data)


def one_update(method, coreset, seed=0):
    return method.gradient(coreset, method.start(), make_rng(seed))


@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_gradients_have_the_coresets_shapes_and_are_finite(method, coreset, data, soft):
    if soft and coreset.targets.ndim == 1:
        coreset = make_points(data, soft=True)
    estimate = one_update(method(gamma=0.75), coreset)
    learned = coreset.targets.is_floating_point()
    assert set(estimate.gradients) == ({"inputs", "targets"} if learned else {"inputs"})
    for name, gradient in estimate.gradients.items():
        held = getattr(coreset, name)
        assert gradient.shape == held.shape
        assert gradient.dtype == held.dtype
        assert gradient.isfinite().all()
        assert not gradient.requires_grad
        assert gradient.abs().max() > 0
    assert all(isinstance(value, int | float) for value in estimate.info.values())


def test_coreset_is_left_as_it_is(method, coreset):
    before = {name: value.clone() for name, value in coreset._asdict().items()}
    one_update(method(), coreset)
    assert same(before, coreset._asdict())


def test_state_can_be_kept_and_given_back(method, coreset):
    """What a checkpoint would do to it: tensors by name, copied."""
    made = method()
    start = made.start()
    first = made.gradient(coreset, start, make_rng())
    assert first.state.keys() == start.keys()
    kept = {name: value.clone() for name, value in first.state.items()}
    after = made.gradient(coreset, first.state, make_rng(1))
    again = method().gradient(coreset, kept, make_rng(1))
    assert same(after.gradients, again.gradients)
    assert same(after.state, again.state)


def test_seed_decides(method, coreset):
    first, second, other = (one_update(method(), coreset, seed) for seed in (0, 0, 1))
    assert same(first.gradients, second.gradients)
    assert first.info == second.info
    assert not torch.equal(first.gradients["inputs"], other.gradients["inputs"])


def test_global_random_state_is_not_touched(method, coreset):
    before = torch.get_rng_state()
    one_update(method(), coreset)
    assert torch.equal(before, torch.get_rng_state())


def test_gradients_given_out_do_not_change_later(method, coreset):
    """They are values, not the buffers of a loop."""
    made, rng = method(), make_rng()
    first = made.gradient(coreset, made.start(), rng)
    kept = {name: value.clone() for name, value in first.gradients.items()}
    made.gradient(coreset, first.state, rng)
    assert same(kept, first.gradients)


def test_second_update_of_one_method_is_that_of_a_fresh_one(method, coreset):
    """Nothing of an update is left in the loops that the next one uses again."""
    made, rng = method(batch=4), make_rng()
    first = made.gradient(coreset, made.start(), rng)
    rng.reseed(1, "test")
    moved = coreset._replace(inputs=coreset.inputs * 0.9)
    again = made.gradient(moved, first.state, rng)
    fresh = method(batch=4).gradient(moved, first.state, make_rng(1))
    assert same(again.gradients, fresh.gradients)
    assert again.info == fresh.info
    assert same(again.state, fresh.state)


def test_batch_leaves_the_other_points_without_gradient(method, coreset):
    # Of one step: a student of BPC-W takes other images in the next.
    made = method(batch=2, student_steps=1, window=1)
    gradient = one_update(made, coreset).gradients["inputs"]
    touched = (gradient.flatten(1) != 0).any(1)
    assert 2 <= int(touched.sum()) <= 4  # each network chooses its own two
    assert not touched.all()


def short(name, **changes):
    """Short updates of a method."""
    values = {"gamma": 1.5, "max_map_steps": 40, "covariance_steps": 3, "samples": 4}
    values |= {"lr_lr": 0.001, "expert_epochs": 1, **changes}
    own = method_class(name)().as_dict()
    return make_method(name, **{k: value for k, value in values.items() if k in own})


def run(data, stores, method, steps, batch=4, **more):
    """So many updates in batches."""
    updates = {"steps": steps, "lr_images": 0.1, "batch": batch}
    updates = updates if method.makes_updates else {}
    options = {"ipc": 2, "seed": 5, "device": "cpu", "progress": False, **more}
    return distill(data, stores, method, **options, **updates)


@pytest.mark.parametrize("networks", [1, 2])
@pytest.mark.parametrize("name", METHODS)
def test_run_goes_on_where_it_stopped(name, networks, store, other_store, data, tmp_path):
    stores = [store, other_store][:networks]
    for folder, steps in [("whole", 4), ("cut", 2), ("cut", 4)]:
        run(data, stores, short(name), steps, out=tmp_path / folder)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    found = load_file(whole / "coreset.safetensors")
    assert same(found, load_file(cut / "coreset.safetensors"))
    start = run(data, stores, short(name), steps=0)
    moved = (found["images"] != start.inputs).flatten(1).any(1)
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


@pytest.mark.parametrize("name", UPDATING)
def test_points_that_receive_no_gradient_stay_put(name, store, data):
    method = short(name, student_steps=1, window=1, networks=1)
    coresets = [run(data, store, method, steps, batch=2) for steps in (0, 1)]
    moved = (coresets[0].inputs != coresets[1].inputs).flatten(1).any(1)
    assert int(moved.sum()) == 2


def test_methods_are_divergences(method):
    assert isinstance(method(), Divergence)


@pytest.mark.parametrize("name", METHODS)
def test_name_of_a_method_gives_it_back(name):
    assert method_name(method_class(name)()) == name


def test_unknown_method_is_refused():
    for name in ("fbcp", "no_such_module:Class", "toy_methods:takes_nothing"):
        with pytest.raises(UserError) as refused:
            method_class(name)
        assert refused.value.parameter == "method"
    assert issubclass(method_class("toy_methods:Quadratic"), Method)
