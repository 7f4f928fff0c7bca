"""`LastLayer`: networks of a deep ensemble, with last layers from their closed-form posterior."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from oracles.last_layer import direct_posterior, soft_targets, values_at
from pseudocoreset import Ensemble, LastLayer, Posterior, UserError, distill, evaluate, sample
from pseudocoreset.last_layer import HEAD_PRECISION, HEAD_PRIOR
from pseudocoreset.posterior import sampler_class
from pseudocoreset.training import Training
from small_world import NET, make_context

SHORT = LastLayer(epochs=4, every=2, step=0.05, heads=3)
QUIET = {"device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def coreset(data):
    return distill(data, (), "random", ipc=2, net=NET, **QUIET)


def outputs_of(posterior, inputs):
    return posterior.outputs(inputs, scaling=None)


def test_each_network_has_so_many_last_layers(coreset):
    """The networks are those of a deep ensemble with the same seed."""
    found = sample(coreset, SHORT, chains=2, seed=3, **QUIET)
    ensemble = sample(coreset, Ensemble(epochs=4, every=2, step=0.05), chains=2, seed=3, **QUIET)
    net = found.make_net()
    assert len(found) == 2 * 2 * 3
    assert len(found.params.unique(dim=0)) == len(found)
    for number, weights in enumerate(found.samples()):
        own, other = (net.unflatten(w) for w in (weights.params, ensemble.params[number // 3]))
        for name in own:
            head = name in (net.head.weight, net.head.bias)
            assert torch.equal(own[name], other[name]) != head


def test_drawn_last_layers_have_the_moments_of_the_direct_posterior(data, coreset):
    sampler = replace(SHORT, epochs=2, heads=2_500, head_prior=0.5, head_precision=2.0)
    inputs = data.scaling.apply(data.test.inputs[:4])
    for weight in (1.0, 5.0):
        posterior = sample(coreset, sampler, chains=1, weight=weight, **QUIET)
        net, weights = posterior.make_net(), next(iter(posterior.samples()))
        targets = soft_targets(coreset.targets, data.classes)
        features, at = (net.features(weights, part) for part in (coreset.inputs, inputs))
        direct = direct_posterior(features, targets, 0.5, 2.0 * weight)
        mean, variance = values_at(direct, at)
        outputs = outputs_of(posterior, inputs).double()
        torch.testing.assert_close(outputs.mean(0), mean, rtol=0, atol=0.1)
        spread = outputs.var(0)
        torch.testing.assert_close(spread, variance[:, None].expand_as(spread), rtol=0.1, atol=0)


def test_averaged_softmax_is_near_the_probit_formula(data, store, coreset):
    sampler = replace(SHORT, epochs=2, heads=2_000)
    posterior = sample(coreset, sampler, chains=1, **QUIET)
    found = posterior.predict(data.test.inputs)
    net, weights = posterior.make_net(), next(iter(posterior.samples()))
    likelihood = make_context(store, data).likelihood
    targets = soft_targets(coreset.targets, data.classes)
    direct = direct_posterior(
        net.features(weights, coreset.inputs), targets, HEAD_PRIOR, HEAD_PRECISION
    )
    inputs = data.scaling.apply(data.test.inputs)
    mean, variance = values_at(direct, net.features(weights, inputs))
    for label in range(data.classes):
        classes = torch.full((len(inputs),), label)
        formula = (-likelihood.nll_of_gaussian(mean, variance, classes)).exp()
        assert float((found.probs[:, label] - formula).abs().mean()) < 0.05


def test_seed_decides(coreset):
    first, again, other = (sample(coreset, SHORT, seed=s, **QUIET).params for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_posterior_is_kept_in_a_file_and_scored(data, coreset, tmp_path):
    posterior = sample(coreset, SHORT, chains=1, **QUIET)
    posterior.save(tmp_path / "p.safetensors")
    again = Posterior.load(tmp_path / "p.safetensors")
    assert torch.equal(again.params, posterior.params)
    assert again.details["protocol"]["sampler"] == "last-layer"
    scores = evaluate(again, data, **QUIET)
    assert 0 <= scores.mean("accuracy") <= 1
    assert sampler_class("last-layer") is LastLayer


def test_regression_is_on_the_numbers_themselves(table):
    """Much data precision and a wide prior: the networks go through the coreset's points."""
    own = {"net": "mlp:depth=1,width=32", "target_noise": 0.3}
    coreset = distill(table, (), "random", ipc=8, **own, **QUIET)
    posterior = sample(coreset, replace(SHORT, head_prior=1e-4, head_precision=100.0), **QUIET)
    outputs = outputs_of(posterior, coreset.inputs)
    torch.testing.assert_close(outputs.mean(0), coreset.targets, rtol=0, atol=0.15)


def softmax_twice(channels: int, image_size: int, classes: int) -> nn.Module:
    """A network that does not end with a linear layer."""
    linear = nn.Linear(channels * image_size**2, classes)
    return nn.Sequential(nn.Flatten(), linear, nn.LogSoftmax(1))


def test_network_without_a_last_layer_is_refused_before_it_is_trained(coreset, monkeypatch):
    monkeypatch.setattr(Training, "run", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(UserError, match="last linear layer") as refused:
        sample(coreset, SHORT, net=softmax_twice, **QUIET)
    assert refused.value.parameter == "net"


def test_posterior_that_cannot_be_solved_is_refused(coreset):
    """Points that are all the same, and no noise to speak of."""
    coreset = replace(coreset, inputs=torch.zeros_like(coreset.inputs), dsa="off")
    with pytest.raises(UserError, match="single precision") as refused:
        sample(coreset, replace(SHORT, head_prior=1e-30, head_precision=1e10), **QUIET)
    assert refused.value.parameter == "head_prior"
