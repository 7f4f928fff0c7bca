"""BPC-CD: its updates against a slow twin, and its mean against the closed form."""

from dataclasses import replace

import pytest
import torch

from oracles.contrastive import SlowContrastive, linear_gaussian
from oracles.linear_gaussian import NOISE_VARIANCE, features, kl, posterior, weighted_posterior
from pseudocoreset.methods import BPCContrastive, Points
from small_world import (
    in_double,
    in_double_points,
    make_context,
    make_method,
    make_points,
    make_rng,
    same,
)

CHAINS = {"real_batch": 25}
CASES = {
    "as usual": {},
    "one pair": {"chains": 1},
    "cold": {"temperature": 0.0, "prior": 0.0},
    "more real points than there are": {"real_batch": 100},
    "batches": {"batch": 4},
}


def assert_twins(context, coreset, tolerance, **changes):
    """Two updates, the second with a coreset that has moved."""
    method = make_method(BPCContrastive, **{**CHAINS, **changes})
    divergence, rng = method.prepare(context), make_rng()
    state, slow = divergence.start(), SlowContrastive(method, context, coreset, make_rng())
    for steps in (method.warm_up + method.chain_steps, method.chain_steps):
        estimate = divergence.gradient(coreset, state, rng)
        slow.walk(coreset, steps)
        expected, losses = slow.gradients(coreset)
        assert estimate.gradients.keys() == expected.keys()
        for name, gradient in estimate.gradients.items():
            scale = float(expected[name].abs().max())
            assert scale > 1e-4
            torch.testing.assert_close(gradient, expected[name], rtol=0, atol=tolerance * scale)
        assert estimate.info == pytest.approx(losses, rel=max(tolerance, 1e-6))
        state = estimate.state
        coreset = coreset._replace(inputs=0.9 * coreset.inputs)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_updates_equal_their_slow_twin(store, data, case, soft):
    changes = dict(CASES[case])
    context = in_double(make_context(store, data, changes.pop("batch", 100)))
    assert_twins(context, in_double_points(make_points(data, soft=soft)), 1e-8, **changes)


@pytest.mark.parametrize("stats", ["batch", "kept"])
@pytest.mark.parametrize("batch", [100, 4])
def test_updates_with_batch_norm_equal_their_slow_twin(batch_norm_stores, data, stats, batch):
    context = in_double(make_context(batch_norm_stores[stats], data, batch))
    assert_twins(context, in_double_points(make_points(data)), 1e-8)


@pytest.mark.parametrize("batch", [100, 4])
def test_updates_of_a_regression_equal_their_slow_twin(table_store, table, batch):
    context = in_double(make_context(table_store, table, batch))
    assert_twins(context, in_double_points(make_points(table)), 1e-8)


def mean_gradient(x, y, coreset, updates, **changes):
    """The mean over updates, of both parts of the coreset."""
    chains = {"chains": 6, "chain_steps": 10, "warm_up": 100, "lr_chains": 0.2, "prior": 1.0}
    method = BPCContrastive(**chains | changes, real_batch=len(x))
    divergence, rng = method.prepare(linear_gaussian(x, y)), make_rng()
    state, found = divergence.start(), []
    for _ in range(updates):
        estimate = divergence.gradient(coreset, state, rng)
        state = estimate.state
        found.append(torch.cat([estimate.gradients[name] for name in coreset._fields]).squeeze(1))
    return torch.stack(found).mean(0).double()


def test_mean_gradient_is_that_of_the_closed_form_kl():
    """The posterior of a point that counts 3 times, beside that of 3 points.

    So few points leave posteriors wide: at another temperature it is another gradient.
    """
    generator = torch.Generator().manual_seed(6)
    x = torch.rand(3, generator=generator, dtype=torch.float64) * 4 - 2
    noise = torch.randn(3, generator=generator, dtype=torch.float64)
    y = features(x) @ torch.tensor([0.5, -1.0, 2.0]).double() + NOISE_VARIANCE**0.5 * noise
    u = torch.tensor([-0.9]).double()
    labels = features(u) @ posterior(x, y).mean
    leaves = [u.clone().requires_grad_(), labels.clone().requires_grad_()]
    ours = weighted_posterior(features(leaves[0]), leaves[1], 3 / 1, 1.0, NOISE_VARIANCE)
    expected = torch.cat(torch.autograd.grad(kl(posterior(x, y), ours) / 3, leaves))
    coreset = Points(u[:, None].float(), labels[:, None].float())

    def away(updates, **changes):
        found = mean_gradient(x, y, coreset, updates, **changes)
        return float((found - expected).norm() / expected.norm())

    assert away(24) < 0.3
    assert away(4, temperature=0.0) > 0.8


def test_chains_continue_from_the_state_alone(store, data):
    method = make_method(BPCContrastive, **CHAINS)
    context, coreset = make_context(store, data), make_points(data)
    first = method.prepare(context)
    begun = first.gradient(coreset, first.start(), make_rng(1)).state
    one, other = (
        method.prepare(context).gradient(coreset, begun, make_rng(2)).state for _ in range(2)
    )
    assert same(one, other)
    assert float(one["begun"]) == 1
    assert not torch.equal(one["params_u"], begun["params_u"])
    assert not torch.equal(one["params_u"][0], one["params_u"][1])


def test_experts_are_not_needed(store, data):
    context = replace(make_context(store, data), experts=None)
    method = make_method(BPCContrastive, **CHAINS)
    divergence = method.prepare(context)
    estimate = divergence.gradient(make_points(data), divergence.start(), make_rng())
    assert estimate.gradients["inputs"].abs().max() > 0
