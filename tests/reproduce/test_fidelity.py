"""`reproduce fidelity` on the digits, tiny; its figures against plain loops."""

import json
from dataclasses import replace
from math import log

import pytest
import torch

from oracles.compare import comparison, mutual_information
from pseudocoreset import UserError, distill, load_data, sample
from pseudocoreset.cli import main
from pseudocoreset.evaluation.metrics import Predicted
from pseudocoreset.reproduce import measure_cell
from pseudocoreset.reproduce.cells import Cell, Scope
from pseudocoreset.reproduce.fidelity import predictions
from pseudocoreset.reproduce.fidelity.measure import read_fidelity, same_accuracy
from pseudocoreset.reproduce.fidelity.predictions import Kept, sampler_for
from pseudocoreset.reproduce.fidelity.show import fidelity_text
from pseudocoreset.reproduce.shipped import shipped_path

NET = "convnet:width=4,depth=1"
SCOPE = Scope("digits")


@pytest.fixture(scope="module", autouse=True)
def shortened():
    patch = pytest.MonkeyPatch()
    patch.setattr(measure_cell, "NET", NET)
    patch.setattr(predictions, "EPOCHS", 40)
    patch.setattr(predictions, "MOST_STEPS", 60)
    yield
    patch.undo()


def command(out, cells):
    words = ["reproduce", "fidelity", "--data", "digits", "--out", str(out), "--cells", cells]
    return [*words, "--chains", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("fidelity") / "results"
    data = load_data("digits")
    made = distill(data, (), "random", ipc=3, net=NET, seed=5, device="cpu", progress=False)
    made.save(shipped_path(out, SCOPE, "fbpc", 10))
    assert main(command(out, "full/all,fbpc/10,control-fbpc/10,random/1,vbpc/1")) == 0
    return out


def cell_of(out, method, ipc):
    cell = Cell("fidelity", method, ipc, None)
    return read_fidelity(cell.path(out, SCOPE), cell)


def test_figures_are_those_of_plain_loops(results):
    found, data = cell_of(results, "fbpc", 10), load_data("digits")
    from pseudocoreset import Pseudocoreset
    from pseudocoreset.coreset import whole_data

    coreset = Pseudocoreset.load(shipped_path(results, SCOPE, "fbpc", 10))
    logs = []
    for what, seed in ((coreset, 0), (whole_data(data, NET), 1)):
        sampler = sampler_for(what.num_seen)
        posterior = sample(what, sampler, chains=2, seed=seed, device="cpu", progress=False)
        outputs = posterior.outputs(data.test.inputs, scaling=posterior.scaling)
        logs.append(outputs.log_softmax(2).double())
    expected = comparison(*logs, data.test.targets)
    for name, value in expected.items():
        assert found["distances"][name] == pytest.approx(value, rel=1e-4), name
    assert found["own"]["mutual_information"] == pytest.approx(
        mutual_information(logs[0]), rel=1e-3
    )
    assert found["sampling"]["seen"] == 30
    assert found["reference_sampling"]["seed"] == 1


def test_ceiling_is_of_other_chains_and_nearer_than_a_coreset(results):
    ceiling, coreset = cell_of(results, "full", None), cell_of(results, "fbpc", 10)
    assert ceiling["sampling"]["seed"] == 2
    assert 0 < ceiling["distances"]["total_variation"] < coreset["distances"]["total_variation"]


def test_control_is_as_accurate_as_the_coreset(results):
    control, coreset = cell_of(results, "control-fbpc", 10), cell_of(results, "fbpc", 10)
    subset = control["subset"]
    assert subset["target"] == coreset["own"]["accuracy"]
    tried = {int(size): value for size, value in subset["tried"].items()}
    nearest = min(tried, key=lambda size: abs(tried[size] - subset["target"]))
    assert subset["ipc"] == nearest
    assert control["own"]["accuracy"] == tried[nearest]
    assert control["sampling"]["seen"] == 10 * nearest


def test_what_is_measured_is_skipped_and_what_is_not_shipped_left_out(results, capsys):
    assert main(command(results, "fbpc/10,vbpc/1")) == 0
    said = capsys.readouterr().out
    assert "fbpc/10: measured before" in said
    assert "vbpc/1: left out, there is no" in said
    assert main(["reproduce", "fidelity", "--list", "--out", str(results), "--data", "digits"]) == 0
    assert "4 of" in capsys.readouterr().out


def test_table_shows_every_cell(results):
    text = fidelity_text(results)
    assert text.count("\n| ") == 4 + 2
    assert "real images as accurate as FBPC" in text
    assert "random real images | 1 |" in text


def test_predictions_are_sampled_once(results, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("it was sampled again")

    Cell("fidelity", "fbpc", 10, None).path(results, SCOPE).unlink()
    monkeypatch.setattr(predictions, "sample", refuse)
    assert main(command(results, "fbpc/10")) == 0


def test_predictions_of_other_points_are_refused(results, capsys):
    shipped = shipped_path(results, SCOPE, "fbpc", 10)
    before, path = shipped.read_bytes(), Cell("fidelity", "fbpc", 10, None).path(results, SCOPE)
    stored = path.read_bytes()
    data = load_data("digits")
    made = distill(data, (), "random", ipc=3, net=NET, seed=6, device="cpu", progress=False)
    made.save(shipped)
    path.unlink()
    try:
        assert main(command(results, "fbpc/10")) == 2
        assert "made with other points" in capsys.readouterr().err
    finally:
        shipped.write_bytes(before)
        path.write_bytes(stored)


@pytest.mark.parametrize("change", [{"format": 9}, {"distances": {}}, {"subset": {}}])
def test_damaged_cells_are_refused(results, tmp_path, change):
    cell = Cell("fidelity", "full", None, None)
    content = json.loads(cell.path(results, SCOPE).read_text())
    path = tmp_path / "cell.json"
    path.write_text(json.dumps(content | change))
    with pytest.raises(UserError, match="can't be read as the measured cell full/all"):
        read_fidelity(path, cell)


def test_size_of_the_same_accuracy_is_found():
    def accuracy(size):
        return min(0.1 * log(size + 1), 0.9)

    asked = []
    size, tried = same_accuracy(0.43, lambda each: asked.append(each) or accuracy(each), 5000)
    assert abs(accuracy(size) - 0.43) <= 0.005
    assert len(asked) == len(tried) < 13
    assert same_accuracy(2.0, accuracy, 50)[0] == 50
    assert same_accuracy(0.0, accuracy, 50)[0] == 1


def test_halves_are_the_ends_of_each_chain():
    logs = torch.tensor([0.9, 0.9, 0.2, 0.2, 0.7, 0.7, 0.4, 0.4])
    samples = torch.stack([logs, 1 - logs], 1).log()[:, None]
    kept = Kept(Predicted(samples, torch.tensor([0])), 2, {})
    found = kept.halves()  # 0.8 and 0.3 on average
    assert found["total_variation"] == pytest.approx(0.5)
    assert found["agreement"] == 0
    same = replace(kept, predicted=Predicted(samples[[0, 2, 0, 2, 4, 6, 4, 6]], torch.tensor([0])))
    assert same.halves()["total_variation"] == pytest.approx(0)


def test_no_chain_makes_more_steps_than_that_of_all_images(monkeypatch):
    monkeypatch.setattr(predictions, "EPOCHS", 1000)
    monkeypatch.setattr(predictions, "MOST_STEPS", 9800)
    found = {points: sampler_for(points) for points in (10, 500, 5000, 50_000)}
    assert [each.epochs for each in found.values()] == [1000, 1000, 490, 50]
    assert all(each.epochs == 10 * each.every for each in found.values())
