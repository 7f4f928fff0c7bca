"""Unrolled: the way back through the windows against autograd and finite differences."""

import pytest
import torch

from oracles.unrolled import SlowUnrolled
from pseudocoreset import SGHMC, Unrolled, distill, evaluate
from pseudocoreset.methods.unrolled import NEWEST, UNBORN
from small_world import (
    NET,
    in_double,
    in_double_points,
    make_context,
    make_method,
    make_points,
    make_rng,
    same,
)

INNER = {
    "window": 4,
    "networks": 2,
    "pool": 3,
    "longest": 9,
    "real_batch": 16,
    "inner_step": 0.1,
    "inner_friction": 0.3,
    "inner_decay": 0.02,
    "clip": 1e6,
}

CASES = {
    "all of the coreset": {},
    "batches": {"batch": 4},
    "one step": {"window": 1},
    "one network": {"networks": 1, "pool": 1},
    "three networks": {"networks": 3},
    "little momentum": {"inner_friction": 0.9},
    "no decay": {"inner_decay": 0.0},
}


def longer(state):
    """The state in float64, ages as they are."""
    return {k: v.double() if v.is_floating_point() else v for k, v in state.items()}


def assert_twins(context, coreset, tolerance, updates=3, **changes):
    """Some updates in a row, each from the pool that the one before left."""
    method = make_method(Unrolled, **{**INNER, **changes})
    divergence, slow, rng = method.prepare(context), SlowUnrolled(method, context), make_rng()
    state = divergence.start()
    if coreset.inputs.dtype == torch.float64:
        state = longer(state)
    for seed in range(updates):
        rng.reseed(seed, "test")
        estimate = divergence.gradient(coreset, state, rng)
        state = estimate.state
        windows = slow.update(coreset, make_rng(seed))
        loss, gradients = windows.gradients()
        windows.loss(*coreset, move=True)
        assert estimate.info["nll"] == pytest.approx(float(loss), rel=tolerance)
        assert estimate.gradients.keys() == gradients.keys()
        for name, gradient in gradients.items():
            scale = float(gradient.abs().max())
            assert scale > 1e-5
            atol = tolerance * scale
            torch.testing.assert_close(estimate.gradients[name], gradient, rtol=0, atol=atol)
        for number in range(method.pool):
            member = slow.pool.get(number)
            assert int(state["age"][number]) == (UNBORN if member is None else member.age)
            if member is not None:
                velocity = torch.cat([value.flatten() for value in member.velocity])
                ends = {"params": member.params(), "velocity": velocity}
                for name, end in ends.items():
                    torch.testing.assert_close(
                        state[name][number], end, rtol=0, atol=tolerance * float(end.abs().max())
                    )
        coreset = coreset._replace(inputs=0.9 * coreset.inputs)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_updates_equal_their_slow_twins(store, data, case, soft):
    changes = dict(CASES[case])
    context = in_double(make_context(store, data, changes.pop("batch", 100)))
    assert_twins(context, in_double_points(make_points(data, soft=soft)), 1e-8, **changes)


@pytest.mark.parametrize("batch", [100, 4])
def test_updates_of_a_regression_equal_their_slow_twins(table_store, table, batch):
    context = in_double(make_context(table_store, table, batch))
    assert_twins(context, in_double_points(make_points(table)), 1e-8)


@pytest.mark.parametrize("stats", ["batch", "kept"])
def test_updates_of_batch_norm_equal_their_slow_twins(batch_norm_stores, data, stats):
    context = in_double(make_context(batch_norm_stores[stats], data))
    assert_twins(context, in_double_points(make_points(data)), 1e-8)


def test_update_equals_its_slow_twin_in_single_precision(store, data):
    assert_twins(make_context(store, data), make_points(data), 1e-3, updates=1)


def test_gradient_is_the_slope_of_the_loss(store, data):
    """Central differences of the loss that an update tells, from one pool."""
    context = in_double(make_context(store, data, 4))
    coreset, method = in_double_points(make_points(data, soft=True)), Unrolled(**INNER)
    divergence = method.prepare(context)
    # None of them starts anew in the update that is looked at, or by steps that get no gradient.
    state = divergence.gradient(coreset, longer(divergence.start()), make_rng()).state
    while (state["age"] == UNBORN).any() or (state["age"] >= method.longest).any():
        state = divergence.gradient(coreset, state, make_rng(int(state["age"].sum()))).state

    def loss(points):
        return divergence.gradient(points, state, make_rng(7)).info["nll"]

    estimate, width = divergence.gradient(coreset, state, make_rng(7)), 1e-5
    for name, places in {"inputs": (3, 77, 200, 383), "targets": (0, 7, 17)}.items():
        gradient = estimate.gradients[name].flatten()
        for place in places:
            bump = torch.zeros_like(gradient)
            bump[place] = width
            bump = bump.view_as(getattr(coreset, name))
            around = [
                loss(coreset._replace(**{name: getattr(coreset, name) + sign * bump}))
                for sign in (1, -1)
            ]
            slope = (around[0] - around[1]) / (2 * width)
            scale = float(gradient.abs().max())
            assert float(gradient[place]) == pytest.approx(slope, abs=1e-5 * scale)


def test_large_gradients_are_scaled_down(store, data):
    """To `clip` running means of the norm; the pool does not feel it."""
    coreset, context = make_points(data, soft=True), make_context(store, data)
    whole, clipped = (
        make_method(Unrolled, **{**INNER, "clip": clip}).prepare(context) for clip in (1e6, 2.0)
    )
    state = whole.gradient(coreset, whole.start(), make_rng()).state
    free = whole.gradient(coreset, state, make_rng(1))
    norm = free.info["gradient_norm"]
    assert float(free.gradients["inputs"].norm()) == pytest.approx(norm)
    usual = float(state["usual_norm"])
    expected = usual + NEWEST * (norm - usual)
    assert float(free.state["usual_norm"]) == pytest.approx(expected)
    few = {**state, "usual_norm": torch.tensor(norm / 8)}
    estimate = clipped.gradient(coreset, few, make_rng(1))
    assert estimate.info["gradient_norm"] == pytest.approx(norm)
    for name, gradient in free.gradients.items():
        torch.testing.assert_close(estimate.gradients[name], gradient / 4)
    mean = norm / 8 * (1 + NEWEST)  # it was twice the mean, once clipped
    assert float(estimate.state["usual_norm"]) == pytest.approx(mean)
    names = ("params", "velocity", "buffers", "age")
    assert same(*({name: e.state[name] for name in names} for e in (free, estimate)))


def test_old_networks_start_anew(store, data):
    method = make_method(Unrolled, **{**INNER, "networks": 1, "pool": 1})
    divergence, coreset = method.prepare(make_context(store, data)), make_points(data)
    state, ages = divergence.start(), []
    for seed in range(5):
        state = divergence.gradient(coreset, state, make_rng(seed)).state
        ages.append(int(state["age"]))
    assert ages == [4, 8, 12, 4, 8]


def test_updates_make_a_coreset_of_noise_better(data):
    own = Unrolled(window=10, pool=4, longest=60, real_batch=60, inner_step=0.1)
    loop = {"ipc": 1, "init": "noise", "net": NET, "dsa": "crop,color", "lr_images": 3.0}
    sampler = SGHMC(epochs=100, every=50, step=0.1)
    quiet = {"device": "cpu", "progress": False}
    start, end = (
        evaluate(distill(data, (), own, steps=n, **loop, **quiet), data, sampler, seeds=2, **quiet)
        for n in (0, 15)
    )
    assert end.accuracy > start.accuracy + 0.2
    assert end.nll < start.nll - 0.2
