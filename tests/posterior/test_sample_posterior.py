"""From a coreset to networks: shapes, seeds, protocols, files."""

from dataclasses import dataclass, replace
from importlib import import_module
from typing import ClassVar

import pytest
import torch
from torch import nn

from pseudocoreset import SGHMC, SGLD, Ensemble, Posterior, Sampler, UserError
from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.likelihoods import Gaussian
from pseudocoreset.nets import Weights
from pseudocoreset.posterior import named_sampler, sample_posteriors, sampler_class, sampler_name
from pseudocoreset.posterior import sample as pc_sample
from pseudocoreset.posterior.sample import chains_for
from pseudocoreset.posterior.sgld import SGLDRule
from pseudocoreset.posterior.weight import PointWeights, full_weight
from pseudocoreset.training import FixedPoints
from small_world import NET, make_data, make_points, make_table

SHORT = SGHMC(epochs=6, every=2, step=0.05)
sampling = import_module("pseudocoreset.posterior.sample")


def make_coreset(soft=False, num_train=60):
    data = make_data()
    images, labels = make_points(data, soft=soft)
    made = Provenance("random", NET, data.name, data.fingerprint, 0, 0, num_train=num_train)
    return Pseudocoreset(images, labels, data.class_names, data.scaling, "crop", made)


def sample(sampler=SHORT, seed=0, coreset=None, net=None, chains=1, weight=None):
    return pc_sample(
        coreset or make_coreset(),
        sampler,
        chains=chains,
        weight=weight,
        net=net,
        seed=seed,
        device="cpu",
        progress=False,
    )


def sample_seeds(seeds, sampler=SHORT):
    work = chains_for(make_coreset(), sampler, 1, None)
    return sample_posteriors(make_coreset(), work, seeds=seeds, device="cpu", progress=False)


def refused(call, *given, **named):
    """The parameter that is named where this is refused."""
    with pytest.raises(UserError) as error:
        call(*given, **named)
    return error.value.parameter


@pytest.mark.parametrize("kind", [SGHMC, SGLD, Ensemble])
@pytest.mark.parametrize("chains", [1, 2])
def test_number_and_shape_of_samples(kind, chains):
    posterior = sample(kind(epochs=6, every=2, step=0.05), chains=chains)
    net = posterior.make_net()
    assert len(posterior) == 3 * chains
    assert posterior.params.shape == (3 * chains, net.num_params)
    assert posterior.params.isfinite().all()
    assert len(posterior.params.unique(dim=0)) == 3 * chains
    starts = 3 * chains if kind is Ensemble else chains
    assert len(posterior.details["loss_trace"]) == starts
    assert len(posterior.details["kinetic_temperature"]) == (0 if kind is SGLD else starts)


def test_epochs_must_be_whole_intervals():
    assert len(sample(replace(SHORT, epochs=8))) == 4
    assert refused(sample, replace(SHORT, epochs=7)) == "every"


def test_seed_decides():
    first, again, other = (sample(seed=seed).params for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_first_chain_is_that_of_a_single_one_and_the_second_another():
    one, two = sample(), sample(chains=2)
    assert torch.equal(one.params, two.params[:3])
    away = (two.params[:3] - two.params[3:]).norm(dim=1)
    along = (two.params[2] - two.params[0]).norm()
    assert away.min() > along


def test_fewer_chains_run_at_once_where_memory_is_too_small(monkeypatch):
    expected = sample_seeds(range(5))
    tried, room = [], 2

    def side_by_side(lanes, *given, run=sampling._side_by_side):
        tried.append(len(lanes))
        if len(lanes) > room:
            raise torch.OutOfMemoryError
        return run(lanes, *given)

    monkeypatch.setattr(sampling, "_side_by_side", side_by_side)
    monkeypatch.setattr(sampling, "chains_at_once", lambda *_: 5)
    found = sample_seeds(range(5))
    assert tried == [5, 2, 2, 2]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.params, other.params)
    room = 0
    with pytest.raises(torch.OutOfMemoryError):
        sample_seeds(range(5))
    assert tried[4:] == [5, 2, 1]


def test_map_gives_networks_trained_apart():
    """Each from its own init for all epochs: further apart than the steps of one."""
    found = sample(Ensemble(epochs=6, every=2, step=0.05))
    chain = sample(replace(SHORT, temperature=0.0))
    assert torch.equal(found.params[0], chain.params[-1])
    assert (found.params[0] - found.params[1]).norm() > (chain.params[0] - chain.params[-1]).norm()
    assert found.details["temperature"] == 0


def test_chain_at_zero_temperature_is_sgd_with_momentum_on_a_module():
    """The whole way: init, mean loss of the coreset, decay τ/m, no augmentation."""
    coreset = make_coreset()
    posterior = sample(replace(SHORT, temperature=0.0, dsa="off", prior=2.0), coreset=coreset)
    module = _module_at_the_start(posterior)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=2.0 / 6)
    for _ in range(6):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(coreset.inputs), coreset.targets)
        loss.backward()
        optimiser.step()
    found = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(posterior.params[-1], found, rtol=1e-4, atol=1e-5)


def test_reading_by_epochs_is_the_usual_loop_with_a_sample_after_the_first_epoch():
    """SGD with momentum 0.9 and weight decay 5·10⁻⁴; samples after epochs 1, 3, 5, 7."""
    coreset = make_coreset()
    short = SGHMC(epochs=6, every=2, step=0.05, temperature=0.0, dsa="off")
    posterior = sample(named_sampler("paper-epochs", short), coreset=coreset)
    module = _module_at_the_start(posterior)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    found = []
    for epoch in range(7):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(coreset.inputs), coreset.targets).backward()
        optimiser.step()
        if epoch % 2 == 0:
            found.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone())
    torch.testing.assert_close(posterior.params, torch.stack(found), rtol=1e-4, atol=1e-5)
    assert posterior.details["decay"] == 5e-4


def test_reading_by_epochs_keeps_eleven_samples_of_a_thousand_and_one_epochs():
    sampler = named_sampler("paper-epochs")
    assert (sampler.epochs, sampler.every, sampler.first) == (1000, 100, True)
    assert sampler.temperature_for(100) == named_sampler("paper").temperature_for(100)
    assert sampler.decay(10) == sampler.decay(500) == 5e-4
    assert refused(sample, replace(SHORT, first=True, schedule="cosine")) == "first"
    assert len(sample(replace(SHORT, first=True), chains=2)) == 8


def _module_at_the_start(posterior):
    from pseudocoreset.engine.random import Rng

    net, rng = posterior.make_net(), Rng(torch.device("cpu"), 0)
    rng.reseed(0, "chain", 0)
    module = net.build().train()
    torch.nn.utils.vector_to_parameters(net.init(rng.device).params, module.parameters())
    return module


def test_batches_are_of_one_size_and_cover_the_coreset(monkeypatch):
    """6 images in batches of at most 4 are 3 + 3; every image is seen once an epoch."""
    seen, take = [], FixedPoints.__call__

    def recorded(self, state, index):
        seen.append(index.tolist())
        return take(self, state, index)

    monkeypatch.setattr(FixedPoints, "__call__", recorded)
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
    hot = replace(SHORT, epochs=400, every=100, temperature=1.0, dsa="off", friction=0.5)
    details = sample(hot, weight=1.0).details
    assert details["temperature"] == 1.0
    assert details["decay"] == pytest.approx(hot.prior / 6)
    assert len(details["loss_trace"][0]) == 40
    (kinetic,) = details["kinetic_temperature"]
    assert kinetic == pytest.approx(1.0, rel=0.1)


def test_velocities_before_the_first_sample_do_not_count(monkeypatch):
    """The way down from a start far off is fast, whatever the temperature."""
    cold = replace(SHORT, epochs=40, every=20, temperature=1e-6, dsa="off", friction=0.5)
    (kinetic,) = sample(cold).details["kinetic_temperature"]
    monkeypatch.setattr(sampling.Lane, "forget_kinetic", lambda _: None)
    (with_the_way,) = sample(cold).details["kinetic_temperature"]
    assert with_the_way > 2 * kinetic


def test_round_trip(tmp_path):
    posterior = sample()
    posterior.save(tmp_path / "posterior.safetensors")
    loaded = Posterior.load(tmp_path / "posterior.safetensors")
    assert torch.equal(loaded.params, posterior.params)
    assert torch.equal(loaded.buffers, posterior.buffers)
    for name in ("net", "class_names", "scaling", "input_shape", "details", "likelihood"):
        assert getattr(loaded, name) == getattr(posterior, name)
    assert all(isinstance(weights, Weights) for weights in loaded.samples())


def test_round_trip_of_a_regression(tmp_path):
    posterior = sample(coreset=table_coreset(make_table()))
    posterior.save(tmp_path / "posterior.safetensors")
    loaded = Posterior.load(tmp_path / "posterior.safetensors")
    for name in ("net", "class_names", "scaling", "target_scaling", "likelihood", "details"):
        assert getattr(loaded, name) == getattr(posterior, name)
    assert loaded.task == posterior.task == "regression"


def test_coreset_is_no_posterior(tmp_path):
    make_coreset().save(tmp_path / "coreset.safetensors")
    with pytest.raises(UserError, match="holds a coreset"):
        Posterior.load(tmp_path / "coreset.safetensors")


def test_posterior_of_another_network_is_refused(tmp_path):
    sample().save(tmp_path / "posterior.safetensors")
    Posterior.load(tmp_path / "posterior.safetensors", net=NET)
    assert refused(Posterior.load, tmp_path / "posterior.safetensors", net="convnet") == "net"


def test_repr_is_one_line():
    posterior = sample(chains=2)
    assert repr(posterior) == f"Posterior(6 samples of {posterior.net}, 2 chains of sghmc)"


@pytest.mark.parametrize("kind", [SGHMC, SGLD])
@pytest.mark.parametrize(
    ("step", "prior", "epochs"),
    [(1e30, 0.3, 20), (1e38, 1e3, 1)],  # in the second, the loss is of the weights before it
)
def test_chain_that_diverges_is_refused(kind, step, prior, epochs):
    sampler = kind(step=step, temperature=1.0, prior=prior, epochs=epochs, every=epochs)
    assert refused(sample, sampler, weight=1.0) == "step"


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (SGHMC, {"friction": 0.0}),
        (SGHMC, {"friction": 1.5}),
        (SGHMC, {"temperature": -1.0}),
        (SGLD, {"temperature": float("inf")}),
        (Ensemble, {"step": 0.0}),
        (SGHMC, {"step": float("nan")}),
        (SGLD, {"prior": -0.1}),
        (SGHMC, {"prior": float("nan")}),
        (SGHMC, {"dsa": "crop"}),
    ],
)
def test_value_outside_its_limits_is_refused(kind, changes):
    assert refused(kind, **changes) == next(iter(changes))


def test_number_of_chains_and_weight_are_checked():
    for name, values in {"chains": [0, -1], "weight": [0.0, -1.0, float("nan")]}.items():
        for value in values:
            assert refused(sample, **{name: value}) == name
    assert refused(sample, "cold") == "sampler"


def test_named_protocols_are_samplers():
    assert named_sampler("tuned") == SGHMC()
    paper, bayes = named_sampler("paper"), named_sampler("bayes")
    assert (paper.temperature, paper.prior) == (None, 0.0)
    assert (bayes.temperature, bayes.prior) == (1.0, 1.0)
    short = SGHMC(epochs=6, every=2, step=0.05)
    found = sample(named_sampler("paper", short)).params
    assert torch.equal(found, sample(replace(short, temperature=None, prior=0.0)).params)


# How often each point counts.


def test_weight_is_the_same_as_repeating_the_points():
    """The whole way, with the same random numbers: 6 points that count 3 times are 18."""
    one = make_coreset()
    thrice = replace(one, inputs=one.inputs.repeat(3, 1, 1, 1), targets=one.targets.repeat(3))
    sampler = replace(SHORT, dsa="off", temperature=0.5)
    weighted, repeated, alone = (
        sample(sampler, coreset=coreset, weight=weight)
        for coreset, weight in ((one, 3.0), (thrice, 1.0), (one, 1.0))
    )
    for name in ("decay", "temperature"):
        assert weighted.details[name] == repeated.details[name]
    torch.testing.assert_close(weighted.params, repeated.params, rtol=1e-3, atol=1e-5)
    assert (weighted.params - alone.params).abs().max() > 1e-2


def test_coreset_counts_as_the_data_in_the_protocol_bayes():
    coreset = make_coreset(num_train=60)
    assert full_weight(coreset) == PointWeights(10.0)
    for protocol, weight in [("bayes", 10.0), ("tuned", 1.0), ("paper", 1.0)]:
        work = chains_for(coreset, protocol, 1, None)
        assert (work.weight, work.sampler) == (PointWeights(weight), named_sampler(protocol))
        assert chains_for(coreset, protocol, 1, 2.5).weight == PointWeights(2.5)
    assert chains_for(coreset, SHORT, 1, None).weight == PointWeights(1.0)


def test_weight_counts_the_points_that_are_seen():
    from pseudocoreset.forms import Mosaic

    mosaic = replace(make_coreset(), form=Mosaic(2))
    assert mosaic.num_seen == 24
    assert full_weight(mosaic) == PointWeights(60 / 24)


def test_coreset_that_does_not_know_its_data_needs_a_weight():
    unknown = make_coreset(num_train=None)
    assert refused(chains_for, unknown, "bayes", 1, None) == "weight"
    assert chains_for(unknown, "bayes", 1, 7.0).weight == PointWeights(7.0)
    assert chains_for(unknown, "tuned", 1, None).weight == PointWeights(1.0)


# Regression, and samplers of a person's own.


def table_coreset(table, number=5, noise=0.5):
    inputs, targets = (part[:number] for part in make_points(table))
    made = Provenance("random", "mlp", table.name, table.fingerprint, 0, 0, num_train=60)
    return Pseudocoreset(
        inputs,
        targets,
        (),
        table.scaling,
        "off",
        made,
        likelihood=Gaussian(2, noise),
        target_scaling=table.target_scaling,
    )


def test_chain_of_a_regression_descends_the_gaussian_loss():
    """At T = 0, SGD with momentum on ½ mean ‖f − y‖²/σ²; a weight changes the decay alone."""
    coreset = table_coreset(make_table())
    sampler = replace(SHORT, temperature=0.0, step=0.02, prior=2.0)
    posterior = sample(sampler, coreset=coreset, weight=4.0)
    module = _module_at_the_start(posterior)
    rate = 0.02 * 0.5**2  # steps shrink with the noise, 0.5 here
    optimiser = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9, weight_decay=2 / 20)
    for _ in range(6):
        optimiser.zero_grad()
        (0.5 * ((module(coreset.inputs) - coreset.targets) / 0.5).square().sum(1)).mean().backward()
        optimiser.step()
    found = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(posterior.params[-1], found, rtol=1e-4, atol=1e-5)


class OneNumber(nn.Module):
    """θ for every row: what is sampled is the mean of a Gaussian."""

    def __init__(self, features, outputs):  # noqa: ARG002
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(outputs))

    def forward(self, inputs):
        return self.theta.expand(len(inputs), -1)


@pytest.mark.parametrize("weight", [1.0, 8.0])
def test_samples_have_the_moments_of_a_gaussian_mean(weight):
    """Precision τ + wm/σ², through coreset, network, likelihood and chain; 500 θ side by side."""
    targets = torch.randn(4, 500, generator=torch.Generator().manual_seed(0))
    coreset = replace(
        table_coreset(make_table(), number=4),
        targets=targets,
        likelihood=Gaussian(500, 0.5),
        target_scaling=None,
    )
    sampler = SGHMC(step=0.02, friction=0.3, temperature=1.0, prior=3.0, epochs=600, every=50)
    found = sample(sampler, coreset=coreset, net=OneNumber, weight=weight).params[4:]
    precision = 3.0 + weight * 4 / 0.25
    away = found - weight * targets.sum(0) / 0.25 / precision
    assert float(away.mean()) == pytest.approx(0, abs=0.06 / precision**0.5)
    assert float(away.square().mean()) == pytest.approx(1 / precision, rel=0.08)


@dataclass(frozen=True)
class Cooling(Sampler):
    """A sampler of a person's own."""

    name: ClassVar[str] = ""

    def rule(self, points, weight):
        return SGLDRule(self.step, 0.0, self.decay(points * weight), points * weight)


def test_own_sampler_is_used_like_any():
    own = sample(Cooling(epochs=6, every=2, step=0.05))
    theirs = sample(SGLD(epochs=6, every=2, step=0.05, temperature=0.0))
    assert torch.equal(own.params, theirs.params)
    assert own.details["protocol"]["sampler"] == sampler_name(Cooling())
    assert sampler_class("sgld") is SGLD
    for name in ("nuts", "test_samplers:run_chains", "no_such_module:Class"):
        assert refused(sampler_class, name) == "sampler"


def test_seeds_together_are_the_seeds_alone():
    together = sample_seeds([3, 1])
    for seed, posterior in zip((3, 1), together, strict=True):
        alone = sample(seed=seed)
        assert torch.equal(posterior.params, alone.params)
        assert posterior.details == alone.details
    assert not torch.equal(together[0].params, together[1].params)
