"""The linearised covariance against differences and a closed form; `reproduce covariance`, tiny."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from oracles.linear_gaussian import weighted_posterior
from oracles.linearised import variance
from pseudocoreset import UserError
from pseudocoreset.cli import main
from pseudocoreset.likelihoods import Categorical, Gaussian
from pseudocoreset.methods import Points
from pseudocoreset.nets import Weights, make_net
from pseudocoreset.reproduce.covariance import measure, networks
from pseudocoreset.reproduce.covariance.linearised import (
    linearised_variance,
    posterior_covariance,
)

GENERATOR = torch.Generator().manual_seed(0)
POINTS, AT = (torch.randn(n, 3, generator=GENERATOR).double() for n in (7, 4))
NONE = torch.zeros(0)


def test_variance_of_a_network_is_that_of_differences():
    net = make_net("mlp:depth=1,width=4", input_shape=(3,), outputs=3)
    params = net.init(torch.Generator().manual_seed(1)).params.double()
    weights, classes = Weights(params, NONE), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    sigma = posterior_covariance(
        net, weights, Points(POINTS, classes), Categorical(3), weight=5.0, prior=2.0
    )
    found = linearised_variance(net, weights, AT, sigma)
    expected = variance(
        lambda p, inputs: net.apply(Weights(p, NONE), inputs), params, POINTS, AT, 5.0, 2.0
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)


def linear(features: int, outputs: int) -> nn.Module:
    return nn.Linear(features, outputs)


def test_variance_of_a_linear_regression_is_its_posteriors():
    net = make_net(linear, input_shape=(3,), outputs=1)
    weights = Weights(torch.randn(4, generator=GENERATOR).double(), NONE)
    targets = torch.randn(7, 1, generator=GENERATOR).double()
    sigma = posterior_covariance(
        net, weights, Points(POINTS, targets), Gaussian(1, 0.5), weight=3.0, prior=2.0
    )
    found = linearised_variance(net, weights, AT, sigma)
    phi, at = (torch.cat([each, torch.ones(len(each), 1)], 1).double() for each in (POINTS, AT))
    exact = weighted_posterior(phi, targets[:, 0], 3.0, 2.0, 0.25)
    torch.testing.assert_close(found[:, 0], ((at @ exact.covariance) * at).sum(1))


def test_comparison_tells_scale_points_and_classes_apart():
    exact = torch.rand(6, 3, generator=GENERATOR) + 0.1
    same = measure.compared(4 * exact, exact)
    assert same["ratio"] == pytest.approx(4)
    assert all(same[name] == pytest.approx(1) for name in ("all", "points", "classes"))
    turned = measure.compared(exact.flip(1), exact)  # the same points, other classes
    assert turned["points"] == pytest.approx(1)
    assert turned["classes"] < 0.9


def test_command_measures_shows_and_skips(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "EXPERTS", replace(measure.EXPERTS, num=2, epochs=2))
    monkeypatch.setattr(measure, "SNAPSHOTS", (1,))
    monkeypatch.setattr(measure, "STEPS", (3,))
    monkeypatch.setattr(measure, "POINTS", 6)
    monkeypatch.setattr(networks, "WIDTH", 5)
    monkeypatch.setattr(measure, "METHOD", replace(measure.METHOD, max_map_steps=10))
    command = ["reproduce", "covariance", "--out", str(tmp_path)]
    assert main(command) == 0
    assert "| coreset, MAP solutions | 3 |" in capsys.readouterr().out
    assert main(command) == 0
    assert "measured before" in capsys.readouterr().out
    assert main([*command, "--list"]) == 0
    assert "2 rows measured" in capsys.readouterr().out
    measure.path_of(tmp_path).write_text('{"format": 1, "rows": [{}]}')
    with pytest.raises(UserError, match="is damaged"):
        measure.stored(tmp_path)
