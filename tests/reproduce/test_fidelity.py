"""`reproduce fidelity` on the digits, tiny; its figures against plain loops."""

import json
from dataclasses import replace

import pytest
import torch

from oracles.compare import comparison, mutual_information
from pseudocoreset import Pseudocoreset, UserError, distill, load_data, sample
from pseudocoreset.augment import Augmentation
from pseudocoreset.cli import main
from pseudocoreset.coreset import whole_data
from pseudocoreset.engine.progress import SILENT
from pseudocoreset.engine.random import Rng
from pseudocoreset.evaluation.metrics import Predicted
from pseudocoreset.experts.targets import expert_targets
from pseudocoreset.posterior import named_sampler
from pseudocoreset.posterior.weight import full_weight
from pseudocoreset.reproduce import measure_cell
from pseudocoreset.reproduce.cells import Cell, Scope
from pseudocoreset.reproduce.fidelity import measure, pictures, predictions
from pseudocoreset.reproduce.fidelity.measure import fidelity_found, read_fidelity
from pseudocoreset.reproduce.fidelity.predictions import Kept, sampler_for
from pseudocoreset.reproduce.fidelity.show import (
    HEADER,
    fidelity_page,
    fidelity_text,
    of_protocol,
    ranks_table,
    same_accuracy,
)
from pseudocoreset.reproduce.measure_cell import ReproduceOptions, Work
from pseudocoreset.reproduce.shipped import shipped_path

NET = "convnet:width=4,depth=1"
SCOPE = Scope("digits")


@pytest.fixture(scope="module", autouse=True)
def shortened():
    patch = pytest.MonkeyPatch()
    patch.setattr(measure_cell, "NET", NET)
    patch.setattr(predictions, "EPOCHS", 40)
    patch.setattr(predictions, "MOST_STEPS", 60)
    patch.setattr(predictions, "MIXING_STEPS", 90)
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
    cells = "full/all,fbpc/10,random/1,random/10,random/2500,vbpc/1,plain:fbpc/10"
    assert main(command(out, cells)) == 0
    return out


def cell_of(out, method, ipc, protocol="tuned"):
    cell = Cell("fidelity", method, ipc, None, protocol=protocol)
    return read_fidelity(cell.path(out, SCOPE), cell)


@pytest.mark.parametrize("protocol", ["tuned", "plain"])
def test_figures_are_those_of_plain_loops(results, protocol):
    found, data = cell_of(results, "fbpc", 10, protocol), load_data("digits")
    coreset = Pseudocoreset.load(shipped_path(results, SCOPE, "fbpc", 10))
    logs = []
    for what, seed in ((coreset, 0), (whole_data(data, NET), 1)):
        usual = named_sampler("tuned")
        steps_an_epoch = 1 if what is coreset else 6
        if protocol == "tuned":  # 40 epochs, or 60 steps
            first, weight = 0, 1.0
            epochs = 40 if what is coreset else 10
            sampler = replace(usual, epochs=epochs, every=epochs // 10)
        else:  # 90 steps, the first third of which is not kept; the rest has 10 samples
            first, weight = 5, 1.0 if what is not coreset else full_weight(coreset)
            every = 6 // steps_an_epoch
            changed = {"temperature": 1.0, "prior": 100.0, "dsa": "off"}
            sampler = replace(usual, **changed, epochs=15 * every, every=every)
        chains = {"chains": 2, "weight": weight, "seed": seed}
        posterior = sample(what, sampler, **chains, device="cpu", progress=False)
        outputs = posterior.outputs(data.test.inputs, scaling=posterior.scaling)
        by_chain = outputs.log_softmax(2).double().chunk(2)
        logs.append(torch.cat([each[first:] for each in by_chain]))
        assert len(logs[-1]) == 20
    expected = comparison(*logs, data.test.targets)
    for name, value in expected.items():
        assert found["distances"][name] == pytest.approx(value, rel=1e-4), name
    assert found["own"]["mutual_information"] == pytest.approx(
        mutual_information(logs[0]), rel=1e-3
    )
    assert found["sampling"]["seen"] == 30
    counts = None if protocol == "tuned" else [n / 3 for n in data.class_counts]
    assert found["sampling"].get("class_weights") == counts
    assert found["reference_sampling"]["seed"] == 1
    assert found["sampling"]["convergence"]["draws"] == 10


def test_ceiling_is_of_other_chains_and_nearer_than_a_coreset(results):
    ceiling, coreset = cell_of(results, "full", None), cell_of(results, "fbpc", 10)
    assert ceiling["sampling"]["seed"] == 2
    assert 0 < ceiling["distances"]["total_variation"] < coreset["distances"]["total_variation"]


def test_what_is_measured_is_skipped_and_what_is_not_shipped_left_out(results, capsys):
    assert main(command(results, "fbpc/10,vbpc/1")) == 0
    said = capsys.readouterr().out
    assert "fbpc/10: measured before" in said
    assert "vbpc/1: left out, there is no" in said
    assert main(["reproduce", "fidelity", "--list", "--out", str(results), "--data", "digits"]) == 0
    assert "5 of" in capsys.readouterr().out


def test_table_shows_every_cell(results):
    text = fidelity_text(results)
    assert text.count("\n| ") == 5 + 2 * 2
    assert "without augmentation" in text
    assert "| random real images | 1 |" in text


def test_page_shows_every_column_and_names_missing_protocols(results):
    page = fidelity_page(results)
    assert page.count("\n| ") == 2 * (5 + 2 * 2)  # the columns are in two tables
    assert [name for name in HEADER if f" {name} |" not in page] == []
    assert page.endswith("Not measured yet: `bayes`.\n")


def test_page_without_cells_says_so(tmp_path):
    assert fidelity_page(tmp_path) == "Not measured yet: `tuned`, `bayes`, `plain`.\n"


def test_real_images_of_the_same_accuracy_lie_between_two_sizes():
    def content(seen, accuracy, agreement):
        found = dict.fromkeys(("total_variation", "kl"), 1 - agreement)
        return {
            "own": {"accuracy": accuracy},
            "sampling": {"seen": seen},
            "distances": {"agreement": agreement, **found},
        }

    made = {Cell("fidelity", "fbpc", 10, None): content(100, 0.5, 0.1)}
    for ipc, accuracy, agreement in ((400, 0.8, 0.9), (10, 0.3, 0.2), (50, 0.4, 0.5)):
        made[Cell("fidelity", "random", ipc, None)] = content(10 * ipc, accuracy, agreement)
    made[Cell("fidelity", "full", None, None)] = content(50_000, 0.9, 0.95)
    found = same_accuracy(0.5, made)  # a quarter of the way from 0.4 to 0.8
    assert found["agreement"] == pytest.approx(0.6)
    assert found["total_variation"] == pytest.approx(0.4)
    assert same_accuracy(0.9, made)["agreement"] == pytest.approx(0.95)
    assert same_accuracy(0.29, made) is None
    assert same_accuracy(0.91, made) is None


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


@pytest.mark.parametrize("change", [{"format": 9}, {"distances": {}}, {"reference_sampling": {}}])
def test_damaged_cells_are_refused(results, tmp_path, change):
    cell = Cell("fidelity", "full", None, None)
    content = json.loads(cell.path(results, SCOPE).read_text())
    path = tmp_path / "cell.json"
    path.write_text(json.dumps(content | change))
    with pytest.raises(UserError, match="can't be read as the measured cell full/all"):
        read_fidelity(path, cell)


def test_other_labels_are_the_most_probable_class_or_the_experts(tmp_path):
    data = load_data("digits")
    random = distill(data, (), "random", ipc=2, net=NET, seed=5, device="cpu", progress=False)
    soft = replace(random, targets=torch.rand(20, 10).softmax(1))
    options = ReproduceOptions(num=2, epochs=3)
    work = Work(data, SCOPE, tmp_path, options, 0, "cpu", SILENT)
    found = {
        name: measure._relabelled(soft, Cell("fidelity", name, 2, None), work)
        for name in ("vbpc+hard", "fbpc+experts")
    }
    assert torch.equal(found["vbpc+hard"].targets, soft.targets.argmax(1))
    store, _ = measure_cell.experts_for(Cell("fidelity", "fbpc", 2, None), work)
    augmentation = Augmentation.parse("on", data.mirror)
    rng = Rng(torch.device("cpu"), 0, "expert targets")
    expected = expert_targets([store], random.inputs, augmentation, random.likelihood, rng)
    assert torch.equal(found["fbpc+experts"].inputs, random.inputs)
    assert torch.equal(found["fbpc+experts"].targets, expected)


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
    found = {points: sampler_for(points, "tuned") for points in (10, 500, 5000, 50_000)}
    assert [each.epochs for each, _ in found.values()] == [1000, 1000, 490, 50]
    assert all(each.epochs == 10 * each.every and not first for each, first in found.values())


def test_chains_at_temperature_1_make_the_same_number_of_steps(monkeypatch):
    monkeypatch.setattr(predictions, "MIXING_STEPS", 11_760)
    for points in (10, 500, 5000, 50_000):
        sampler, first = sampler_for(points, "bayes")
        steps = sampler.epochs * -(-points // 256)
        assert 0.98 * 11_760 <= steps <= 11_760
        assert sampler.epochs == 15 * sampler.every
        assert first == 5
        assert (sampler.temperature, sampler.prior) == (1.0, 100.0)


def test_figure_shows_what_a_coreset_has_beyond_real_images(results, monkeypatch):
    monkeypatch.setattr(pictures, "PROTOCOL", "tuned")
    points = pictures.fidelity_points(results, SCOPE)
    assert {name: [size for size, *_ in found] for name, found in points.items()} == {
        "random": ["1", "10", "full"],
        "fbpc": ["10"],
    }
    assert all(more == pytest.approx(0, abs=1e-9) for _, _, more, _ in points["random"])
    content = cell_of(results, "fbpc", 10)
    found = fidelity_found(results, SCOPE)
    real = same_accuracy(content["own"]["accuracy"], of_protocol(found, "tuned"))
    (_, accuracy, more, ratio) = points["fbpc"][0]
    assert (accuracy, ratio) == (content["own"]["accuracy"], content["distances"]["variance_ratio"])
    assert more == pytest.approx(content["distances"]["agreement"] - real["agreement"])
    assert len(list(pictures.draw_fidelity(results))) == 1
    assert list(pictures.draw_fidelity(results)) == []


def test_methods_are_ranked_by_accuracy(results):
    lines = ranks_table(results, SCOPE, "tuned", 10).markdown().splitlines()
    content = cell_of(results, "fbpc", 10)
    own, apart = content["own"], content["distances"]
    real = same_accuracy(own["accuracy"], of_protocol(fidelity_found(results, SCOPE), "tuned"))
    agreement = f"{apart['agreement']:.1%} ({real['agreement']:.1%})"
    variation = f"{apart['total_variation']:.3f} ({real['total_variation']:.3f})"
    random = cell_of(results, "random", 10)
    plain, far = random["own"]["accuracy"], random["distances"]
    rows = {
        own["accuracy"]: f"| FBPC | {own['accuracy']:.1%} | {agreement} | {variation} "
        f"| {apart['variance_ratio']:.1f} |",
        plain: f"| random real images | {plain:.1%} | {far['agreement']:.1%} "
        f"| {far['total_variation']:.3f} | {far['variance_ratio']:.1f} |",
    }
    assert lines[2:] == [rows[accuracy] for accuracy in sorted(rows, reverse=True)]
