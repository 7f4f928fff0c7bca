"""BPC-rKL: its covariance against exact reverse KLs, and one update against its slow twin."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from oracles import linear_gaussian as model
from oracles.weight_space import (
    descended,
    slow_reverse_kl,
    softmax_regression,
    split_weights,
)
from pseudocoreset.data import Split
from pseudocoreset.errors import UserError
from pseudocoreset.methods import BPCReverseKL, Points
from pseudocoreset.methods.bpc_rkl import no_samples, with_sample
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
    "all": {},
    "true weights": {"weight_x": 60.0, "weight_u": 6.0},
    "two samples": {"samples": 2},
    "few real images": {"likelihood_batch": 7},
    "batches": {"batch": 4, "weight_u": 3.0},
    "groups": {"samples": 6, "group": 3},
    "a group that does not divide": {"samples": 6, "group": 4},
    "groups of batches": {"samples": 4, "group": 2, "batch": 4},
}


def assert_twins(context, coreset, tolerance, **changes):
    method = make_method(BPCReverseKL, **{**STUDENT, **changes})
    estimate = method.prepare(context).gradient(coreset, {}, make_rng())
    slow = slow_reverse_kl(method, context, coreset, make_rng())
    expected = slow.gradients()
    assert estimate.gradients.keys() == expected.keys()
    for name, gradient in estimate.gradients.items():
        scale = float(expected[name].abs().max())
        assert scale > 1e-6
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=tolerance * scale)
    for name, kept in (("loss_x", slow.mean_x), ("loss_u", slow.mean_u)):
        mean = -float(torch.stack(kept).mean())
        assert estimate.info[name] == pytest.approx(mean, rel=max(tolerance, 1e-7))
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
    assert_twins(context, in_double_points(make_points(table)), 1e-8, weight_x=60.0, weight_u=6.0)


def test_update_equals_its_slow_twin_in_single_precision(store, data):
    assert_twins(make_context(store, data), make_points(data), 1e-3)


@pytest.mark.parametrize("batch", [100, 4])
@pytest.mark.parametrize("stats", ["batch", "kept"])
def test_update_of_batch_norm_equals_its_slow_twin(batch_norm_stores, data, stats, batch):
    """Statistics of the batch tie the images together, and still only the chosen ones move."""
    context = in_double(make_context(batch_norm_stores[stats], data, batch))
    assert_twins(context, in_double_points(make_points(data)), 1e-8)


def test_covariance_is_the_gradient_of_the_exact_reverse_kl():
    """Linear-Gaussian: samples of the very posterior, (n, m), and KL[π_u ‖ π_x] in closed form."""
    generator = torch.Generator().manual_seed(1)
    x, u = (torch.randn(n, generator=generator, dtype=torch.float64) for n in (12, 3))
    y, y_u = torch.sin(3 * x), torch.tensor([0.5, -0.5, 1.0], dtype=torch.float64)
    leaf = u.clone().requires_grad_()
    reverse = model.kl(model.posterior(leaf, y_u), model.posterior(x, y))
    (expected,) = torch.autograd.grad(reverse, leaf)
    forward = model.kl(model.posterior(x, y), model.posterior(leaf, y_u))
    (other,) = torch.autograd.grad(forward, leaf)

    mean, covariance = model.posterior(u, y_u)
    number = 20_000
    noise = torch.randn(number, model.FEATURES, generator=generator, dtype=torch.float64)
    theta = mean + noise @ torch.linalg.cholesky(covariance).T
    many = u.expand(number, -1).clone().requires_grad_()
    outputs = torch.einsum("smf,sf->sm", model.features(many.flatten()).view(number, 3, -1), theta)
    f_u = model.log_likelihood(y_u, outputs)
    (gradients,) = torch.autograd.grad(f_u.sum(), many)
    excess = model.log_likelihood(y, theta @ model.features(x).T) - f_u.detach()
    state = no_samples({"gradient_u": torch.zeros_like(u)})
    for gradient, value in zip(gradients, excess, strict=True):
        state = state | with_sample(state, {"gradient_u": gradient}, value, number)
    assert (state["gradient_u"] - expected).norm() < 0.05 * expected.norm()
    assert (state["gradient_u"] - other).norm() > 0.5 * other.norm()


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_covariance_in_single_precision(offset):
    """A log-likelihood of a million that varies by some tens."""
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(30, 4, generator=generator)
    excess = offset + torch.round(20 * torch.randn(30, generator=generator))
    state = no_samples({"gradient_u": torch.zeros(4)})
    for gradient, value in zip(gradients, excess, strict=True):
        state = state | with_sample(state, {"gradient_u": gradient}, value, 30)
    both = torch.cat([gradients.T.double(), excess[None].double()])
    expected = -torch.cov(both)[-1, :-1].float()
    torch.testing.assert_close(state["gradient_u"], expected, rtol=0, atol=0.05)


def softmax_world(**changes):
    generator = torch.Generator().manual_seed(3)
    start, target = torch.randn(2, 10, generator=generator, dtype=torch.float64)
    images = torch.randn(4, 1, 2, 2, generator=generator, dtype=torch.float64)
    coreset = Points(images, torch.tensor([0, 1, 0, 1]))
    pixels = torch.randint(256, (8, 1, 2, 2), generator=generator).to(torch.uint8)
    real = Split(pixels, torch.arange(8) % 2)
    steps, lr = 5, 0.3
    method = BPCReverseKL(start_epochs=1, student_steps=steps, lr_student=lr, **changes)
    context = softmax_regression(start, target, real)
    return method, context, coreset, descended(start, coreset, steps, lr)


def summed_log_likelihood(params, images, labels):
    weight, bias = split_weights(params)
    return -F.cross_entropy(images.flatten(1) @ weight.T + bias, labels, reduction="sum")


def narrow_kl(params, std, images, coreset, real):
    """KL[π_u ‖ π_x] of posteriors under a narrow prior N(params, std²·1).

    There likelihoods are linear, both posteriors are Gaussian with the prior's covariance, and
    their means are params + std²·∇f.
    """
    leaf = params.clone().requires_grad_()
    means = []
    for points, labels in ((images, coreset.targets), real):
        f = summed_log_likelihood(leaf, points, labels)
        means.append(std**2 * torch.autograd.grad(f, leaf, create_graph=True)[0])
    return (means[0] - means[1]).square().sum() / (2 * std**2)


def test_update_is_the_gradient_of_the_exact_reverse_kl_under_a_narrow_prior():
    """The whole method with (n, m): sign, scale, σ, and which images count how."""
    std = 1e-3
    method, context, coreset, student = softmax_world(
        samples=2000, noise=std, weight_x=8.0, weight_u=4.0
    )
    found = method.prepare(context).gradient(coreset, {}, make_rng()).gradients["inputs"]
    real = context.real({}, None)
    leaf = coreset.inputs.clone().requires_grad_()
    kl = narrow_kl(student, std, leaf, coreset, real)
    (expected,) = torch.autograd.grad(kl, leaf)
    assert (len(leaf) * found - expected).norm() < 0.12 * expected.norm()
    with torch.no_grad():
        step = 0.01 * found / found.norm()
    after = narrow_kl(student, std, coreset.inputs - step, coreset, real)
    assert after < kl


def test_one_sample_is_refused():
    with pytest.raises(UserError) as refused:
        BPCReverseKL(samples=1).resolved({})
    assert refused.value.parameter == "samples"


def test_experts_with_early_epochs_are_needed(store, data):
    context = make_context(store, data)
    late = type(store)(store.path, replace(store.identity, first_epoch=1))
    refused = [({}, None), ({}, late), ({"start_epochs": 5}, store)]
    for changes, experts in refused:
        method = make_method(BPCReverseKL, **changes)
        with pytest.raises(UserError) as error:
            method.prepare(replace(context, experts=experts))
        assert error.value.parameter == "experts"
