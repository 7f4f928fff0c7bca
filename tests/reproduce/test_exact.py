"""`reproduce exact`, tiny; and what it is built of, against closed forms."""

import json

import pytest
import torch

from oracles.chains import logistic_moments
from oracles.linear_gaussian import Gaussian, kl, posterior, weighted_posterior
from pseudocoreset.cli import main
from pseudocoreset.methods import Points
from pseudocoreset.reproduce.exact import measure
from pseudocoreset.reproduce.exact.hmc import at, hmc_step
from pseudocoreset.reproduce.exact.linear import LinearTruth
from pseudocoreset.reproduce.exact.logistic import Model, Sampling, sampled
from pseudocoreset.reproduce.exact.moments import Moments, linear_posterior, lowest_kl
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


def test_one_point_is_exact_for_a_gaussian_mean():
    problem = gaussian_mean(0, 5, 30)
    train = problem.train
    found = LinearTruth(problem).distances(
        Points(train.inputs[:1], train.targets.mean(0, keepdim=True))
    )
    assert found["forward"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("number", [5, 8])
def test_points_of_full_rank_are_exact_for_a_linear_regression(number):
    """φ_u = Q R with RᵀR = (m/n) φᵀφ, a first column of ones, and targets that solve the rest."""
    problem = linear_regression(0, 4, 60)
    train, truth = problem.train, LinearTruth(problem)
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
    command = ["reproduce", "exact", "--out", str(tmp_path), "--trials", "1"]
    assert main(command) == 0
    assert "FBPC, as in the paper" in capsys.readouterr().out
    for name in measure.EFFORTS:
        content = json.loads((tmp_path / "exact" / f"{name}.json").read_text())
        assert content["trials"][0]["distances"]["2"].keys() == measure.METHODS.keys()
    assert (tmp_path / "pictures" / "exact.png").exists()
    assert main(command) == 0
    assert capsys.readouterr().out.count("measured before") == 3
    assert main([*command, "--list"]) == 0
    assert "linear: 1 trials measured" in capsys.readouterr().out
