"""BPC-fKL: one update against its slow twin, and against exact expectations."""

from dataclasses import replace

import pytest
import torch

from oracles.softmax_quadrature import expected_nll
from oracles.weight_space import (
    descended,
    output_moments,
    slow_forward_kl,
    softmax_regression,
)
from pseudocoreset.data import Split
from pseudocoreset.errors import UserError
from pseudocoreset.methods import BPCForwardKL, Points
from small_world import (
    in_double,
    in_double_points,
    make_context,
    make_method,
    make_points,
    make_rng,
)

STUDENT = {"start_epochs": 3, "student_steps": 4, "lr_student": 0.1, "noise": 0.05}

CASES = {
    "one by one": {},
    "groups": {"samples": 6, "group": 3},
    "a group that does not divide": {"samples": 6, "group": 4},
    "a group larger than the samples": {"samples": 3, "group": 10},
    "batches": {"batch": 4},
    "from the init alone": {"start_epochs": 1},
    "two epochs on": {"start_epochs": 2, "expert_epochs": 2},
}


def assert_twins(context, coreset, tolerance, **changes):
    method = make_method(BPCForwardKL, **{**STUDENT, **changes})
    estimate = method.prepare(context).gradient(coreset, {}, make_rng())
    slow = slow_forward_kl(method, context, coreset, make_rng())
    expected = slow.gradients()
    assert estimate.gradients.keys() == expected.keys()
    for name, gradient in estimate.gradients.items():
        scale = float(expected[name].abs().max())
        assert scale > 1e-4
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=tolerance * scale)
    chosen = slow.start.chosen
    points = coreset.inputs[chosen], coreset.targets[chosen]
    for side, name in enumerate(["loss_x", "loss_u"]):
        found = float(slow.loss(side, *points).detach())
        assert estimate.info[name] == pytest.approx(found, rel=max(tolerance, 1e-7))
    assert estimate.info["start_epoch"] == slow.start.epoch


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_update_equals_its_slow_twin(store, data, case, soft):
    changes = dict(CASES[case])
    context = in_double(make_context(store, data, changes.pop("batch", 100)))
    assert_twins(context, in_double_points(make_points(data, soft=soft)), 1e-8, **changes)


@pytest.mark.parametrize("batch", [100, 4])
def test_update_of_a_regression_equals_its_slow_twin(table_store, table, batch):
    context = in_double(make_context(table_store, table, batch))
    assert_twins(context, in_double_points(make_points(table)), 1e-8, samples=4, group=2)


def test_update_equals_its_slow_twin_in_single_precision(store, data):
    assert_twins(make_context(store, data), make_points(data), 1e-4)


@pytest.mark.parametrize("stats", ["batch", "kept"])
def test_update_of_batch_norm_equals_its_slow_twin(batch_norm_stores, data, stats):
    context = in_double(make_context(batch_norm_stores[stats], data))
    assert_twins(context, in_double_points(make_points(data)), 1e-8)


def test_gradient_is_that_of_the_exact_expectations():
    """Softmax regression: outputs under q are Gaussian, and expectations are quadratures.

    The sign, the mean over images, σ, and where both means are, without the package's own parts.
    """
    generator = torch.Generator().manual_seed(3)
    start, target = torch.randn(2, 10, generator=generator, dtype=torch.float64)
    images = torch.randn(4, 1, 2, 2, generator=generator, dtype=torch.float64)
    coreset = Points(images, torch.tensor([0, 1, 0, 1]))
    real = Split(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1]))
    std, steps, lr = 0.7, 5, 0.3
    context = softmax_regression(start, target, real)
    method = BPCForwardKL(
        start_epochs=1, samples=2000, group=50, noise=std, student_steps=steps, lr_student=lr
    )
    estimate = method.prepare(context).gradient(coreset, {}, make_rng())

    leaf = images.clone().requires_grad_()
    student = descended(start, coreset, steps, lr)
    losses = [
        expected_nll(*output_moments(params, std, leaf), coreset.targets)
        for params in (target, student)
    ]
    (expected,) = torch.autograd.grad(losses[0] - losses[1], leaf)
    assert estimate.info["loss_x"] == pytest.approx(losses[0].item(), rel=0.05)
    assert estimate.info["loss_u"] == pytest.approx(losses[1].item(), rel=0.05)
    away = estimate.gradients["inputs"] - expected
    assert away.norm() < 0.08 * expected.norm()
    # Without the noise it is another gradient: the test sees σ.
    plain = [
        expected_nll(*output_moments(params, 1e-9, leaf), coreset.targets)
        for params in (target, student)
    ]
    (sharp,) = torch.autograd.grad(plain[0] - plain[1], leaf)
    assert (sharp - expected).norm() > 0.15 * expected.norm()


def test_descent_lowers_the_loss_under_the_data_posterior_relative_to_the_coresets(store, data):
    method = make_method(BPCForwardKL, samples=20, **STUDENT)
    context, coreset = make_context(store, data), make_points(data)
    gradient = method.prepare(context).gradient(coreset, {}, make_rng()).gradients["inputs"]
    slow = slow_forward_kl(method, context, coreset, make_rng())
    with torch.no_grad():
        before = slow.difference(coreset.inputs, coreset.targets)
        after = slow.difference(coreset.inputs - 0.1 * gradient, coreset.targets)
    assert float(before - after) == pytest.approx(0.1 * float(gradient.square().sum()), rel=0.1)


def test_experts_with_early_epochs_are_needed(store, data):
    context = make_context(store, data)
    late = type(store)(store.path, replace(store.identity, first_epoch=1))
    refused = [({}, None), ({}, late), ({"start_epochs": 4}, store), ({"expert_epochs": 2}, store)]
    for changes, experts in refused:
        method = make_method(BPCForwardKL, **changes)
        with pytest.raises(UserError) as error:
            method.prepare(replace(context, experts=experts))
        assert error.value.parameter == "experts"
