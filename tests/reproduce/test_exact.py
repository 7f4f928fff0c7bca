"""`reproduce exact`, tiny; and what it is built of, against closed forms."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from arviz_stats.base import array_stats

from oracles.chains import logistic_moments
from oracles.linear_gaussian import Gaussian, kl, posterior, weighted_posterior
from pseudocoreset.cli import main
from pseudocoreset.methods import Points
from pseudocoreset.reproduce.exact import logistic, measure, show
from pseudocoreset.reproduce.exact.hmc import at, hmc_step, split_r_hat
from pseudocoreset.reproduce.exact.linear import LinearTruth
from pseudocoreset.reproduce.exact.logistic import (
    LogisticTruth,
    Model,
    Sampled,
    Sampling,
    sampled,
)
from pseudocoreset.reproduce.exact.moments import (
    Moments,
    linear_posterior,
    lowest_kl,
    mmd,
    sample_moments,
)
from pseudocoreset.reproduce.exact.moments import kl as moments_kl
from pseudocoreset.reproduce.exact.problems import gaussian_mean, linear_regression


def test_posterior_and_kl_are_those_of_the_oracle():
    generator = torch.Generator().manual_seed(0)
    phi, y = (torch.randn(5, k, generator=generator, dtype=torch.float64) for k in (3, 1))
    found = linear_posterior(phi, y, weight=4.0, prior=2.0, noise=0.5)
    exact = weighted_posterior(phi, y[:, 0], 4.0, 2.0, 0.25)
    torch.testing.assert_close(found.mean[:, 0], exact.mean)
    torch.testing.assert_close(found.covariance, exact.covariance)
    x = torch.tensor([0.3, -1.0, 2.0]).double()
    other: Gaussian = posterior(x, x.square())
    theirs = Moments(other.mean[:, None], other.covariance)
    torch.testing.assert_close(moments_kl(found, theirs), kl(exact, other))
    assert float(moments_kl(found, found)) == pytest.approx(0, abs=1e-12)


def test_mmd_is_that_of_plain_loops():
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (4, 3))
    covariance = torch.tensor([[4.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    inverse = covariance.inverse()

    def kernel(a, b):
        return float(torch.exp(-(a - b) @ inverse @ (a - b) / 4))  # 2 dimensions

    def among(each):
        pairs = [(a, b) for a in range(len(each)) for b in range(len(each)) if a != b]
        return sum(kernel(each[a], each[b]) for a, b in pairs) / len(pairs)

    between = sum(kernel(a, b) for a in one for b in other) / 12
    found = mmd(one, other, Moments(torch.zeros(2, 1).double(), covariance))
    assert float(found) == pytest.approx(among(one) + among(other) - 2 * between)


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_largest_r_hat_is_that_of_arviz(shift):
    draws = torch.randn(20, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws[:, 0, 1] += shift
    theirs = [
        array_stats.rhat(draws[..., column].numpy(), chain_axis=1, draw_axis=0, method="split")
        for column in range(3)
    ]
    assert split_r_hat(draws) == pytest.approx(max(map(float, theirs)))


def test_hmc_has_the_moments_of_a_gaussian():
    scale = torch.tensor([1.0, 0.5], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)

    def density(z):
        return -((z - 1) / scale).square().sum(1) / 2

    chains, kept = at(density, torch.zeros(500, 2, dtype=torch.float64)), []
    for step in range(120):
        chains, _ = hmc_step(density, chains, generator, step=0.3)
        kept += [chains.place] if step >= 20 else []
    found = torch.cat(kept)
    torch.testing.assert_close(found.mean(0), torch.ones(2).double(), atol=0.02, rtol=0)
    torch.testing.assert_close(found.std(0), scale, atol=0.02, rtol=0)


def test_hmc_on_a_logistic_regression_has_the_moments_of_a_grid():
    phi = torch.tensor([[1.0, 0.5], [1.0, -1.2], [1.0, 2.0]], dtype=torch.float64)
    signs = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    found = sampled(
        Model(phi, signs, 3.0), Sampling(400, 50, 100), torch.Generator().manual_seed(0)
    )
    mean, covariance = logistic_moments(phi.repeat(3, 1), signs.repeat(3), 1.0, 1.0)
    torch.testing.assert_close(found.moments.mean[:, 0], mean, atol=0.02, rtol=0)
    torch.testing.assert_close(found.moments.covariance, covariance, atol=0.03, rtol=0)
    assert found.r_hat < 1.02


GRID = torch.cartesian_prod(*[torch.linspace(-7, 7, 281, dtype=torch.float64)] * 2)
DATA = Model(
    torch.tensor([[1.0, 0.5], [1.0, -1.2], [1.0, 2.0], [1.0, 0.1]], dtype=torch.float64),
    torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64),
    1.0,
)
SIGNS = torch.tensor([1.0, -1.0], dtype=torch.float64)
PHI = torch.tensor([[1.0, -1.5], [1.0, 1.0]], dtype=torch.float64)  # far from the data


def on_grid(model: Model) -> torch.Tensor:
    """Log-probabilities of the posterior at the points of a grid."""
    return model.log_density(GRID).log_softmax(0)


def drawn_from(model: Model, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return GRID[torch.multinomial(on_grid(model).exp(), number, True, generator=generator)]


def grid_kl(p: torch.Tensor, q: torch.Tensor) -> float:
    return float((p.exp() * (p - q)).sum())


def logistic_truth() -> LogisticTruth:
    """With samples of the data's posterior that come from the grid."""
    truth = object.__new__(LogisticTruth)
    truth._generator = torch.Generator().manual_seed(2)
    samples = drawn_from(DATA, 2000)
    truth._data, truth.moments = DATA, sample_moments(samples)
    truth.reference = Sampled(samples, truth.moments, 1.0, 1.0)
    return truth


@pytest.mark.parametrize(("loss", "forward"), [("_reverse", False), ("_forward", True)])
def test_logistic_losses_have_the_gradient_of_the_kl(loss, forward):
    """Against central differences of the KL on the grid."""

    def distance(phi: torch.Tensor) -> float:
        mine, theirs = on_grid(Model(phi, SIGNS, 2.0)), on_grid(DATA)
        return grid_kl(theirs, mine) if forward else grid_kl(mine, theirs)

    leaf = PHI.clone().requires_grad_()
    model = Model(leaf, SIGNS, 2.0)
    theta = drawn_from(Model(PHI, SIGNS, 2.0), 50_000)
    (found,) = torch.autograd.grad(getattr(logistic_truth(), loss)(model, theta), leaf)
    expected = torch.zeros_like(PHI)
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        step = torch.zeros_like(PHI)
        step[place] = 1e-4
        expected[place] = (distance(PHI + step) - distance(PHI - step)) / 2e-4
    scale = float(expected.abs().max())
    assert scale > 0.05
    torch.testing.assert_close(found, expected, rtol=0, atol=0.1 * scale)


def test_logistic_fbpc_has_the_gradient_of_equation_fbpc_with_fixed_spread():
    """Each side by a fine sum over the function's values; the spread is a constant."""
    truth, theta = logistic_truth(), drawn_from(Model(PHI, SIGNS, 2.0), 5000)
    leaf = PHI.clone().requires_grad_()
    (found,) = torch.autograd.grad(truth._by_moments(Model(leaf, SIGNS, 2.0), theta), leaf)
    nodes = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    shares = (-nodes.square() / 2).softmax(0)

    def loss(phi: torch.Tensor) -> float:
        total = 0.0
        for sign, moments in ((1, truth.moments), (-1, sample_moments(theta))):
            for row, fixed, label in zip(phi, PHI, SIGNS, strict=True):
                spread = (fixed @ moments.covariance @ fixed).sqrt()
                values = row @ moments.mean[:, 0] + nodes * spread
                total += sign * float(shares @ torch.log1p((-label * values).exp()))
        return 2.0 * total

    for place in ((0, 0), (0, 1), (1, 1)):
        step = torch.zeros_like(PHI)
        step[place] = 1e-5
        expected = (loss(PHI + step) - loss(PHI - step)) / 2e-5
        assert float(found[place]) == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_linear_fbpc_has_the_gradient_of_equation_fbpc_with_fixed_means():
    problem = linear_regression(0)
    truth = LinearTruth(problem, torch.Generator())
    start = problem.random_points(3, torch.Generator().manual_seed(0))
    inputs, targets = (part.clone().requires_grad_() for part in start)
    loss = truth.loss("fbpc-moments")(Points(inputs, targets))
    found = torch.autograd.grad(loss, (inputs, targets))
    mine, weight = truth.posterior(start).mean, problem.weight(3)
    away_x = problem.features(start.inputs) @ truth.moments.mean - start.targets
    away_u = problem.features(start.inputs) @ mine - start.targets
    expected = weight * (away_x @ truth.moments.mean.T - away_u @ mine.T)
    assert torch.equal(problem.features(start.inputs)[:, 0], torch.ones(3).double())
    torch.testing.assert_close(found[0], expected[:, 1:])
    torch.testing.assert_close(found[1], weight * (away_u - away_x))


def test_one_point_is_exact_for_a_gaussian_mean():
    problem = gaussian_mean(0, 5, 30)
    train = problem.train
    found = LinearTruth(problem, torch.Generator()).distances(
        Points(train.inputs[:1], train.targets.mean(0, keepdim=True))
    )
    assert found["forward"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("number", [5, 8])
def test_points_of_full_rank_are_exact_for_a_linear_regression(number):
    """φ_u = Q R with RᵀR = (m/n) φᵀφ, a first column of ones, and targets that solve the rest."""
    problem = linear_regression(0, 4, 60)
    train, truth = problem.train, LinearTruth(problem, torch.Generator())
    phi = problem.features(train.inputs)
    root = torch.linalg.cholesky(phi.T @ phi * number / len(phi)).T
    start = torch.randn(number, 5, generator=torch.Generator().manual_seed(1)).double()
    start[:, 0] = 1
    basis, _ = torch.linalg.qr(start)
    mine = basis * basis[0, 0].sign() @ root
    torch.testing.assert_close(mine[:, 0], torch.ones(number).double())
    wanted = number / len(phi) * phi.T @ train.targets
    targets = mine @ torch.linalg.solve(mine.T @ mine, wanted)
    found = truth.distances(Points(mine[:, 1:], targets))
    assert found["forward"] == pytest.approx(0, abs=1e-8)
    assert lowest_kl(truth.moments, 1.0, number)["forward"] == pytest.approx(0, abs=1e-12)
    few = truth.distances(problem.random_points(2, torch.Generator().manual_seed(0)))
    lowest = lowest_kl(truth.moments, 1.0, 2)
    assert all(0 < lowest[way] < few[way] for way in lowest)


def test_command_measures_draws_and_skips(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        measure, "EFFORTS", {n: measure.Effort((2, 4), 3, 0.05, 1) for n in measure.EFFORTS}
    )
    monkeypatch.setattr(measure, "SAMPLING", Sampling(8, 2, 10))
    few = replace(measure.AS_IN_THE_PAPER, from_epoch=1, max_map_steps=5, covariance_steps=2)
    for module in (measure, logistic):
        monkeypatch.setattr(module, "AS_IN_THE_PAPER", few)
    monkeypatch.setattr(measure, "experts_of", partial(measure.experts_of, epochs=2))
    command = ["reproduce", "exact", "--out", str(tmp_path), "--trials", "1"]
    assert main(command) == 0
    assert "FBPC, as in the paper" in capsys.readouterr().out
    for name in measure.EFFORTS:
        path = tmp_path / "exact" / f"{name}.json"
        content = json.loads(path.read_text())
        assert content["trials"][0]["distances"]["2"].keys() == measure.methods_of(name).keys()
    assert (tmp_path / "pictures" / "exact.png").exists()
    assert main(command) == 0
    assert capsys.readouterr().out.count("measured before") == 3
    path = tmp_path / "exact" / "mean.json"
    whole = json.loads(path.read_text())
    partly = json.loads(path.read_text())
    for of_size in partly["trials"][0]["distances"].values():
        del of_size["forward-kl"]
    path.write_text(json.dumps(partly))
    assert main(command) == 0  # what is missing of a trial is measured from the same points
    again = json.loads(path.read_text())
    assert again["trials"][0]["distances"] == whole["trials"][0]["distances"]
    assert main([*command, "--list"]) == 0
    assert "linear: 1 trials measured" in capsys.readouterr().out


def test_page_has_the_medians_of_the_table_and_says_where_trials_are_missing(monkeypatch):
    def trial(number: float, *methods: str):
        values = {"forward": number, "reverse": 2 * number, "mmd": number / 10, "r_hat": 1 + number}
        return {"n": 455, "distances": {"2": dict.fromkeys(methods, values)}}

    trials = [trial(0.1, "random", "fbpc"), trial(0.3, "random"), trial(0.2, "random", "fbpc")]
    found = {"logistic": trials, "mean": [], "linear": []}
    monkeypatch.setattr(show, "stored", lambda _, name: {"trials": found[name]})
    page = show.exact_page(Path())
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert rows == [
        "| method | 2 points |",
        "| --- | --- |",
        "| random points | 0.2 / 0.4 |",
        "| FBPC, as in the paper (2 of 3 trials) | 0.15 / 0.3 |",
        "| method | 2 points |",
        "| --- | --- |",
        "| random points | 0.02 (1.30) |",
        "| FBPC, as in the paper (2 of 3 trials) | 0.015 (1.20) |",
    ]
    assert (
        "**Logistic regression, breast-cancer, 30 features and a bias, n = 455** (3 trials)" in page
    )
