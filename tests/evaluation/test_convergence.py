"""R̂ and effective sample size beside ArviZ's, and what an evaluation says of them."""

from dataclasses import replace

import numpy
import pytest
import torch
from arviz_stats.base import array_stats

from pseudocoreset import SGHMC, distill, evaluate, sample
from pseudocoreset.evaluation.convergence import (
    convergence,
    effective_size,
    r_hat,
    share_by_chance,
    warning_of,
)
from pseudocoreset.evaluation.evaluate import predictions
from pseudocoreset.evaluation.metrics import risk_and_coverage
from pseudocoreset.posterior import Ensemble
from small_world import NET

QUIET = {"device": "cpu", "progress": False}


def autoregressive(chains, length, keep, shift, seed=0, ties=False):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(chains, length, generator=generator, dtype=torch.float64)
    found = noise.clone()
    for place in range(1, length):
        found[:, place] = keep * found[:, place - 1] + noise[:, place]
    found += shift * torch.arange(chains)[:, None]
    return (found * 2).round() if ties else found


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("length", [4, 5, 7, 10, 11, 101])
@pytest.mark.parametrize(("keep", "shift"), [(0, 0), (0.9, 0), (0.5, 1.5), (-0.7, 0), (0.98, 3)])
def test_figures_are_those_of_arviz(length, keep, shift, ties):
    made = [autoregressive(4, length, keep, shift, seed, ties) for seed in range(8)]
    mine = (r_hat(torch.stack(made, 2)), effective_size(torch.stack(made, 2)))
    for place, each in enumerate(made):
        theirs = each.numpy()
        assert float(mine[0][place]) == pytest.approx(
            float(array_stats.rhat(theirs, chain_axis=0, draw_axis=1)), rel=1e-6
        )
        assert float(mine[1][place]) == pytest.approx(
            float(array_stats.ess(theirs, chain_axis=0, draw_axis=1, method="bulk")), rel=1e-6
        )


def test_chains_that_differ_in_their_spread_alone_are_seen():
    draws = autoregressive(4, 200, 0, 0)
    draws[0] *= 6
    assert float(r_hat(draws[..., None])) > 1.1
    assert float(r_hat(autoregressive(4, 200, 0, 0)[..., None])) < 1.02


def test_draws_that_never_move_have_no_r_hat():
    draws = torch.full((2, 6, 1), 0.25, dtype=torch.float64)
    assert numpy.isnan(float(r_hat(draws)))
    assert numpy.isnan(float(effective_size(draws)))


@pytest.fixture(scope="module")
def coreset(data):
    return distill(data, (), "random", ipc=2, net=NET, **QUIET)


def test_an_evaluation_tells_what_its_chains_say(coreset, data):
    sampler = SGHMC(epochs=60, every=10, step=0.05)
    found = evaluate(coreset, data, sampler, seeds=2, chains=2, **QUIET).as_json()["convergence"]
    posteriors = [sample(coreset, sampler, chains=2, seed=seed, **QUIET) for seed in (0, 1)]
    draws = numpy.concatenate(
        [
            each.outputs(data.test.inputs, scaling=each.scaling)
            .softmax(2)[:, range(30), data.test.targets]
            .reshape(2, 6, 30)
            .double()
            .numpy()
            for each in posteriors
        ]
    )
    expected = array_stats.rhat(draws, chain_axis=0, draw_axis=1)
    assert (found["chains"], found["draws"], found["points"]) == (4, 6, 30)
    assert found["r_hat"]["largest"] == pytest.approx(expected.max(), rel=1e-4)
    assert found["r_hat"]["median"] == pytest.approx(numpy.median(expected), rel=1e-4)
    assert found["r_hat"]["share_above_1.1"] == pytest.approx((expected > 1.1).mean())
    worst = draws[:, :, expected.argmax()]
    numpy.testing.assert_allclose(found["traces"]["worst"], worst, rtol=1e-5)
    losses = numpy.array([t for each in posteriors for t in each.details["loss_trace"]])[:, 10:]
    assert losses.shape == (4, 50)
    assert found["loss"]["r_hat"] == pytest.approx(
        float(array_stats.rhat(losses, chain_axis=0, draw_axis=1)), rel=1e-6
    )
    by_chance = share_by_chance(4, 6)
    assert found["r_hat"]["share_by_chance"] == by_chance
    assert found["warning"] == warning_of((expected > 1.1).mean(), by_chance, 4)


@pytest.mark.parametrize("sampler", [Ensemble(epochs=40, every=10), SGHMC(epochs=30, every=10)])
def test_networks_without_chains_or_with_few_draws_say_nothing(coreset, data, sampler):
    assert evaluate(coreset, data, sampler, seeds=1, **QUIET).as_json()["convergence"] is None


@pytest.mark.parametrize("trace", [[], [[1.0] * 6, [1.0]], [["a"] * 6], [[None] * 6]])
def test_a_damaged_trace_gives_no_figures_of_the_loss(coreset, data, trace):
    posterior = sample(coreset, SGHMC(epochs=60, every=10), chains=1, **QUIET)
    posterior = replace(posterior, details={**posterior.details, "loss_trace": trace})
    outputs = posterior.outputs(data.test.inputs, scaling=posterior.scaling)
    found = convergence([posterior], predictions(posterior, outputs, data.test.targets))
    assert found is None or found["loss"] is None


def test_words_are_for_chains_that_disagree():
    assert warning_of(0.04, 0.0, 4) == ""
    assert "40% of the predictions. The" in warning_of(0.4, 0.0, 4)
    assert "40% of the predictions (of independent draws, 15%)." in warning_of(0.4, 0.15, 4)
    assert warning_of(0.27, 0.15, 4) == ""
    assert "not settled" in warning_of(0.4, 0.0, 1)


@pytest.mark.parametrize(("chains", "length"), [(1, 10), (4, 4), (4, 10), (4, 100)])
def test_few_draws_that_are_independent_give_no_warning(chains, length):
    made = [autoregressive(chains, length, 0, 0, seed)[..., None] for seed in range(1, 401)]
    share = numpy.mean([float(r_hat(each)) > 1.1 for each in made])
    expected = share_by_chance(chains, length)
    assert share == pytest.approx(expected, abs=0.05)
    assert warning_of(share, expected, chains) == ""
    assert (expected > 0.1) == (length < 100)


def test_regression_has_figures_of_its_numbers(table):
    made = distill(table, (), "random", ipc=5, net="mlp:width=8", target_noise=0.5, **QUIET)
    sampler = SGHMC(epochs=80, every=10)
    found = evaluate(made, table, sampler, seeds=2, **QUIET).as_json()["convergence"]
    assert (found["chains"], found["draws"]) == (2, 8)
    assert found["quantities"] == 2 * found["points"] == 2 * len(table.test)


def test_accuracy_by_the_share_kept_is_that_of_the_most_confident():
    probs = torch.tensor([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.45, 0.55]]).double()
    found = risk_and_coverage(probs, torch.tensor([1, 0, 1, 1]), steps=4)
    assert found == {"kept": [0.25, 0.5, 0.75, 1.0], "accuracy": [1, 1, 2 / 3, 0.75]}


def test_evaluation_ends_its_curve_at_the_pooled_accuracy(coreset, data):
    found = evaluate(coreset, data, SGHMC(epochs=20, every=10), seeds=2, **QUIET).as_json()
    assert found["selective"]["kept"][-1] == 1
    assert found["selective"]["accuracy"][-1] == pytest.approx(found["pooled"]["accuracy"])
