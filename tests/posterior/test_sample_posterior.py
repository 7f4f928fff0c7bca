"""From a coreset to networks: shapes, seeds, protocols, files."""

from dataclasses import replace

import pytest
import torch

from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.errors import UserError
from pseudocoreset.nets import Weights
from pseudocoreset.posterior import (
    Posterior,
    Protocol,
    named_protocol,
    sample_posterior,
    sample_posteriors,
)
from pseudocoreset.posterior import sample as sampling
from pseudocoreset.training import StillImages
from small_world import NET, make_data, make_points

SHORT = Protocol(epochs=6, every=2, step=0.05)


def make_coreset(soft=False):
    data = make_data()
    images, labels = make_points(data, soft=soft)
    told = Provenance("random", NET, data.name, data.fingerprint, 0, 0)
    return Pseudocoreset(images, labels, data.class_names, data.normalisation, "crop", told)


def sample(protocol=SHORT, seed=0, coreset=None, net=None):
    return sample_posterior(coreset or make_coreset(), net, protocol, seed=seed, device="cpu")


@pytest.mark.parametrize("sampler", ["sghmc", "sgld", "map"])
@pytest.mark.parametrize("chains", [1, 2])
def test_number_and_shape_of_samples(sampler, chains):
    posterior = sample(replace(SHORT, sampler=sampler, chains=chains))
    net = posterior.make_net()
    assert len(posterior) == 3 * chains
    assert posterior.params.shape == (3 * chains, net.num_params)
    assert posterior.params.isfinite().all()
    assert len(posterior.params.unique(dim=0)) == 3 * chains
    starts = 3 * chains if sampler == "map" else chains
    assert len(posterior.details["loss_trace"]) == starts
    assert len(posterior.details["kinetic_temperature"]) == (0 if sampler == "sgld" else starts)


def test_epochs_must_be_whole_intervals():
    assert len(sample(replace(SHORT, epochs=8))) == 4
    with pytest.raises(UserError, match="--every 2 does not divide --epochs 7"):
        sample(replace(SHORT, epochs=7))


def test_seed_decides():
    first, again, other = (sample(seed=seed).params for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_first_chain_is_that_of_a_single_one_and_the_second_another():
    one, two = sample(), sample(replace(SHORT, chains=2))
    assert torch.equal(one.params, two.params[:3])
    away = (two.params[:3] - two.params[3:]).norm(dim=1)
    along = (two.params[2] - two.params[0]).norm()
    assert away.min() > along


def test_fewer_chains_run_at_once_where_memory_is_too_small(monkeypatch):
    expected = sample_posteriors(make_coreset(), None, SHORT, seeds=range(5), device="cpu")
    tried, room = [], 2

    class Lane(sampling._Lane):
        def __init__(self, *given):
            super().__init__(*given)
            self.number = tried[-1] = tried[-1] + 1

        def go(self, epochs):
            if self.number > room:
                raise torch.OutOfMemoryError
            super().go(epochs)

    def lanes_of(*given, sampled=sampling._sampled):
        tried.append(0)
        return sampled(*given)

    monkeypatch.setattr(sampling, "_Lane", Lane)
    monkeypatch.setattr(sampling, "_sampled", lanes_of)
    monkeypatch.setattr(sampling, "chains_at_once", lambda *_: 5)
    found = sample_posteriors(make_coreset(), None, SHORT, seeds=range(5), device="cpu")
    assert tried == [5, 2]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.params, other.params)
    room = 0
    with pytest.raises(torch.OutOfMemoryError):
        sample_posteriors(make_coreset(), None, SHORT, seeds=range(5), device="cpu")
    assert tried == [5, 2, 5, 2, 1]


def test_map_gives_networks_trained_apart():
    """Each from its own init for all epochs: further apart than the steps of one."""
    found = sample(replace(SHORT, sampler="map"))
    chain = sample(replace(SHORT, temperature=0.0))
    assert torch.equal(found.params[0], chain.params[-1])
    assert (found.params[0] - found.params[1]).norm() > (chain.params[0] - chain.params[-1]).norm()
    assert found.details["temperature"] == 0


def test_chain_at_zero_temperature_is_sgd_with_momentum_on_a_module():
    """The whole way: init, mean loss of the coreset, decay τ/m, no augmentation."""
    coreset = make_coreset()
    protocol = replace(SHORT, temperature=0.0, dsa="off", prior=2.0)
    posterior = sample(protocol, coreset=coreset)
    module = _module_at_the_start(posterior)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=2.0 / 6)
    for _ in range(6):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(coreset.images), coreset.labels)
        loss.backward()
        optimiser.step()
    found = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(posterior.params[-1], found, rtol=1e-4, atol=1e-5)


def _module_at_the_start(posterior):
    from pseudocoreset.engine.random import Rng

    net, rng = posterior.make_net(), Rng(torch.device("cpu"), 0)
    rng.reseed(0, "chain", 0)
    module = net.build().train()
    torch.nn.utils.vector_to_parameters(net.init(rng.device).params, module.parameters())
    return module


def test_batches_are_of_one_size_and_cover_the_coreset(monkeypatch):
    """6 images in batches of at most 4 are 3 + 3; every image is seen once an epoch."""
    seen, take = [], StillImages.__call__

    def recorded(self, state, index):
        seen.append(index.tolist())
        return take(self, state, index)

    monkeypatch.setattr(StillImages, "__call__", recorded)
    sample(replace(SHORT, batch=4))
    assert len(seen) == 12
    for first, second in zip(seen[::2], seen[1::2], strict=True):
        assert len(first) == len(second) == 3
        assert sorted(first + second) == list(range(6))
    assert len({tuple(index) for index in seen}) > 2


def test_probabilities_as_labels_and_another_network():
    posterior = sample(coreset=make_coreset(soft=True), net=f"{NET},norm=batch,stats=kept")
    assert posterior.buffers.shape[1] == posterior.make_net().num_buffers > 0
    assert posterior.net.endswith("stats=kept")


def test_augmentation_can_be_switched_off():
    assert not torch.equal(sample().params, sample(replace(SHORT, dsa="off")).params)


def test_signs_of_how_sampling_went():
    protocol = replace(SHORT, epochs=400, every=100, temperature=1.0, dsa="off", friction=0.5)
    details = sample(protocol).details
    assert details["temperature"] == 1.0
    assert details["decay"] == pytest.approx(protocol.prior / 6)
    assert len(details["loss_trace"][0]) == 40
    (kinetic,) = details["kinetic_temperature"]
    assert kinetic == pytest.approx(1.0, rel=0.1)


def test_velocities_before_the_first_sample_do_not_count(monkeypatch):
    """The way down from a start far off is fast, whatever the temperature."""
    protocol = replace(SHORT, epochs=40, every=20, temperature=1e-6, dsa="off", friction=0.5)
    (kinetic,) = sample(protocol).details["kinetic_temperature"]
    monkeypatch.setattr(sampling._Lane, "forget_kinetic", lambda _: None)
    (with_the_way,) = sample(protocol).details["kinetic_temperature"]
    assert with_the_way > 2 * kinetic


def test_round_trip(tmp_path):
    posterior = sample()
    posterior.save(tmp_path / "posterior.safetensors")
    loaded = Posterior.load(tmp_path / "posterior.safetensors")
    assert torch.equal(loaded.params, posterior.params)
    assert torch.equal(loaded.buffers, posterior.buffers)
    for name in ("net", "class_names", "normalisation", "image_size", "details"):
        assert getattr(loaded, name) == getattr(posterior, name)
    assert all(isinstance(weights, Weights) for weights in loaded.samples())


def test_coreset_is_no_posterior(tmp_path):
    make_coreset().save(tmp_path / "coreset.safetensors")
    with pytest.raises(UserError, match="holds a coreset: give a posterior"):
        Posterior.load(tmp_path / "coreset.safetensors")


@pytest.mark.parametrize("sampler", ["sghmc", "sgld"])
def test_divergence_is_told(sampler):
    with pytest.raises(
        UserError, match=rf"chain 0 of {sampler} with seed 0 diverged.*--step \(1e\+30\)"
    ):
        sample(Protocol(sampler, step=1e30, temperature=1.0, epochs=20, every=10))


def test_a_last_step_that_diverges_is_told():
    """Its loss is of the weights before it."""
    with pytest.raises(UserError, match=r"diverged.*--step \(1e\+38\)"):
        sample(Protocol(step=1e38, temperature=1.0, prior=1e3, epochs=1, every=1))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"sampler": "nuts"}, "--sampler nuts is not known: give sghmc, sgld, map"),
        ({"every": 2000}, "--every 2000 does not divide --epochs 1000"),
        ({"chains": 0}, "--chains 0"),
        ({"friction": 0.0}, "--friction 0.0"),
        ({"friction": 1.5}, "--friction 1.5"),
        ({"step": 0.0}, "--step 0.0 is not positive"),
        ({"step": float("nan")}, "--step nan is not positive"),
        ({"temperature": -1.0}, "--temperature -1.0 is out of range"),
        ({"temperature": float("inf")}, "--temperature inf is out of range"),
        ({"prior": -0.1}, "--prior -0.1 is out of range"),
        ({"prior": float("nan")}, "--prior nan is out of range"),
        ({"dsa": "crop"}, "--dsa crop"),
    ],
)
def test_refusals(changes, match):
    with pytest.raises(UserError, match=match):
        named_protocol("paper", **changes)


def test_named_protocols():
    with pytest.raises(UserError, match="--protocol cold is not known: give tuned, paper or bayes"):
        named_protocol("cold")
    assert named_protocol("tuned") == Protocol()
    paper = named_protocol("paper")
    assert (paper.temperature, paper.prior) == (None, 0.0)
    changed = named_protocol("bayes", chains=3, prior=None)
    assert changed == replace(named_protocol("bayes"), chains=3)


def test_seeds_together_are_the_seeds_alone():
    together = sample_posteriors(make_coreset(), None, SHORT, seeds=[3, 1], device="cpu")
    for seed, posterior in zip((3, 1), together, strict=True):
        alone = sample(seed=seed)
        assert torch.equal(posterior.params, alone.params)
        assert posterior.details == alone.details
    assert not torch.equal(together[0].params, together[1].params)
