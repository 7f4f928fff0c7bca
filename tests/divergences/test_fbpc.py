"""One FBPC update against its slow twin, and what no gradient may flow through."""

import pytest
import torch

from oracles.fbpc import slow_update
from pseudocoreset.divergences import FBPC, Points, fbpc
from pseudocoreset.engine.streams import Beside
from pseudocoreset.errors import UserError
from pseudocoreset.nets import Net
from small_world import in_double, in_double_points, make_context, make_points, make_rng

CPU = torch.device("cpu")

CASES = {
    "full": {},
    "two draws": {"draws": 2},
    "batches": {"batch": 4},
    "batches that do not divide": {"batch": 4, "draws": 2, "covariance_steps": 7},
    "more samples": {"samples": 30},
}


def assert_twins(context, coreset, isotropic=False, tolerance=1e-4):
    """The fast update equals the slow one to rounding; returns both."""
    estimate = FBPC(context, isotropic).gradient(coreset, {}, make_rng())
    slow = slow_update(context, coreset, make_rng(), isotropic)
    expected = slow.gradients()
    assert estimate.gradients.keys() == expected.keys()
    for name, gradient in estimate.gradients.items():
        scale = float(expected[name].abs().max())
        assert scale > 1e-4
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=tolerance * scale)
    labels = coreset.labels[slow.chosen]
    for name, side in (("loss_x", slow.x), ("loss_u", slow.u)):
        found = float(slow.loss(side, coreset.images[slow.chosen], labels).detach())
        assert estimate.info[name] == pytest.approx(found, rel=tolerance)
    assert estimate.info["map_steps"] == slow.map_steps
    return estimate, slow


@pytest.mark.parametrize("isotropic", [False, True], ids=["covariance", "isotropic"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_update_equals_its_slow_twin(store, data, case, isotropic, soft):
    context = make_context(store, data, **CASES[case])
    coreset = in_double_points(make_points(data, soft=soft))
    estimate, slow = assert_twins(in_double(context), coreset, isotropic, tolerance=1e-8)
    assert ("labels" in estimate.gradients) == soft
    assert slow.map_steps < context.settings.max_map_steps


@pytest.mark.parametrize("isotropic", [False, True], ids=["covariance", "isotropic"])
def test_update_equals_its_slow_twin_in_single_precision(store, data, isotropic):
    assert_twins(make_context(store, data), make_points(data), isotropic)


@pytest.mark.parametrize("stats", ["batch", "kept"])
def test_update_of_batch_norm_equals_its_slow_twin(batch_norm_stores, data, stats):
    """In float64 alone: a bias before BatchNorm has a gradient of mere rounding, and Adam makes
    steps of its full length of that in float32, which kept statistics then see."""
    context = make_context(batch_norm_stores[stats], data)
    assert (context.net.num_buffers > 0) == (stats == "kept")
    assert_twins(in_double(context), in_double_points(make_points(data)), tolerance=1e-8)


def test_twin_sees_the_variance(store, data):
    """A wrong Ψ̂ would be seen: without it, the twin's gradient is another."""
    context = make_context(store, data)
    slow = slow_update(context, make_points(data), make_rng())
    with_variance = slow.gradients()["images"]
    for side in (slow.x, slow.u):
        side.psi = torch.zeros_like(side.psi)
    away = slow.gradients()["images"] - with_variance
    assert away.norm() > 0.01 * with_variance.norm()


def test_only_chosen_images_get_a_gradient(store, data):
    coreset = make_points(data)
    estimate, slow = assert_twins(make_context(store, data, batch=4), coreset)
    touched = estimate.gradients["images"].flatten(1).abs().sum(1) > 0
    assert sorted(slow.chosen) == touched.nonzero().squeeze(1).tolist()
    assert len(slow.chosen) == 4 < len(coreset.images)


def test_descent_lowers_the_loss_under_the_data_posterior_relative_to_the_coresets(store, data):
    """The sign, and the scale of a mean loss, with all that an update draws held still."""
    context = make_context(store, data, samples=200)
    coreset = make_points(data)
    gradient = FBPC(context).gradient(coreset, {}, make_rng()).gradients["images"]
    slow = slow_update(context, coreset, make_rng())
    with torch.no_grad():
        before = slow.difference(coreset.images, coreset.labels)
        after = slow.difference(coreset.images - 0.1 * gradient, coreset.labels)
    assert float(before - after) == pytest.approx(0.1 * float(gradient.square().sum()), rel=0.1)


def directional(slow, coreset, direction, width=1e-7):
    """The slope of the objective with θ, Ψ̂ and ε held as numbers; no autograd."""
    with torch.no_grad():
        ahead, behind = (
            slow.difference(coreset.images + sign * width * direction, coreset.labels)
            for sign in (1, -1)
        )
    return float(ahead - behind) / (2 * width)


def test_gradient_is_the_slope_with_everything_stopped_held_constant(store, data):
    """No gradient flows where the paper stops it: at θ_x, θ_u, Ψ̂_x and Ψ̂_u."""
    context, coreset = in_double(make_context(store, data)), in_double_points(make_points(data))
    gradient = FBPC(context).gradient(coreset, {}, make_rng()).gradients["images"]
    slow = slow_update(context, coreset, make_rng())
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        direction = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
        slope = directional(slow, coreset, direction)
        along = float((gradient * direction).sum())
        assert along == pytest.approx(slope, abs=1e-5 * float(gradient.norm()))


def test_gradient_through_the_variance_would_be_another(store, data):
    context, coreset = make_context(store, data), make_points(data)
    stopped = FBPC(context).gradient(coreset, {}, make_rng()).gradients["images"]
    leaf = coreset.images.clone().requires_grad_()
    slow = slow_update(context, coreset, make_rng(), points=leaf)
    (through,) = torch.autograd.grad(slow.difference(leaf, coreset.labels), leaf)
    assert (through - stopped).norm() > 0.02 * stopped.norm()


def test_gradient_through_the_training_of_the_map_solution_would_be_another(store, data):
    """The total slope: θ_u and Ψ̂_u found anew on the moved images, with the same randomness."""
    context, coreset = in_double(make_context(store, data)), in_double_points(make_points(data))
    gradient = FBPC(context).gradient(coreset, {}, make_rng()).gradients["images"]
    direction = gradient / gradient.norm()
    values, width = [], 1e-6
    for sign in (1, -1):
        moved = Points(coreset.images + sign * width * direction, coreset.labels)
        again = slow_update(context, moved, make_rng())
        with torch.no_grad():
            values.append(float(again.difference(moved.images, moved.labels)))
    total = (values[0] - values[1]) / (2 * width)
    assert abs(total - float(gradient.norm())) > 0.1 * float(gradient.norm())


def test_images_that_ask_for_a_gradient_get_none_of_their_own(store, data):
    images, labels = make_points(data)
    images = images.clone().requires_grad_()
    estimate = FBPC(make_context(store, data)).gradient(Points(images, labels), {}, make_rng())
    assert not estimate.gradients["images"].requires_grad
    assert images.grad is None


def test_gamma_out_of_reach_is_counted(store, data):
    context = make_context(store, data, gamma=-1.0, max_map_steps=25)
    info = FBPC(context).gradient(make_points(data), {}, make_rng()).info
    assert info["map_missed"] == 1
    assert info["map_steps"] == 25


def test_experts_are_needed(store, data):
    context = make_context(store, data)
    without = type(context)(context.net, None, context.real, context.augmentation, context.settings)
    with pytest.raises(UserError, match="--experts"):
        FBPC(without)
    with pytest.raises(UserError, match="--from-epoch"):
        FBPC(make_context(store, data, from_epoch=9))


@pytest.mark.parametrize("draws", [True, False])
def test_a_network_that_draws_for_itself_takes_its_steps_in_turn(store, data, monkeypatch, draws):
    made = []
    monkeypatch.setattr(fbpc, "Beside", lambda _, apart: made.append(apart) or Beside(CPU))
    monkeypatch.setattr(Net, "draws", property(lambda _: draws))  # over what was found before
    FBPC(make_context(store, data)).gradient(make_points(data), {}, make_rng())
    assert made == [not draws]
    if draws:
        assert Beside(torch.device("cuda"), apart=False)._stream is None
