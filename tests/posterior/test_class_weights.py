"""Points that count by class: against plain loops, repeated points and a known posterior."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oracles.chains import logistic_moments
from oracles.last_layer import regressors, soft_targets
from pseudocoreset import SGHMC, SGLD, Ensemble, LastLayer, Pseudocoreset, Sampler, UserError
from pseudocoreset.coreset import Provenance, whole_data
from pseudocoreset.data import Scaling
from pseudocoreset.forms import Mosaic
from pseudocoreset.posterior import sample as pc_sample
from pseudocoreset.posterior.lane import Chains, Lane
from pseudocoreset.posterior.sample import chains_for
from pseudocoreset.posterior.weight import PointWeights, full_weight
from small_world import NET, make_data, make_points

COUNTS = [2, 4, 6]
"""Training points of each class; the coreset has 2 of each."""
STEP, PRIOR = 0.05, 2.0
ONE_STEP = {"epochs": 1, "every": 1, "step": STEP, "prior": PRIOR, "dsa": "off"}


def make_coreset(soft=False, counts=COUNTS, **changes):
    data = make_data()
    images, labels = make_points(data, soft=soft)
    if soft:  # more of the first class than there are points of it
        labels = 0.6 * labels + 0.4 * torch.tensor([0.7, 0.2, 0.1])
    made = Provenance("random", NET, data.name, "", 0, 0)
    made = replace(made, num_train=sum(counts) or None, class_counts=counts)
    coreset = Pseudocoreset(images, labels, data.class_names, data.scaling, "crop", made)
    return replace(coreset, **changes)


def sample(coreset, sampler, weight=None, **named):
    weight = full_weight(coreset) if weight is None else weight
    named = {"chains": 1, "device": "cpu", "progress": False} | named
    return pc_sample(coreset, sampler, weight=weight, **named)


def plain_weights(coreset, counts=COUNTS):
    """w_i, one point after another."""
    n, m = sum(counts), coreset.num_seen
    if coreset.targets.is_floating_point():
        rows = coreset.targets.tolist()
        sizes = [sum(p * n_c for p, n_c in zip(row, counts, strict=True)) for row in rows]
        return [n * size / sum(sizes) for size in sizes]
    classes = coreset.seen_targets.tolist()
    assert len(classes) == m
    return [counts[c] / classes.count(c) for c in classes]


# How often each point counts.


def test_point_counts_by_its_class():
    coreset = make_coreset()
    weight = full_weight(coreset)
    assert weight == PointWeights(12 / 6, (1.0, 2.0, 3.0))
    expected = torch.tensor(plain_weights(coreset))
    assert expected.tolist() == [1, 2, 3, 1, 2, 3]
    torch.testing.assert_close(weight.mean * weight.shares(coreset), expected)
    assert weight.as_json() == {"weight": 2.0, "class_weights": [1.0, 2.0, 3.0]}


def test_coreset_may_have_more_points_of_one_class():
    coreset = make_coreset(counts=[6, 3, 3], targets=torch.tensor([0, 0, 0, 1, 1, 2]))
    assert full_weight(coreset) == PointWeights(2.0, (2.0, 1.5, 3.0))
    shares = full_weight(coreset).shares(coreset)
    torch.testing.assert_close(2 * shares, torch.tensor([2, 2, 2, 1.5, 1.5, 3]))


def test_points_of_a_mosaic_count_less():
    coreset = make_coreset(form=Mosaic(2))
    weight = full_weight(coreset)
    assert weight == PointWeights(12 / 24, (0.25, 0.5, 0.75))
    expected = torch.tensor(plain_weights(coreset))
    torch.testing.assert_close(weight.mean * weight.shares(coreset), expected)


def test_soft_label_counts_by_the_mean_size_of_its_classes():
    coreset = make_coreset(soft=True)
    weight = full_weight(coreset)
    found = weight.mean * weight.shares(coreset)
    torch.testing.assert_close(found, torch.tensor(plain_weights(coreset)))
    assert float(found.sum()) == pytest.approx(12)
    assert found.argsort()[:2].sort().values.tolist() == [0, 3]  # mostly of the smallest class


@pytest.mark.parametrize("soft", [True, False])
def test_classes_of_equal_ratios_count_as_one_number(soft):
    """Also where the probabilities of soft labels are not spread evenly over the classes."""
    coreset = make_coreset(soft, counts=[7, 7, 7])
    assert full_weight(coreset) == PointWeights(21 / 6)
    assert full_weight(coreset).shares(coreset) is None
    assert full_weight(coreset).as_json() == {"weight": 21 / 6}
    uneven = make_coreset(counts=[3, 2, 1], targets=torch.tensor([0, 0, 0, 1, 1, 2]))
    assert full_weight(uneven) == PointWeights(1.0)


def test_file_without_class_counts_counts_as_one_number():
    coreset = make_coreset()
    old = replace(coreset, provenance=replace(coreset.provenance, class_counts=[]))
    assert full_weight(old) == PointWeights(2.0)


def test_number_is_the_same_for_all_points():
    coreset = make_coreset()
    assert chains_for(coreset, "bayes", 1, 3.0).weight == PointWeights(3.0)
    assert chains_for(coreset, "bayes", 1, None).weight == full_weight(coreset)
    assert chains_for(coreset, "tuned", 1, None).weight == PointWeights(1.0)


def test_whole_data_count_once():
    data = make_data()
    rare = data.train.take((data.train.targets != 1).nonzero().squeeze(1)[:25])
    whole = whole_data(replace(data, train=rare), NET)
    assert sorted(whole.provenance.class_counts) == [0, 12, 13]
    assert full_weight(whole) == PointWeights(1.0)


def test_classes_without_points_are_left_out():
    missing = make_coreset(targets=torch.tensor([0, 0, 0, 1, 1, 1]))
    shares = full_weight(missing).shares(missing)
    assert float(shares.sum()) == pytest.approx(6)  # together they count 12 times all the same
    assert float(shares[3] / shares[0]) == pytest.approx(2)
    one_hot = F.one_hot(torch.zeros(6, dtype=torch.int64), 3).float()
    empty = make_coreset(counts=[0, 6, 6], targets=one_hot)
    with pytest.raises(UserError, match="training points") as refused:
        sample(empty, SGHMC(**ONE_STEP))
    assert refused.value.parameter == "weight"


# The force, by plain loops.


def module_at(net, params):
    module = net.build()
    nn.utils.vector_to_parameters(params.clone(), module.parameters())
    return module.train()


def force(coreset, net, params, counts=COUNTS):
    """∇U/n with U = Σ_i w_i loss_i + τ/2 ‖θ‖², a point after another."""
    module = module_at(net, params).double()
    total = PRIOR / 2 * sum(each.square().sum() for each in module.parameters())
    pairs = zip(coreset.seen_inputs, coreset.seen_targets, strict=True)
    for (x, y), weight in zip(pairs, plain_weights(coreset, counts), strict=True):
        target = y if y.ndim else F.one_hot(y, 3)
        total = total - weight * (target * module(x[None].double()).log_softmax(1)).sum()
    (total / sum(counts)).backward()
    return torch.cat([each.grad.flatten() for each in module.parameters()]).float()


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", [SGHMC, SGLD, Ensemble])
def test_step_is_along_the_gradient_of_the_weighted_potential(kind, soft):
    coreset = make_coreset(soft)
    cold = {} if kind is Ensemble else {"temperature": 0.0}
    posterior = sample(coreset, kind(**ONE_STEP, **cold))
    net = posterior.make_net()
    lane = Lane(net, coreset, chains_for(coreset, "bayes", 1, None), torch.device("cpu"))
    lane.begin(0, 0)
    start = lane.weights().params
    found = (start - posterior.params[0]) / STEP
    torch.testing.assert_close(found, force(coreset, net, start), rtol=1e-3, atol=1e-5)
    one_number = (start - sample(coreset, kind(**ONE_STEP, **cold), 2.0).params[0]) / STEP
    assert float((found - one_number).abs().max()) > 1e-2


@dataclass(frozen=True)
class Standing(Sampler):
    """Adds up the gradients of a chain that stays where it is."""

    name: ClassVar[str] = ""

    def rule(self, points, weight):  # noqa: ARG002
        return _Sum()


class _Sum:
    def slots(self, params):
        return {"total": torch.zeros_like(params)}

    def draw(self, params, generator):  # noqa: ARG002
        return {}

    def update(self, state, gradient):
        return {"params": state["params"].clone(), "total": state["total"] + gradient}


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_gradients_of_mini_batches_average_to_the_whole_one(batch, soft):
    coreset = make_coreset(soft)
    net = coreset.make_net()
    found = []
    for size in (batch, 6):
        sampler = Standing(dsa="off", batch=size)
        lane = Lane(net, coreset, Chains(sampler, 1, full_weight(coreset)), torch.device("cpu"))
        lane.begin(0, 0)
        lane.go(1)
        found.append(lane._training.state["total"] * size / 6)
        start = lane.weights().params
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
    exact = force(coreset, net, start) - PRIOR / sum(COUNTS) * start
    torch.testing.assert_close(found[0], exact, rtol=1e-3, atol=1e-5)


# The whole way.


@pytest.mark.parametrize("kind", [SGHMC, SGLD, Ensemble])
def test_weights_are_the_same_as_repeating_points_by_class(kind):
    """With the same random numbers: classes of 2 points that count 1, 2 and 3 times."""
    coreset = make_coreset()
    index = [i for i, c in enumerate(coreset.targets.tolist()) for _ in range(c + 1)]
    repeated = make_coreset(inputs=coreset.inputs[index], targets=coreset.targets[index])
    assert full_weight(repeated) == PointWeights(1.0)
    sampler = kind(epochs=6, every=2, step=0.05, dsa="off")
    weighted, plain, one_number = (
        sample(each, sampler, weight)
        for each, weight in ((coreset, None), (repeated, None), (coreset, 2.0))
    )
    assert weighted.details["decay"] == plain.details["decay"]
    assert weighted.details["protocol"]["class_weights"] == [1.0, 2.0, 3.0]
    torch.testing.assert_close(weighted.params, plain.params, rtol=1e-3, atol=1e-5)
    assert float((weighted.params - one_number.params).abs().max()) > 1e-3


def test_last_layers_have_the_moments_of_the_weighted_posterior():
    """The precision of point i is w_i β."""
    coreset = make_coreset()
    sampler = LastLayer(epochs=1, every=1, step=0.05, heads=3_000, head_prior=0.5, dsa="off")
    posterior = sample(coreset, replace(sampler, head_precision=2.0))
    net, weights = posterior.make_net(), next(iter(posterior.samples()))
    phi = regressors(net.features(weights, coreset.inputs).double())
    targets = soft_targets(coreset.targets, 3)
    each = 2.0 * torch.diag(torch.tensor(plain_weights(coreset)).double())
    covariance = torch.linalg.inv(0.5 * torch.eye(phi.shape[1]) + phi.T @ each @ phi)
    outputs = posterior.outputs(coreset.inputs, scaling=None).double()
    mean = phi @ covariance @ phi.T @ each @ targets
    variance = (phi @ covariance @ phi.T).diag()
    torch.testing.assert_close(outputs.mean(0), mean, rtol=0, atol=0.1)
    spread = outputs.var(0)
    torch.testing.assert_close(spread, variance[:, None].expand_as(spread), rtol=0.15, atol=0)


class Intercepts(nn.Module):
    """The same logits for every row: its posterior depends on the numbers per class alone."""

    def __init__(self, features, outputs):  # noqa: ARG002
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(outputs))

    def forward(self, inputs):
        return self.theta.expand(len(inputs), -1)


def two_classes(targets, num_train, class_counts):
    made = Provenance("random", "own", "made", "", 0, 0)
    made = replace(made, num_train=num_train, class_counts=class_counts)
    inputs, scaling = torch.zeros(len(targets), 2), Scaling((0.0, 0.0), (1.0, 1.0))
    return Pseudocoreset(inputs, torch.tensor(targets), ("a", "b"), scaling, "off", made)


def test_posterior_of_intercepts_is_that_of_the_data():
    """30 training points of one class and 6 of the other; the coreset has 2 of each."""
    coreset = two_classes([0, 0, 1, 1], 36, [30, 6])
    everything = two_classes([0] * 30 + [1] * 6, 36, [30, 6])
    sampler = SGHMC(step=0.3, friction=0.5, temperature=1.0, prior=1.0, epochs=4000, every=10)
    first = replace(sampler, epochs=50)
    mine, theirs = (sample(each, first, net=Intercepts) for each in (coreset, everything))
    torch.testing.assert_close(mine.params, theirs.params, rtol=1e-4, atol=1e-5)

    theta = sample(coreset, sampler, net=Intercepts).params[20:].double()
    signs = torch.tensor([1.0] * 30 + [-1.0] * 6, dtype=torch.float64)
    inputs = torch.tensor([[1.0, -1.0]], dtype=torch.float64).expand(36, 2)
    mean, covariance = logistic_moments(inputs, signs, 1.0, 1.0)
    logit = torch.tensor([1.0, -1.0], dtype=torch.float64)
    expected, spread = float(mean @ logit), float(logit @ covariance @ logit) ** 0.5
    found = theta @ logit
    assert expected > 3 * spread  # with one weight for all points it would be 0
    assert float(found.mean()) == pytest.approx(expected, abs=0.2 * spread)
    assert float(found.std()) == pytest.approx(spread, rel=0.15)
