"""BPC-W: the way back through the student's steps against autograd and finite differences."""

from dataclasses import replace

import pytest
import torch

from oracles.fbpc import shrinking
from oracles.weight_space import (
    descended,
    slow_wasserstein,
    softmax_regression,
)
from pseudocoreset.data import Split
from pseudocoreset.errors import UserError
from pseudocoreset.methods import BPCWasserstein, Points
from pseudocoreset.methods.bpc_w import LEAST_LR
from small_world import (
    in_double,
    in_double_points,
    make_context,
    make_method,
    make_points,
    make_rng,
)

STUDENT = {"start_epochs": 2, "student_steps": 5, "lr_student": 0.1, "expert_epochs": 2}

CASES = {
    "several steps": {},
    "one step": {"student_steps": 1},
    "batches": {"batch": 4},
    "the next epoch": {"expert_epochs": 1},
    "from the init alone": {"start_epochs": 1},
}


def assert_twins(context, coreset, tolerance, change=0.0, **changes):
    method = make_method(BPCWasserstein, **{**STUDENT, "lr_lr": 0.001, **changes})
    before = {"lr_change": torch.tensor(change, dtype=torch.float64)}
    estimate = method.prepare(context).gradient(coreset, before, make_rng())
    lr = method.lr_student * shrinking(context.likelihood) + change
    slow = slow_wasserstein(method, context, coreset, make_rng(), lr)
    assert estimate.gradients.keys() == slow.gradients.keys()
    for name, gradient in estimate.gradients.items():
        scale = float(slow.gradients[name].abs().max())
        assert scale > 1e-4
        torch.testing.assert_close(gradient, slow.gradients[name], rtol=0, atol=tolerance * scale)
    assert estimate.info["distance"] == pytest.approx(float(slow.distance), rel=tolerance)
    assert estimate.info["lr_student"] == pytest.approx(lr)
    assert estimate.info["start_epoch"] == slow.epoch
    slope = (change - float(estimate.state["lr_change"])) / method.lr_lr
    assert abs(float(slow.slope_lr)) > 1e-3
    assert slope == pytest.approx(float(slow.slope_lr), rel=100 * tolerance)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_update_equals_its_slow_twin(store, data, case, soft):
    changes = dict(CASES[case])
    context = in_double(make_context(store, data, changes.pop("batch", 100)))
    assert_twins(context, in_double_points(make_points(data, soft=soft)), 1e-8, **changes)


@pytest.mark.parametrize("batch", [100, 4])
def test_update_of_a_regression_equals_its_slow_twin(table_store, table, batch):
    context = in_double(make_context(table_store, table, batch))
    slow = {"lr_student": 0.02, "lr_lr": 1e-6}
    assert_twins(context, in_double_points(make_points(table)), 1e-8, **slow)


def test_update_at_a_learned_rate_equals_its_slow_twin(store, data):
    context = in_double(make_context(store, data))
    assert_twins(context, in_double_points(make_points(data)), 1e-8, change=-0.03)


def test_update_equals_its_slow_twin_in_single_precision(store, data):
    assert_twins(make_context(store, data), make_points(data), 1e-3)


@pytest.mark.parametrize("stats", ["batch", "kept"])
def test_update_of_batch_norm_equals_its_slow_twin(batch_norm_stores, data, stats):
    context = in_double(make_context(batch_norm_stores[stats], data))
    assert_twins(context, in_double_points(make_points(data)), 1e-8)


def test_gradient_is_the_slope_of_the_exact_distance():
    """Softmax regression, whose steps are written out by hand; no autograd on the oracle's side.

    W₂² of two Gaussians with one covariance is the squared distance of their means.
    """
    generator = torch.Generator().manual_seed(3)
    start, target = torch.randn(2, 10, generator=generator, dtype=torch.float64)
    images = torch.randn(8, 1, 2, 2, generator=generator, dtype=torch.float64)
    labels = torch.arange(8) % 2
    real = Split(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1]))
    steps, lr, lr_lr, width = 6, 0.3, 0.001, 1e-5
    options = BPCWasserstein(start_epochs=1, student_steps=steps, lr_student=lr, lr_lr=lr_lr)
    method = options.prepare(softmax_regression(start, target, real))
    estimate = method.gradient(Points(images, labels), method.start(), make_rng())

    def distance(images, lr):
        end = descended(start, Points(images, labels), steps, lr)
        return float((end - target).square().sum() / (start - target).square().sum())

    assert estimate.info["distance"] == pytest.approx(distance(images, lr))
    expected = torch.zeros_like(images)
    for place in range(images.numel()):
        bump = torch.zeros(images.numel(), dtype=torch.float64)
        bump[place] = width
        bump = bump.view_as(images)
        slope = (distance(images + bump, lr) - distance(images - bump, lr)) / (2 * width)
        expected.view(-1)[place] = slope
    scale = float(expected.abs().max())
    torch.testing.assert_close(estimate.gradients["inputs"], expected, rtol=0, atol=1e-6 * scale)
    slope = (distance(images, lr + width) - distance(images, lr - width)) / (2 * width)
    assert float(estimate.state["lr_change"]) == pytest.approx(-lr_lr * slope, rel=1e-5)
    step = 0.1 * estimate.gradients["inputs"] / estimate.gradients["inputs"].norm()
    assert distance(images - step, lr) < distance(images, lr)


def test_learning_rate_stays_positive(store, data):
    options = make_method(BPCWasserstein, lr_lr=1e6, **STUDENT)
    method, coreset = options.prepare(make_context(store, data)), make_points(data)
    rates = []
    for seed in range(6):
        state = method.gradient(coreset, method.start(), make_rng(seed)).state
        rates.append(0.1 + float(state["lr_change"]))
    assert min(rates) == pytest.approx(0.1 * LEAST_LR)
    assert max(rates) > 0.1  # it may grow too


def test_experts_with_early_epochs_are_needed(store, data):
    context = make_context(store, data)
    late = type(store)(store.path, replace(store.identity, first_epoch=1))
    refused = [({}, None), ({}, late), ({"expert_epochs": 2}, store)]
    for changes, experts in refused:
        method = make_method(BPCWasserstein, **changes)
        with pytest.raises(UserError) as error:
            method.prepare(replace(context, experts=experts))
        assert error.value.parameter == "experts"
