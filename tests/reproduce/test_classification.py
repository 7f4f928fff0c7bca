"""`reproduce classification`, tiny; its density, its rows and its control."""

import json
from dataclasses import replace

import pytest
import torch

from pseudocoreset import distill, load_data, train_experts
from pseudocoreset.cli import main
from pseudocoreset.evaluation.metrics import Predicted
from pseudocoreset.nets import Weights
from pseudocoreset.reproduce.matched import at_accuracy
from pseudocoreset.reproduce.small import classification
from pseudocoreset.reproduce.small.exact_kl import Descent
from pseudocoreset.reproduce.small.posterior import Effort, log_posterior, signs_of

QUIET = {"device": "cpu", "progress": False}


@pytest.mark.parametrize("soft", [False, True])
def test_density_is_that_of_one_network_after_another(soft):
    data = load_data("digits")
    coreset = distill(data, (), "random", ipc=2, net="mlp:depth=1,width=3", **QUIET)
    generator = torch.Generator().manual_seed(0)
    if soft:
        shares = torch.rand(20, 10, generator=generator).softmax(1)
        coreset = replace(coreset, targets=shares)
    net = coreset.make_net()
    theta = torch.randn(3, net.num_params, generator=generator)
    found = log_posterior(coreset, 4.0, 2.0)(theta)
    for row, value in zip(theta, found, strict=True):
        logs = net.apply(Weights(row, torch.zeros(0)), coreset.inputs).log_softmax(1)
        if soft:
            total = sum(float(q @ log) for q, log in zip(shares, logs, strict=True))
        else:
            total = sum(float(log[y]) for y, log in zip(coreset.targets, logs, strict=True))
        assert float(value) == pytest.approx(4.0 * total - float(row.square().sum()), rel=1e-5)


def test_signs_are_those_of_the_true_class():
    logs = -torch.rand(2, 50, 1, 2, generator=torch.Generator().manual_seed(0))
    logs[1, :, :, 1] -= 5  # the chains differ in class 1 alone
    shares = [
        signs_of(Predicted(logs.flatten(0, 1), torch.tensor([label])), 2)["r_hat_share"]
        for label in (0, 1)
    ]
    assert shares == [0, 1]


def test_point_that_does_not_vary_has_no_effective_size():
    logs = -torch.rand(100, 3, 1, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(3, dtype=torch.int64)
    varying = signs_of(Predicted(logs[:, :1], labels[:1]), 2)
    logs[:, 1:] = 0
    found = signs_of(Predicted(logs, labels), 2)
    assert found == {"r_hat_share": 0, "effective_size": varying["effective_size"]}


def test_control_lies_between_the_two_nearest_sizes():
    few = {"agreement": 0.5, "total_variation": 0.6, "kl": 2.0}
    some = {"agreement": 0.7, "total_variation": 0.4, "kl": 1.0}
    many = {"agreement": 0.9, "total_variation": 0.1, "kl": 0.2}
    real = [(0.4, few), (0.6, some), (0.8, many)]
    assert at_accuracy(0.65, real) == pytest.approx(
        {"agreement": 0.75, "total_variation": 0.325, "kl": 0.8}
    )
    assert at_accuracy(0.4, real) == few
    assert at_accuracy(0.39, real) is None
    assert at_accuracy(0.81, real) is None


@pytest.fixture
def shortened(monkeypatch):
    made = {
        name: replace(how, options={**how.options, "steps": min(how.options["steps"], 1)})
        for name, how in classification.MADE.items()
    }
    fast = {"max_map_steps": 3, "from_epoch": 1, "covariance_steps": 2}
    for name in ("fbpc", "fbpc+experts", "random+experts", "fbpc-after-vbpc"):
        made[name] = replace(made[name], method=replace(made[name].method, **fast))
    made["bpc-cd"] = replace(
        made["bpc-cd"], method=replace(made["bpc-cd"].method, warm_up=1, chains=1)
    )
    monkeypatch.setattr(classification, "MADE", made)
    monkeypatch.setattr(classification, "EFFORT", Effort(2, 4, 6, 2))
    monkeypatch.setattr(classification, "DESCENT", Descent(1, chains=2, warm_up=1, leaps=1))
    monkeypatch.setattr(classification, "SIZES", (1,))
    monkeypatch.setattr(classification, "REAL_SIZES", (1, 40))
    monkeypatch.setattr(classification, "SAMPLER_EPOCHS", 24)
    monkeypatch.setattr(classification, "DRAWS", 8)
    monkeypatch.setattr(classification, "DROPPED", 2)
    monkeypatch.setattr(
        classification, "EXPERTS", replace(classification.EXPERTS, num=1, epochs=25)
    )


@pytest.mark.filterwarnings("ignore:.*did not reach the loss:RuntimeWarning")
def test_step_of_a_mean_over_the_images_grows_with_their_number(shortened, tmp_path):
    data = load_data("digits")
    experts = train_experts(
        data, classification.NET, tmp_path / "experts", classification.EXPERTS, **QUIET
    )
    for size in (1, 3):
        made = classification._made(f"fbpc/{size}", data, experts, 0)
        assert made.provenance.config["lr_images"] == 10.0 * size
        assert len(made) == 10 * size


@pytest.mark.filterwarnings("ignore:.*did not reach the loss:RuntimeWarning")
def test_a_way_starts_from_the_coreset_of_another(shortened, tmp_path):
    data = load_data("digits")
    experts = train_experts(
        data, classification.NET, tmp_path / "experts", classification.EXPERTS, **QUIET
    )
    for name, first in (("vbpc-after-fbpc", "fbpc"), ("fbpc-after-vbpc", "vbpc+hard")):
        start = classification._made(f"{first}/2", data, experts, 0)
        made = classification._made(f"{name}/2", data, experts, 0)
        assert made.provenance.config["init_coreset"] == start.fingerprint
        assert made.fingerprint != start.fingerprint


def test_samples_are_spread_over_the_chains_of_all_images():
    assert classification.SAMPLER_EPOCHS % classification.DRAWS == 0


@pytest.mark.filterwarnings("ignore:.*did not reach the loss:RuntimeWarning")
def test_rows_that_were_measured_survive_a_fault(shortened, tmp_path, monkeypatch):
    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(classification, "_by_sampler", fails)
    with pytest.raises(KeyboardInterrupt):
        list(classification.STUDY.measure(tmp_path, 1, 0))
    (trial,) = classification.STUDY.stored(tmp_path)["trials"]
    assert trial["rows"].keys() == {"reference", *classification.names()} - set(
        classification.SAMPLERS
    )
    assert classification.STUDY.complete(tmp_path) == []


def test_command_measures_shows_and_skips(shortened, tmp_path, capsys):
    command = ["reproduce", "classification", "--out", str(tmp_path), "--trials", "1"]
    assert main(command) == 0
    said = capsys.readouterr().out
    for title in ("the reference", "random real images | 40", "FBPC, experts' labels | 1"):
        assert title in said
    path = tmp_path / "classification" / "digits.json"
    content = json.loads(path.read_text())
    rows = content["trials"][0]["rows"]
    assert rows.keys() == {"reference", *classification.names()}
    assert rows["reference"]["apart"]["agreement"] == 1
    assert content["made"]["fbpc"]["gamma"] == 0.1
    accuracy, apart = rows["fbpc/1"]["accuracy"], rows["fbpc/1"]["apart"]
    (line,) = (each for each in said.splitlines() if each.startswith("| FBPC | 1 |"))
    assert f"| {accuracy:.1%} |" in line
    assert f"| {apart['total_variation']:.3f} (" in line
    (line,) = (each for each in said.splitlines() if "images | 40 |" in each)
    assert f"| {rows['random/40']['apart']['kl']:.3f} |" in line
    kept, gone = rows["fbpc/1"], rows.pop("vbpc+hard/1")
    path.write_text(json.dumps(content))
    assert main(command) == 0  # the row that is missing, and no other
    again = json.loads(path.read_text())["trials"][0]["rows"]
    assert (again["fbpc/1"], again["vbpc+hard/1"]) == (kept, gone)
    assert main(command) == 0
    assert "seed 0: measured before" in capsys.readouterr().out
