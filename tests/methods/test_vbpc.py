"""VBPC: its loss against the direct posterior, its gradients against finite differences."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from oracles.last_layer import (
    direct_posterior,
    gaussian_nll,
    kl_to_prior,
    probit_nll,
    soft_targets,
    values_at,
)
from pseudocoreset import LastLayer, UserError, distill, evaluate, load_data
from pseudocoreset.methods import VBPC
from pseudocoreset.nets import Weights, make_net
from small_world import (
    in_double,
    in_double_points,
    make_context,
    make_method,
    make_points,
    make_rng,
)

CASES = {"classes": False, "probabilities": True}


def double_world(store, data, *, soft=False, batch=100):
    context = in_double(make_context(store, data, batch))
    return context, in_double_points(make_points(data, soft=soft))


def slow_losses(method, context, coreset, rng, theta=None):
    """−log p of the real batch and the weighted KL, one number each, drawn as the method draws."""
    rng.choose(method.pool)
    if theta is None:
        theta = context.net.init(rng.device)
    size, side = len(coreset.inputs), coreset.inputs.shape[-1]
    draw = context.augmentation.draw(size, side, rng.device)
    if context.batch < size:
        torch.randperm(size, generator=rng.device)
    number = len(context.real.split)
    index = torch.randint(number, (method.real_batch,), generator=rng.device)
    real, labels = context.real({}, index)
    features = context.net.features(theta, context.augmentation.apply(coreset.inputs, draw))
    classes = not hasattr(context.likelihood, "noise")
    targets = coreset.targets
    if classes:
        targets = soft_targets(targets, context.likelihood.classes)
    posterior = direct_posterior(features, targets, method.head_prior, method.head_precision)
    mean, variance = values_at(posterior, context.net.features(theta, real))
    if classes:
        nll = probit_nll(mean, variance, labels)
    else:
        nll = gaussian_nll(mean, variance, labels, context.likelihood.noise)
    return nll, method.kl_weight / number * kl_to_prior(posterior, method.head_prior)


def assert_twins(method, context, coreset, tolerance):
    divergence = method.prepare(context)
    estimate = divergence.gradient(coreset, divergence.start(), make_rng())
    names = [name for name, part in coreset._asdict().items() if part.is_floating_point()]
    leaves = {name: getattr(coreset, name).clone().requires_grad_() for name in names}
    nll, kl = slow_losses(method, context, coreset._replace(**leaves), make_rng())
    gradients = torch.autograd.grad(nll + kl, list(leaves.values()))
    assert estimate.info["nll"] == pytest.approx(nll.item(), rel=tolerance)
    assert estimate.info["kl"] == pytest.approx(kl.item(), rel=tolerance)
    assert estimate.gradients.keys() == leaves.keys()
    for name, expected in zip(leaves, gradients, strict=True):
        scale = float(expected.abs().max())
        assert scale > 1e-5
        found = estimate.gradients[name]
        touched = (found.flatten(1) != 0).any(1)
        assert int(touched.sum()) == min(context.batch, len(found))
        torch.testing.assert_close(
            found[touched], expected[touched], rtol=0, atol=tolerance * scale
        )


@pytest.mark.parametrize("kl_weight", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("soft", CASES.values(), ids=CASES)
def test_update_equals_its_slow_twin(store, data, soft, kl_weight):
    context, coreset = double_world(store, data, soft=soft)
    assert_twins(make_method(VBPC, kl_weight=kl_weight), context, coreset, 1e-6)


def test_update_in_batches_has_the_gradient_of_the_points_it_moves(store, data):
    """All points are behind the posterior; a few get a gradient."""
    context, coreset = double_world(store, data, soft=True, batch=2)
    assert_twins(make_method(VBPC), context, coreset, 1e-6)


def test_update_of_a_regression_equals_its_slow_twin(table_store, table):
    context, coreset = double_world(table_store, table)
    assert_twins(make_method(VBPC), context, coreset, 1e-6)


def test_update_equals_its_slow_twin_in_single_precision(store, data):
    assert_twins(make_method(VBPC), make_context(store, data), make_points(data), 1e-2)


@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_gradient_is_the_slope_of_the_loss(store, data, name):
    context, coreset = double_world(store, data, soft=True)
    method = make_method(VBPC, kl_weight=20.0)
    divergence = method.prepare(context)
    start = divergence.start()
    gradient = divergence.gradient(coreset, start, make_rng()).gradients[name]
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        way = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
        width = 1e-6
        ends = [
            sum(
                map(
                    float,
                    slow_losses(
                        method,
                        context,
                        coreset._replace(**{name: getattr(coreset, name) + sign * width * way}),
                        make_rng(),
                    ),
                )
            )
            for sign in (1, -1)
        ]
        slope = (ends[0] - ends[1]) / (2 * width)
        assert float((gradient * way).sum()) == pytest.approx(slope, rel=1e-4)


def test_networks_take_steps_of_adam_on_the_coreset_and_are_replaced(store, data):
    """One network, three updates: steps by torch.optim, then a fresh one."""
    context, coreset = double_world(store, data, soft=True)
    method = make_method(VBPC, pool=1, pool_steps=3, lr_pool=0.01)
    divergence = method.prepare(context)
    state, ages = divergence.start(), []
    theta = buffers = optimiser = None
    for seed in (1, 2, 3):
        estimate = divergence.gradient(coreset, state, make_rng(seed))
        state = estimate.state
        rng = make_rng(seed)
        if theta is None:
            slow = make_rng(seed)
            slow.choose(1)
            params, buffers = context.net.init(slow.device)
            theta = params.clone().requires_grad_()
            optimiser = torch.optim.Adam([theta], lr=0.01)
            nll, _ = slow_losses(method, context, coreset, rng)
        else:
            nll, _ = slow_losses(method, context, coreset, rng, Weights(theta.detach(), buffers))
        assert estimate.info["nll"] == pytest.approx(float(nll), rel=1e-6)
        seen = context.augmentation.by_chance(
            coreset.inputs, context.augmentation.chance(len(coreset.inputs), rng.device)
        )
        outputs, _ = context.net.train(Weights(theta, buffers), seen)
        loss = context.likelihood.loss(outputs, coreset.targets)
        assert estimate.info["net_loss"] == pytest.approx(loss.item(), rel=1e-6)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        torch.testing.assert_close(state["params"][0], theta.detach(), rtol=0, atol=1e-6)
        ages.append(estimate.info["age"])
    assert ages == [0, 1, 2]
    after = divergence.gradient(coreset, state, make_rng(4))
    assert after.info["age"] == 0
    assert float(after.state["count"]) == 1


def test_networks_of_the_pool_take_turns(store, data):
    context, coreset = make_context(store, data), make_points(data)
    divergence = make_method(VBPC, pool=3).prepare(context)
    state, changed = divergence.start(), set()
    for seed in range(12):
        before = state["params"]
        state = divergence.gradient(coreset, state, make_rng(seed)).state
        (place,) = (state["params"] != before).any(1).nonzero().flatten().tolist()
        changed.add(place)
    assert changed == {0, 1, 2}
    assert len(state["params"].unique(dim=0)) == 3
    assert float(state["count"].sum()) == 12


def test_coreset_predicts_better_than_random_images_by_its_own_posterior():
    data, quiet = load_data("digits"), {"device": "cpu", "progress": False}
    common = {"ipc": 1, "net": "convnet:width=16", **quiet}
    learned = {"labels": "learned", "steps": 60}
    random = distill(data, (), "random", **common)
    made = distill(data, (), VBPC(real_batch=256), **learned, **common)
    sampler = LastLayer(epochs=100, every=50)
    before, after = (evaluate(each, data, sampler, seeds=1, **quiet) for each in (random, made))
    assert after.mean("accuracy") > before.mean("accuracy") + 0.05
    assert after.mean("nll") < before.mean("nll") - 0.2


def rectified(channels: int, image_size: int, classes: int) -> nn.Module:
    """A network that does not end with a linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, classes), nn.Softplus())


def test_network_that_does_not_end_with_a_linear_layer_is_refused(store, data):
    context = replace(make_context(store, data), net=make_net(rectified, **data.shape))
    with pytest.raises(UserError, match="last linear layer") as refused:
        VBPC().prepare(context)
    assert refused.value.parameter == "net"


def test_no_experts_are_needed(store, data):
    context = replace(make_context(store, data), experts=None)
    divergence = make_method(VBPC).prepare(context)
    estimate = divergence.gradient(make_points(data), divergence.start(), make_rng())
    assert estimate.gradients["inputs"].abs().max() > 0
    assert not VBPC.needs_experts
