"""`reproduce regression`, tiny; and HMC of a network against what is known in closed form."""

import json
from dataclasses import replace

import pytest
import torch

from oracles.linear_gaussian import weighted_posterior
from pseudocoreset import UserError, distill, load_data
from pseudocoreset.cli import main
from pseudocoreset.likelihoods import Gaussian
from pseudocoreset.nets import Weights
from pseudocoreset.reproduce.small import posterior, regression
from pseudocoreset.reproduce.small.posterior import Effort, by_hmc, draw, log_posterior

QUIET = {"device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def coreset():
    data = load_data("diabetes")
    return distill(data, (), "random", ipc=6, net="mlp:depth=1,width=3", target_noise=0.7, **QUIET)


def test_density_is_that_of_one_network_after_another(coreset):
    net = coreset.make_net()
    theta = torch.randn(3, net.num_params, generator=torch.Generator().manual_seed(0))
    found = log_posterior(coreset, 4.0, 2.0)(theta)
    for row, value in zip(theta, found, strict=True):
        outputs = net.apply(Weights(row, torch.zeros(0)), coreset.inputs)
        normal = torch.distributions.Normal(outputs, 0.7)
        expected = 4.0 * normal.log_prob(coreset.targets).sum() - row.square().sum()
        torch.testing.assert_close(value, expected)


def test_samples_have_the_moments_of_a_linear_models_posterior():
    phi = torch.tensor([[1.0, 0.5], [1.0, -1.2], [1.0, 2.0]], dtype=torch.float64)
    y = torch.tensor([0.3, -1.0, 1.5], dtype=torch.float64)
    exact = weighted_posterior(phi, y, 5.0, 1.0, 0.49)

    def density(theta):
        away = theta @ phi.T - y
        return -5.0 * away.square().sum(1) / (2 * 0.49) - theta.square().sum(1) / 2

    start = torch.zeros(100, 2, dtype=torch.float64)
    found = draw(density, start, Effort(100, 80, 100, 20), torch.Generator().manual_seed(0))
    samples = found.by_chain
    assert 0.6 < found.accepted < 1
    torch.testing.assert_close(samples.mean(0), exact.mean, atol=0.01, rtol=0)
    torch.testing.assert_close(samples.T.cov(), exact.covariance, atol=0.005, rtol=0.05)


def test_samples_stand_chain_by_chain():
    def density(theta):
        return -((theta - torch.tensor([[0.0], [50.0]])) ** 2).sum(1) / 2

    start = torch.tensor([[0.0], [50.0]])
    found = draw(density, start, Effort(2, 5, 6, 3), torch.Generator().manual_seed(0)).by_chain
    assert bool((found[:6] < 25).all())
    assert bool((found[6:] > 25).all())


@pytest.fixture(scope="module", autouse=True)
def shortened():
    patch = pytest.MonkeyPatch()
    patch.setattr(regression, "EFFORT", Effort(2, 6, 8, 2))
    patch.setattr(regression, "SIZES", (4, 5))
    patch.setattr(regression, "STEPS", 1)
    patch.setattr(regression, "SAMPLER_EPOCHS", 20)
    patch.setattr(regression, "ENSEMBLE_EPOCHS", 20)
    patch.setattr(regression, "DRAWS", 10)
    patch.setattr(regression, "DROPPED", 2)
    patch.setattr(regression, "EXPERTS", replace(regression.EXPERTS, num=1, epochs=2))
    patch.setattr(regression, "METHOD", replace(regression.METHOD, from_epoch=1, max_map_steps=3))
    yield
    patch.undo()


def test_points_count_as_often_as_they_stand_for(coreset, monkeypatch):
    asked = []

    def density(what, weight, prior):
        asked.append((what.num_seen, weight, prior))
        return log_posterior(what, weight, prior)

    data = load_data("diabetes")
    monkeypatch.setattr(posterior, "log_posterior", density)
    found = by_hmc(coreset, data, 1.0, Effort(2, 6, 8, 2), 0, "test")
    assert asked == [(6, len(data.train) / 6, 1.0)]
    assert found.predicted.samples.shape == (16, len(data.test), 1)
    assert isinstance(coreset.likelihood, Gaussian)
    assert 0 <= found.signs["r_hat_share"] <= 1


def test_command_measures_shows_and_skips(tmp_path, capsys):
    command = ["reproduce", "regression", "--out", str(tmp_path), "--trials", "1"]
    assert main(command) == 0
    said = capsys.readouterr().out
    for title in ("the reference", "random points | 4", "FBPC | 5", "SGLD", "an ensemble"):
        assert title in said
    content = json.loads((tmp_path / "regression" / "diabetes.json").read_text())
    rows = content["trials"][0]["rows"]
    assert rows["reference"]["apart"]["kl"] == 0
    assert all(rows[name]["apart"]["kl"] > 0 for name in regression.names())
    assert [len(chain) for chain in rows["sghmc-cosine"]["trace"]] == [8] * 4
    assert rows["sghmc-cosine"]["trace"] != rows["sghmc"]["trace"]
    assert (tmp_path / "pictures" / "traces.png").exists()
    assert main(command) == 0
    assert "seed 0: measured before" in capsys.readouterr().out
    assert main([*command, "--list"]) == 0
    assert "1 trials measured" in capsys.readouterr().out
    kept, gone = rows["fbpc/4"], rows.pop("sgld")
    regression.STUDY.path(tmp_path).write_text(json.dumps(content))
    assert main(command) == 0  # the row that is missing, and no other
    again = json.loads(regression.STUDY.path(tmp_path).read_text())["trials"][0]["rows"]
    assert again["fbpc/4"] == kept
    assert again["sgld"] == gone
    del rows["hmc"]["rmse"]
    regression.STUDY.path(tmp_path).write_text(json.dumps(content))
    with pytest.raises(UserError, match="is damaged"):
        regression.STUDY.stored(tmp_path)
