"""One FBPC update against its slow twin, and what no gradient may flow through."""

from dataclasses import replace

import pytest
import torch

from oracles.fbpc import slow_update
from pseudocoreset.augment import Augmentation
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.errors import UserError
from pseudocoreset.methods import FBPC, FBPCIsotropic, Points, fbpc
from pseudocoreset.nets import Net, Weights
from small_world import (
    in_double,
    in_double_points,
    make_context,
    make_method,
    make_points,
    make_rng,
)

CPU = torch.device("cpu")
LR_MAP = 0.01

CASES = {
    "full": {},
    "two draws": {"draws": 2},
    "batches": {"batch": 4},
    "batches that do not divide": {"batch": 4, "draws": 2, "covariance_steps": 7},
    "more samples": {"samples": 30},
    "two experts": {"draws": 3, "experts_each": 2, "batch": 4},
}


def update(method, context, coreset):
    return method.prepare(context).gradient(coreset, {}, make_rng())


def assert_twins(method, context, coreset, tolerance=1e-4):
    """The fast update equals the slow one to rounding; returns both."""
    estimate = update(method, context, coreset)
    slow = slow_update(method, context, coreset, make_rng())
    expected = slow.gradients()
    assert estimate.gradients.keys() == expected.keys()
    for name, gradient in estimate.gradients.items():
        scale = float(expected[name].abs().max())
        assert scale > 1e-4
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=tolerance * scale)
    labels = coreset.targets[slow.chosen]
    for name, side in (("loss_x", slow.x), ("loss_u", slow.u)):
        found = float(slow.loss(side, coreset.inputs[slow.chosen], labels).detach())
        assert estimate.info[name] == pytest.approx(found, rel=tolerance)
    assert estimate.info["map_steps"] == slow.map_steps
    return estimate, slow


@pytest.mark.parametrize("kind", [FBPC, FBPCIsotropic])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_update_equals_its_slow_twin(store, data, case, kind, soft):
    changes = {k: v for k, v in CASES[case].items() if kind is FBPC or k != "covariance_steps"}
    context = make_context(store, data, changes.pop("batch", 100))
    method = make_method(kind, **changes)
    coreset = in_double_points(make_points(data, soft=soft))
    estimate, slow = assert_twins(method, in_double(context), coreset, tolerance=1e-8)
    assert ("targets" in estimate.gradients) == soft
    assert slow.map_steps < method.max_map_steps


def adam_by_hand(context, coreset, state, steps):
    """Steps of Adam on the whole coreset, without augmentation, from a kept solution."""
    params, first, second = (state[name].clone() for name in ("params", "first", "second"))
    for count in range(int(state["count"]) + 1, int(state["count"]) + steps + 1):
        leaf = params.clone().requires_grad_()
        outputs, _ = context.net.train(Weights(leaf, state["buffers"]), coreset.inputs)
        loss = torch.nn.functional.cross_entropy(outputs, coreset.targets)
        (gradient,) = torch.autograd.grad(loss, leaf)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        root = (second / (1 - 0.999**count)).sqrt() + 1e-8
        params = params - LR_MAP * first / (1 - 0.9**count) / root
    return params


@pytest.mark.parametrize("kind", [FBPC, FBPCIsotropic])
def test_shared_solution_follows_the_coreset(store, data, kind):
    method = make_method(kind, reuse=3, reuse_steps=4, lr_map=LR_MAP)
    context = in_double(replace(make_context(store, data), augmentation=Augmentation(())))
    coreset = in_double_points(make_points(data))
    divergence, rng = method.prepare(context), make_rng()
    states, steps = [{}], []
    for update in range(4):
        moved = Points(coreset.inputs + 0.05 * update, coreset.targets)
        estimate = divergence.gradient(moved, states[-1], rng)
        steps.append(estimate.info["map_steps"])
        states.append(estimate.state)
        if 0 < update < 3:
            expected = adam_by_hand(context, moved, states[-2], 4)
            torch.testing.assert_close(estimate.state["params"], expected)
    assert [int(state["uses"]) for state in states[1:]] == [1, 2, 3, 1]
    assert steps[1:3] == [4, 4]
    assert steps[0] > 4
    assert steps[3] > 4  # a new one


def test_more_experts_than_augmentations_are_refused():
    with pytest.raises(UserError, match="experts_each"):
        FBPC(draws=2, experts_each=3).resolved({})


def test_solution_that_is_not_shared_is_not_kept(store, data):
    estimate = update(make_method(FBPCIsotropic), make_context(store, data), make_points(data))
    assert estimate.state == {}


@pytest.mark.parametrize("batch", [100, 4])
@pytest.mark.parametrize("kind", [FBPC, FBPCIsotropic])
def test_update_of_a_regression_equals_its_slow_twin(table_store, table, kind, batch):
    """With the Gaussian likelihood; the targets, which are numbers, have a gradient too."""
    method, context = make_method(kind, draws=2), make_context(table_store, table, batch)
    coreset = in_double_points(make_points(table))
    estimate, slow = assert_twins(method, in_double(context), coreset, tolerance=1e-8)
    assert estimate.gradients.keys() == {"inputs", "targets"}
    assert slow.map_steps < method.max_map_steps


@pytest.mark.parametrize("kind", [FBPC, FBPCIsotropic])
def test_update_equals_its_slow_twin_in_single_precision(store, data, kind):
    assert_twins(make_method(kind), make_context(store, data), make_points(data))


@pytest.mark.parametrize("stats", ["batch", "kept"])
def test_update_of_batch_norm_equals_its_slow_twin(batch_norm_stores, data, stats):
    """In float64 alone: a bias before BatchNorm has a gradient of mere rounding, and Adam makes
    steps of its full length of that in float32, which kept statistics then see."""
    context = make_context(batch_norm_stores[stats], data)
    assert (context.net.num_buffers > 0) == (stats == "kept")
    coreset = in_double_points(make_points(data))
    assert_twins(make_method("fbpc"), in_double(context), coreset, tolerance=1e-8)


def test_twin_sees_the_variance(store, data):
    """A wrong Ψ̂ would be seen: without it, the twin's gradient is another."""
    context = make_context(store, data)
    slow = slow_update(make_method("fbpc"), context, make_points(data), make_rng())
    with_variance = slow.gradients()["inputs"]
    for side in (slow.x, slow.u):
        side.psi = torch.zeros_like(side.psi)
    away = slow.gradients()["inputs"] - with_variance
    assert away.norm() > 0.01 * with_variance.norm()


def test_only_chosen_images_get_a_gradient(store, data):
    coreset = make_points(data)
    estimate, slow = assert_twins(make_method("fbpc"), make_context(store, data, 4), coreset)
    touched = estimate.gradients["inputs"].flatten(1).abs().sum(1) > 0
    assert sorted(slow.chosen) == touched.nonzero().squeeze(1).tolist()
    assert len(slow.chosen) == 4 < len(coreset.inputs)


def test_descent_lowers_the_loss_under_the_data_posterior_relative_to_the_coresets(store, data):
    """The sign, and the scale of a mean loss, with all that an update draws held still."""
    method, context = make_method("fbpc", samples=200), make_context(store, data)
    coreset = make_points(data)
    gradient = update(method, context, coreset).gradients["inputs"]
    slow = slow_update(method, context, coreset, make_rng())
    with torch.no_grad():
        before = slow.difference(coreset.inputs, coreset.targets)
        after = slow.difference(coreset.inputs - 0.1 * gradient, coreset.targets)
    assert float(before - after) == pytest.approx(0.1 * float(gradient.square().sum()), rel=0.1)


def directional(slow, coreset, direction, width=1e-7):
    """The slope of the objective with θ, Ψ̂ and ε held as numbers; no autograd."""
    with torch.no_grad():
        ahead, behind = (
            slow.difference(coreset.inputs + sign * width * direction, coreset.targets)
            for sign in (1, -1)
        )
    return float(ahead - behind) / (2 * width)


def test_gradient_is_the_slope_with_everything_stopped_held_constant(store, data):
    """No gradient flows where the paper stops it: at θ_x, θ_u, Ψ̂_x and Ψ̂_u."""
    context, coreset = in_double(make_context(store, data)), in_double_points(make_points(data))
    gradient = update(make_method("fbpc"), context, coreset).gradients["inputs"]
    slow = slow_update(make_method("fbpc"), context, coreset, make_rng())
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        direction = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
        slope = directional(slow, coreset, direction)
        along = float((gradient * direction).sum())
        assert along == pytest.approx(slope, abs=1e-5 * float(gradient.norm()))


def test_gradient_through_the_variance_would_be_another(store, data):
    context, coreset = make_context(store, data), make_points(data)
    stopped = update(make_method("fbpc"), context, coreset).gradients["inputs"]
    leaf = coreset.inputs.clone().requires_grad_()
    slow = slow_update(make_method("fbpc"), context, coreset, make_rng(), points=leaf)
    (through,) = torch.autograd.grad(slow.difference(leaf, coreset.targets), leaf)
    assert (through - stopped).norm() > 0.02 * stopped.norm()


def test_gradient_through_the_training_of_the_map_solution_would_be_another(store, data):
    """The total slope: θ_u and Ψ̂_u found anew on the moved images, with the same randomness."""
    context, coreset = in_double(make_context(store, data)), in_double_points(make_points(data))
    gradient = update(make_method("fbpc"), context, coreset).gradients["inputs"]
    direction = gradient / gradient.norm()
    values, width = [], 1e-6
    for sign in (1, -1):
        moved = Points(coreset.inputs + sign * width * direction, coreset.targets)
        again = slow_update(make_method("fbpc"), context, moved, make_rng())
        with torch.no_grad():
            values.append(float(again.difference(moved.inputs, moved.targets)))
    total = (values[0] - values[1]) / (2 * width)
    assert abs(total - float(gradient.norm())) > 0.1 * float(gradient.norm())


def test_images_that_ask_for_a_gradient_get_none_of_their_own(store, data):
    images, labels = make_points(data)
    images = images.clone().requires_grad_()
    coreset = Points(images, labels)
    estimate = update(make_method("fbpc"), make_context(store, data), coreset)
    assert not estimate.gradients["inputs"].requires_grad
    assert images.grad is None


def test_gamma_out_of_reach_is_counted(store, data):
    method = make_method("fbpc", gamma=1e-9, max_map_steps=25)
    info = update(method, make_context(store, data), make_points(data)).info
    assert info["map_missed"] == 1
    assert info["map_steps"] == 25


def test_experts_are_needed(store, data):
    context = make_context(store, data)
    for method, where in [
        (make_method("fbpc"), replace(context, experts=None)),
        (make_method("fbpc", from_epoch=9), context),
        (make_method("fbpc-isotropic", to_epoch=9), context),
    ]:
        with pytest.raises(UserError) as refused:
            method.prepare(where)
        assert refused.value.parameter == "experts"


@pytest.mark.parametrize("draws", [True, False])
def test_network_that_draws_takes_its_steps_in_turn(store, data, monkeypatch, draws):
    made = []
    monkeypatch.setattr(fbpc, "SideStream", lambda _, apart: made.append(apart) or SideStream(CPU))
    monkeypatch.setattr(Net, "draws", property(lambda _: draws))  # over what was found before
    update(make_method("fbpc"), make_context(store, data), make_points(data))
    assert made == [not draws]
    if draws:
        assert SideStream(torch.device("cuda"), apart=False)._stream is None
