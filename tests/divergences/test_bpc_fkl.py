"""BPC-fKL: one update against its slow twin, and against exact expectations."""

from dataclasses import replace

import pytest
import torch

from oracles.softmax_quadrature import expected_nll
from oracles.weight_space import (
    descended,
    in_double_too,
    output_moments,
    slow_forward_kl,
    softmax_regression,
)
from pseudocoreset.data import Split
from pseudocoreset.divergences import BPCForwardKL, Points
from pseudocoreset.errors import UserError
from small_world import in_double_points, make_context, make_points, make_rng

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


def twin(context, coreset, seed=0):
    settings = context.settings
    student = settings.start_epochs, settings.student_steps, settings.lr_student
    return slow_forward_kl(context, coreset, make_rng(seed), *student)


def assert_twins(context, coreset, tolerance):
    estimate = BPCForwardKL(context).gradient(coreset, {}, make_rng())
    slow = twin(context, coreset)
    expected = slow.gradients()
    assert estimate.gradients.keys() == expected.keys()
    for name, gradient in estimate.gradients.items():
        scale = float(expected[name].abs().max())
        assert scale > 1e-4
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=tolerance * scale)
    chosen = slow.start.chosen
    points = coreset.images[chosen], coreset.labels[chosen]
    for side, name in enumerate(["loss_x", "loss_u"]):
        found = float(slow.loss(side, *points).detach())
        assert estimate.info[name] == pytest.approx(found, rel=max(tolerance, 1e-7))
    assert estimate.info["start_epoch"] == slow.start.epoch


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_update_equals_its_slow_twin(store, data, case, soft):
    context = in_double_too(make_context(store, data, **{**STUDENT, **CASES[case]}))
    assert_twins(context, in_double_points(make_points(data, soft=soft)), 1e-8)


def test_update_equals_its_slow_twin_in_single_precision(store, data):
    assert_twins(make_context(store, data, **STUDENT), make_points(data), 1e-4)


@pytest.mark.parametrize("stats", ["batch", "kept"])
def test_update_of_batch_norm_equals_its_slow_twin(batch_norm_stores, data, stats):
    context = in_double_too(make_context(batch_norm_stores[stats], data, **STUDENT))
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
    context = softmax_regression(
        start, target, real, samples=2000, group=50, noise=std, student_steps=steps, lr_student=lr
    )
    estimate = BPCForwardKL(context).gradient(coreset, {}, make_rng())

    leaf = images.clone().requires_grad_()
    student = descended(start, coreset, steps, lr)
    losses = [
        expected_nll(*output_moments(params, std, leaf), coreset.labels)
        for params in (target, student)
    ]
    (expected,) = torch.autograd.grad(losses[0] - losses[1], leaf)
    assert estimate.info["loss_x"] == pytest.approx(losses[0].item(), rel=0.05)
    assert estimate.info["loss_u"] == pytest.approx(losses[1].item(), rel=0.05)
    away = estimate.gradients["images"] - expected
    assert away.norm() < 0.08 * expected.norm()
    # Without the noise it is another gradient: the test sees σ.
    plain = [
        expected_nll(*output_moments(params, 1e-9, leaf), coreset.labels)
        for params in (target, student)
    ]
    (sharp,) = torch.autograd.grad(plain[0] - plain[1], leaf)
    assert (sharp - expected).norm() > 0.15 * expected.norm()


def test_descent_lowers_the_loss_under_the_data_posterior_relative_to_the_coresets(store, data):
    context, coreset = make_context(store, data, samples=20, **STUDENT), make_points(data)
    gradient = BPCForwardKL(context).gradient(coreset, {}, make_rng()).gradients["images"]
    slow = twin(context, coreset)
    with torch.no_grad():
        before = slow.difference(coreset.images, coreset.labels)
        after = slow.difference(coreset.images - 0.1 * gradient, coreset.labels)
    assert float(before - after) == pytest.approx(0.1 * float(gradient.square().sum()), rel=0.1)


def test_experts_with_early_epochs_are_needed(store, data):
    context = make_context(store, data)
    with pytest.raises(UserError, match="BPC-fKL needs trained experts: give --experts"):
        BPCForwardKL(replace(context, experts=None))
    late = type(store)(store.path, replace(store.identity, first_epoch=1))
    with pytest.raises(UserError, match="holds epochs 1 to 3 and epochs 0 to 3 are needed"):
        BPCForwardKL(replace(context, experts=late))
    for changes in ({"start_epochs": 4}, {"expert_epochs": 2}):
        with pytest.raises(UserError, match="holds epochs 0 to 3 and epochs 0 to 4 are needed"):
            BPCForwardKL(make_context(store, data, **changes))
