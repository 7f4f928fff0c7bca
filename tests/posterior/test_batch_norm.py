"""Batch norms in a chain and in what it predicts: `stats=batch` and `stats=kept`."""

from dataclasses import replace

import pytest
import torch

from pseudocoreset import SGHMC, sample
from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.engine.random import Rng
from small_world import NET, make_data, make_points

COLD = SGHMC(epochs=6, every=2, step=0.05, temperature=0.0, dsa="off", prior=2.0)


def make_coreset():
    data = make_data()
    made = Provenance("random", NET, data.name, data.fingerprint, 0, 0, num_train=60)
    points = make_points(data)
    return Pseudocoreset(*points, data.class_names, data.scaling, "crop", made)


def chain_of(stats: str):
    """A chain of ours, and what PyTorch's own module and optimiser make of the same start."""
    coreset = make_coreset()
    net = f"{NET},norm=batch,stats={stats}"
    posterior = sample(coreset, COLD, net=net, chains=1, device="cpu", progress=False)
    rng = Rng(torch.device("cpu"), 0)
    rng.reseed(0, "chain", 0)
    module = posterior.make_net().build().train()
    start = posterior.make_net().init(rng.device).params
    torch.nn.utils.vector_to_parameters(start, module.parameters())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=2.0 / 6)
    states = []
    for epoch in range(6):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(coreset.inputs), coreset.targets).backward()
        optimiser.step()
        if epoch % 2:
            states.append({name: value.clone() for name, value in module.state_dict().items()})
    return posterior, module, states


@pytest.mark.parametrize("stats", ["batch", "kept"])
def test_chain_has_the_statistics_of_torch_with_each_sample(stats):
    posterior, module, states = chain_of(stats)
    for weights, state in zip(posterior.samples(), states, strict=True):
        module.load_state_dict(state)
        params = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
        torch.testing.assert_close(weights.params, params, rtol=1e-4, atol=1e-5)
        buffers = [buffer.float().reshape(-1) for buffer in module.buffers()]
        expected = torch.cat(buffers) if buffers else torch.empty(0)
        torch.testing.assert_close(weights.buffers, expected, rtol=1e-4, atol=1e-5)
    assert (posterior.buffers.shape[1] > 0) == (stats == "kept")
    if stats == "kept":
        assert not torch.allclose(posterior.buffers[0], posterior.buffers[-1], atol=1e-2)


@pytest.mark.parametrize("stats", ["batch", "kept"])
def test_average_is_over_networks_each_with_its_own_statistics(stats):
    """`kept`: those of the sample; `batch`: those of the points that are predicted together."""
    posterior, module, states = chain_of(stats)
    data = make_data()
    images = data.scaling.apply(data.test.inputs)
    probs = []
    for state in states:
        module.load_state_dict(state)
        with torch.no_grad():
            probs.append(module.eval()(images).softmax(1))
    expected = torch.stack(probs).mean(0)
    found = posterior.predict(data.test.inputs, device="cpu").probs
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    alone = posterior.predict(data.test.inputs[:1], device="cpu").probs
    assert torch.allclose(alone, found[:1], atol=1e-4) == (stats == "kept")


def test_first_epochs_network_is_a_sample_with_its_statistics():
    kept = f"{NET},norm=batch,stats=kept"
    named = {"net": kept, "chains": 1, "device": "cpu", "progress": False}
    found = sample(make_coreset(), replace(COLD, first=True), **named)
    one = sample(make_coreset(), replace(COLD, epochs=1, every=1), **named)
    assert len(found) == 4
    assert torch.equal(found.params[0], one.params[0])
    assert torch.equal(found.buffers[0], one.buffers[0])
