"""`compare` against plain loops; what it takes and refuses."""

import json
from inspect import unwrap

import pytest
import torch

from oracles import compare as oracle
from pseudocoreset import SGHMC, UserError, compare, distill, evaluate, sample
from pseudocoreset.coreset import whole_data
from pseudocoreset.evaluation.compare import between_chains, distances, variance_ratio
from pseudocoreset.evaluation.metrics import Predicted, PredictedNumbers
from pseudocoreset.posterior import Ensemble
from pseudocoreset.posterior.protocols import PROTOCOLS
from small_world import NET

SHORT = SGHMC(epochs=30, every=10, step=0.05)
QUIET = {"device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def coreset(data):
    return distill(data, (), "random", ipc=2, net=NET, **QUIET)


@pytest.fixture(scope="module")
def posterior(coreset):
    return sample(coreset, SHORT, chains=2, **QUIET)


def made_predictions(samples, seed, points=40, classes=4):
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(points, classes, generator=torch.Generator().manual_seed(9))
    outputs = common + torch.randn(samples, points, classes, generator=generator)
    labels = torch.randint(0, classes, (points,), generator=torch.Generator().manual_seed(8))
    return Predicted(outputs.double().log_softmax(2), labels)


def test_figures_are_those_of_plain_loops():
    a, b = made_predictions(6, 0), made_predictions(9, 1)
    found = distances(a, b)
    for name, value in oracle.comparison(a.log_samples, b.log_samples, a.labels).items():
        assert found[name] == pytest.approx(value, rel=1e-9), name
    ratio = oracle.variance_ratio(a.log_samples.exp(), b.log_samples.exp())
    assert found.variance_ratio == pytest.approx(ratio, rel=1e-9)
    assert distances(b, a).variance_ratio == pytest.approx(1 / ratio, rel=1e-9)
    assert distances(b, a).kl != pytest.approx(found.kl, rel=1e-3)
    assert distances(b, a).total_variation == pytest.approx(found.total_variation)


def test_predictions_are_not_apart_from_themselves():
    a = made_predictions(5, 0)
    found = distances(a, a)
    assert found.agreement == found.agreement_on_errors == 1
    assert found.total_variation == found.kl == 0
    assert found.variance_ratio == 1
    right = Predicted(a.log_samples, a.log_mean.argmax(1))
    assert distances(a, right).agreement_on_errors is None


def test_share_between_chains_is_that_of_plain_loops():
    values = made_predictions(12, 0).log_samples.exp()
    values[:4] *= 0.5  # a chain that is elsewhere
    found = between_chains(values, 3)
    assert found == pytest.approx(oracle.between_chains(values, 3), rel=1e-9)
    assert between_chains(values, 1) is None
    assert between_chains(values, 12) is None
    still = values[:1].expand(12, -1, -1)
    assert between_chains(still, 3) is None
    apart = torch.arange(3.0).repeat_interleave(4)[:, None, None].expand(12, 5, 2).double()
    assert between_chains(apart, 3) == pytest.approx(1)


def test_variance_ratio_leaves_out_what_does_not_vary():
    values = torch.randn(4, 3, 2, dtype=torch.float64)
    other = values * 2
    other[:, 1] = 0.5
    assert variance_ratio(values, other) == pytest.approx(0.25)
    assert variance_ratio(values[:1], other) is None


def test_regression_is_compared_by_means_and_variances():
    generator = torch.Generator().manual_seed(0)
    targets = torch.zeros(5, 2, dtype=torch.float64)
    noises = torch.tensor([[0.5, 1.0], [0.8, 0.7]], dtype=torch.float64)
    samples = torch.randn(2, 7, 5, 2, generator=generator, dtype=torch.float64)
    a, b = (PredictedNumbers(s, n, targets) for s, n in zip(samples, noises, strict=True))
    found = distances(a, b)
    squares, divergence = 0.0, 0.0
    for n in range(5):
        for k in range(2):
            moments = [
                torch.distributions.Normal(
                    each.samples[:, n, k].mean(),
                    (oracle.variance(each.samples[:, n, k].tolist()) + float(each.noise[k] ** 2))
                    ** 0.5,
                )
                for each in (a, b)
            ]
            squares += float((moments[0].mean - moments[1].mean) ** 2) / 10
            divergence += float(torch.distributions.kl_divergence(*moments)) / 5
    assert found.rmse == pytest.approx(squares**0.5, rel=1e-9)
    assert found.kl == pytest.approx(divergence, rel=1e-9)
    assert found.variance_ratio == pytest.approx(oracle.variance_ratio(*samples), rel=1e-9)
    same = distances(a, a)
    assert same.rmse == same.kl == 0


def test_a_posterior_and_itself_agree_and_keep_their_scores(posterior, data):
    found = compare(posterior, posterior, data, **QUIET)
    assert (found.agreement, found.total_variation, found.kl) == (1, 0, 0)
    assert found.a == found.b
    whole = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert {"agreement", "total_variation", "kl", "a", "b"} <= whole.keys()
    assert whole["a"]["accuracy"] == evaluate(posterior, data, **QUIET).accuracy
    outputs = posterior.outputs(data.test.inputs, scaling=posterior.scaling).double()
    samples = outputs.log_softmax(2)
    information = oracle.mutual_information(samples)
    assert found.a["mutual_information"] == pytest.approx(information, rel=1e-5)
    share = oracle.between_chains(samples.exp(), 2)
    assert found.a["between_chains"] == pytest.approx(share, rel=1e-5)
    assert repr(found) == "agreement 1.0000, total_variation 0.0000, kl 0.0000"


def test_coreset_and_full_data_are_sampled_with_seeds_of_their_own(
    coreset, posterior, data, monkeypatch
):
    found = compare(coreset, "full", data, SHORT, chains=2, weight=3.0, seed=0, **QUIET)
    mine = sample(coreset, SHORT, chains=2, weight=3.0, seed=0, **QUIET)
    full = sample(whole_data(data, NET), SHORT, chains=2, weight=1.0, seed=1, **QUIET)
    assert found.figures == compare(mine, full, data, **QUIET).figures
    assert (found.a["protocol"]["weight"], found.b["protocol"]["weight"]) == (3.0, 1.0)
    assert found.b["coreset"]["images"] == len(data.train)
    assert found.b["net"] == found.a["net"] == posterior.net
    twice = compare(coreset, coreset, data, SHORT, chains=1, **QUIET)
    assert twice.total_variation > 0
    short = {**PROTOCOLS["bayes"], "epochs": 20, "every": 10}
    monkeypatch.setitem(PROTOCOLS, "bayes", short)
    bayes = compare(coreset, "full", data, "bayes", chains=1, **QUIET)
    weights = [each["protocol"]["weight"] for each in (bayes.a, bayes.b)]
    assert weights == [len(data.train) / len(coreset), 1.0]


def test_networks_of_an_ensemble_are_no_chains(coreset, data):
    found = compare(coreset, coreset, data, Ensemble(epochs=20, every=10), chains=1, **QUIET)
    assert found.a["samples"] == 2
    assert found.a["between_chains"] is None


def test_compare_knows_regression(table):
    net = "mlp:depth=1,width=8"
    coreset = distill(table, (), "random", ipc=6, net=net, target_noise=0.3, **QUIET)
    short = SGHMC(epochs=20, every=10)
    found = compare(coreset, "full", table, short, chains=2, **QUIET)
    assert found.rmse > 0
    assert found.kl > 0
    assert found.a["rmse"] > 0
    assert "mutual_information" not in found.a
    with pytest.raises(AttributeError):
        found.agreement  # noqa: B018
    with pytest.raises(UserError, match="noise"):
        compare("full", "full", table, short, net=net, **QUIET)


def test_compare_refuses_what_it_can_not_compare(posterior, coreset, data, table):
    for a, b, parameter in (
        ("nowhere", posterior, "a"),
        (posterior, 3, "b"),
        ("full", "full", "net"),
    ):
        with pytest.raises(UserError) as caught:
            unwrap(compare)(a, b, data, **QUIET)
        assert caught.value.parameter == parameter
    with pytest.raises(UserError, match="already"):
        compare(posterior, posterior, data, "bayes", **QUIET)
    with pytest.raises(UserError, match="task"):
        compare(posterior, coreset, table, **QUIET)
