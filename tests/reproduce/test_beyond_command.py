"""`pseudocoreset reproduce beyond` on the digits, shortened: in pieces, again, held out."""

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from pseudocoreset import Pseudocoreset, distill, load_data, recipes
from pseudocoreset.cli import main
from pseudocoreset.distillation import DistillOptions
from pseudocoreset.engine.options import limits_of
from pseudocoreset.engine.progress import SILENT
from pseudocoreset.errors import UserError
from pseudocoreset.reproduce import measure_cell
from pseudocoreset.reproduce.beyond import kinds as kinds_of
from pseudocoreset.reproduce.beyond import make as making
from pseudocoreset.reproduce.beyond.jpeg import compressed_images
from pseudocoreset.reproduce.beyond.kinds import Kind, budget, images_that_fill, kinds
from pseudocoreset.reproduce.beyond.stored import found_cells, read_cell
from pseudocoreset.reproduce.cells import BEYOND, Cell, Scope, beyond_cells
from pseudocoreset.reproduce.registry import chosen_names
from pseudocoreset.reproduce.shipped import shipped_path

SCOPE = Scope("digits")
SMALL = ["--data", "digits", "--num", 1, "--epochs", 2, "--steps", 1, "--chains", 2]
SHORT = {"epochs": 4, "every": 2}
BEST = {
    "form": "mosaic:2",
    "labels": "learned",
    "steps": 3,
    "lr_images": 1.0,
    "from_epoch": 5,  # later than the experts go
    "samples": 2,
    "gamma": 2.5,  # another than FBPC's own
}


@pytest.fixture(scope="module", autouse=True)
def shortened():
    patch = pytest.MonkeyPatch()
    patch.setattr(measure_cell, "NET", "convnet:width=4")
    patch.setattr(kinds_of, "SCORED_BY", {"sghmc": SHORT})
    few = {"samples": 2, "gamma": 2.0, "from_epoch": 1, "covariance_steps": 2}
    shipped = {}
    for key, sections in recipes._shipped().items():
        shipped[key] = sections
        if key[0] == "digits":
            shipped[key] = {
                name: {
                    method: {**values, **{k: v for k, v in few.items() if k in values}}
                    for method, values in section.items()
                }
                for name, section in sections.items()
            } | {"best": {"fbpc-isotropic": BEST}}
    patch.setattr(recipes, "_shipped", lambda: shipped)
    yield
    patch.undo()


def run(*arguments: object, code: int = 0) -> None:
    words = ["reproduce", *arguments, "--device", "cpu"]
    assert main([str(word) for word in words]) == code


def cell(name: str, ipc: int = 1) -> Cell:
    return Cell(BEYOND, name, ipc, None)


def content_of(out: Path, name: str, ipc: int = 1, scope: Scope = SCOPE):
    return json.loads(cell(name, ipc).path(out, scope).read_text())


@pytest.fixture(scope="module")
def results(shortened, tmp_path_factory):
    """All cells of one image a class, and the ablation."""
    out = tmp_path_factory.mktemp("beyond") / "results"
    cells = "*/1,ablation-*/10"
    run("beyond", *SMALL, "--coresets", 2, "--cells", cells, "--out", out, "--quiet")
    return out


def test_cell_stores_what_the_table_needs(results):
    content = content_of(results, "best")
    assert [each["seed"] for each in content["coresets"]] == [0, 1]
    assert len({each["fingerprint"] for each in content["coresets"]}) == 2
    assert content["methods"] == ["fbpc-isotropic"]
    assert (content["experts"]["num"], content["experts"]["epochs"]) == (1, 2)
    assert content["experts_s"] > 0
    assert content["device"] == "cpu"
    assert {"code", "torch"} <= content["versions"].keys()
    first = content["coresets"][0]
    storage = {"numbers": 640 + 400, "bytes": 2 * 1040, "stored": 10, "seen": 40}
    assert first["storage"].items() >= {**storage, "form": "mosaic:2", "precision": "half"}.items()
    assert first["config"].items() >= {"steps": 1, "labels": "learned", "recipe": "best"}.items()
    assert first["distill_s"] > 0
    scores = first["scores"]["sghmc"]
    for way in ("single", "chain", "pooled"):
        assert scores[way].keys() >= {"accuracy", "nll", "ece", "brier"}
    assert scores["sampling_steps"] == 4
    assert (scores["chains"], scores["first_seed"]) == (2, 0)
    assert content["coresets"][1]["scores"]["sghmc"]["first_seed"] == 2
    assert scores["protocol"]["split"] == "test"
    assert scores["pooled_calibrated"] == {}


def test_every_cell_is_measured(results):
    found = {each for each in found_cells(results, SCOPE) if each.ipc == 1}
    names = set(kinds("digits", 1))
    assert {each.method for each in found} == names
    assert len([each for each in found_cells(results, SCOPE) if each.ipc == 10]) >= 5
    repeated = {name for name, kind in kinds("digits", 1).items() if kind.repeated}
    for name in names:
        assert len(content_of(results, name)["coresets"]) == (2 if name in repeated else 1)


def test_controls_take_no_more_than_the_best(results):
    data = load_data("digits")
    most = budget(data, 1)
    assert most == (640 + 400, 640 + 800)
    best = content_of(results, "best")["coresets"][0]["storage"]
    assert most.numbers == best["numbers"]
    bytes_ = content_of(results, "best-bytes")["coresets"][0]["storage"]
    assert (bytes_["bytes"], bytes_["precision"]) == (most.bytes, "byte")
    for name in ("random", "random+experts", "mosaic+experts"):
        for each in content_of(results, name)["coresets"]:
            assert each["storage"]["numbers"] <= most.numbers
    for each in content_of(results, "jpeg+experts")["coresets"]:
        assert each["storage"]["numbers"] is None
        assert 0.7 * most.bytes < each["storage"]["bytes"] <= most.bytes
    assert images_that_fill(data, 10, soft=False) == (6400 + 4000) // (65 * 10)
    assert images_that_fill(data, 10, soft=True) == (6400 + 4000) // (74 * 10)
    mosaic = content_of(results, "mosaic+experts")["coresets"][0]["storage"]
    assert (mosaic["form"], mosaic["numbers"]) == ("mosaic:2", best["numbers"])


def test_rows_of_the_ablation_are_small_changes_of_the_best(results):
    configs = {
        name: content_of(results, f"ablation-{name}", 10)["coresets"][0]["config"]
        for name in ("pixels", "mosaic", "learned", "experts", "covariance")
    }
    found = {n: (c["method"], c["form"], c["labels"]) for n, c in configs.items()}
    assert found == {
        "pixels": ("fbpc-isotropic", "pixels", "hard"),
        "mosaic": ("fbpc-isotropic", "mosaic:2", "hard"),
        "learned": ("fbpc-isotropic", "mosaic:2", "learned"),
        "experts": ("fbpc-isotropic", "mosaic:2", "experts"),
        "covariance": ("fbpc", "mosaic:2", "learned"),
    }
    assert configs["covariance"]["gamma"] == BEST["gamma"]


def test_best_coreset_is_shipped_as_it_was_scored(results):
    shipped = Pseudocoreset.load(shipped_path(results, SCOPE, "best", 1))
    entry = content_of(results, "best")["coresets"][0]
    assert shipped.fingerprint == entry["fingerprint"]
    assert shipped.stored_bytes == entry["storage"]["bytes"]


def test_measured_cells_are_skipped_and_more_coresets_are_added(results, tmp_path, capsys):
    out, work = tmp_path / "results", tmp_path / "work"
    words = ["beyond", *SMALL, "--out", out, "--work", work, "--cells", "random/1"]
    run(*words, "--coresets", 1)
    first = content_of(out, "random")
    assert "measured before" not in capsys.readouterr().out
    run(*words, "--coresets", 1)
    assert capsys.readouterr().out.count("measured before") == 1
    assert content_of(out, "random") == first
    run(*words, "--coresets", 2)
    second = content_of(out, "random")
    assert second["coresets"][0] == first["coresets"][0]
    whole = content_of(results, "random")["coresets"]
    for ours, theirs in zip(second["coresets"], whole, strict=True):
        assert ours["fingerprint"] == theirs["fingerprint"]
        assert ours["scores"]["sghmc"]["pooled"] == theirs["scores"]["sghmc"]["pooled"]


def test_another_posterior_scores_the_same_coresets(tmp_path, monkeypatch):
    out, work = tmp_path / "results", tmp_path / "work"
    words = ["beyond", *SMALL, "--out", out, "--work", work, "--cells", "best/1", "--coresets", 1]
    run(*words, "--quiet")
    before = content_of(out, "best")["coresets"][0]
    monkeypatch.setattr(kinds_of, "SCORED_BY", {"sghmc": SHORT, "map": SHORT})
    monkeypatch.setattr(making, "run_job", None)  # nothing is made once more
    run(*words, "--quiet")
    after = content_of(out, "best")["coresets"][0]
    assert after["scores"].keys() == {"sghmc", "map"}
    assert after["scores"]["sghmc"] == before["scores"]["sghmc"]
    assert after["fingerprint"] == before["fingerprint"]


def test_only_headline_coresets_are_scored_by_all_posteriors(monkeypatch):
    monkeypatch.setattr(kinds_of, "SCORED_BY", {"sghmc": SHORT, "last-layer": SHORT})
    found = kinds("digits", 10)
    both = {name for name, kind in found.items() if len(kinds_of.samplers(kind, 10)) == 2}
    assert both == {"best", "vbpc", "fbpc"}
    assert kinds_of.samplers(found["random"], 10).keys() == {"sghmc"}


def test_coreset_of_table_1_is_scored_again(results, tmp_path):
    """The shipped one if it has the recipe; else one is made."""
    out = tmp_path / "results"
    options = {"ipc": 1, "net": "convnet:width=4", "device": "cpu", "progress": False}
    other = distill(load_data("digits"), (), "random", **options, seed=5)
    config = {**other.provenance.config, "recipe": "paper"}
    words = ["beyond", *SMALL, "--out", out, "--cells", "fbpc/1", "--quiet"]
    for recipe, again in (("paper", False), ("tuned", True)):
        config["recipe"] = recipe
        shipped = replace(other, provenance=replace(other.provenance, config=config))
        shipped.save(shipped_path(out, SCOPE, "fbpc", 1), half=True)
        run(*words, "--work", tmp_path / recipe)
        content = content_of(out, "fbpc")
        (entry,) = content["coresets"]
        assert (entry["fingerprint"] == other.rounded("half").fingerprint) == again
        assert (content["experts"] is None) == again
        cell("fbpc").path(out, SCOPE).unlink()


def test_temperature_is_that_of_the_held_out_images(tmp_path):
    out = tmp_path / "results"
    words = ["beyond", *SMALL, "--out", out, "--cells", "random+experts/1", "--coresets", 2]
    run(*words, "--holdout", 100, "--quiet")
    held = Scope("digits", 100)
    chosen = read_cell(cell("random+experts").path(out, held), cell("random+experts"))
    temperature = chosen.temperature("sghmc")
    values = [c["scores"]["sghmc"]["pooled_temperature"] for c in chosen.coresets]
    assert temperature == pytest.approx(sum(values) / 2)
    assert chosen.coresets[0]["scores"]["sghmc"]["protocol"]["split"] == "holdout"
    run(*words, "--quiet")
    for each in content_of(out, "random+experts")["coresets"]:
        scores = each["scores"]["sghmc"]
        assert scores["pooled_calibrated"]["temperature"] == pytest.approx(temperature)
        assert scores["pooled_calibrated"]["accuracy"] == scores["pooled"]["accuracy"]
    assert not (out / "coresets").exists()


def test_methods_follow_one_another(monkeypatch, tmp_path):
    """The second begins with the run of the first, in its form, with labels that stay soft."""
    calls = []
    data = load_data("digits")
    options = {"ipc": 1, "form": "mosaic:2", "net": "convnet:width=4", "device": "cpu"}
    hard = distill(data, (), "random", **options, progress=False)
    soft = replace(hard, targets=torch.full((40, 10), 0.1))
    monkeypatch.setattr(making, "DistillOptions", lambda **options: options)
    monkeypatch.setattr(making, "resolve", lambda *args: args)

    def made(job, *_, out, **__):
        calls.append((type(job[2]).name, job[3], job[4], out))
        return soft

    monkeypatch.setattr(making, "run_job", made)
    options = measure_cell.ReproduceOptions(steps=7)
    work = measure_cell.Work(data, SCOPE, tmp_path, options, 0, "cpu", SILENT)
    kind = Kind("two", ("fbpc-isotropic", "fbpc"), changes={"labels": "experts"})
    making.make(kind, 1, work, None, 3)
    (first, second) = calls
    assert first[:2] == ("fbpc-isotropic", {"ipc": 1, "labels": "experts", "steps": 7})
    options = {"ipc": 1, "init": str(first[3]), "form": "mosaic:2", "labels": "learned"}
    assert second[:2] == ("fbpc", options)
    assert first[3] != second[3]
    assert first[3].name == "beyond-fbpc-isotropic-best-labels=experts-ipc1-7-updates-seed3"


(INIT,) = (each for each in fields(DistillOptions) if each.name == "init")


@pytest.mark.skipif(limits_of(INIT).choices is not None, reason="no coreset can be a start yet")
def test_pipeline_improves_what_was_made(tmp_path, monkeypatch):
    pipeline = ("fbpc-isotropic", "fbpc")
    monkeypatch.setattr(kinds_of, "BEST", {**kinds_of.BEST, 1: pipeline})
    out = tmp_path / "results"
    run("beyond", *SMALL, "--coresets", 1, "--cells", "best/1", "--out", out, "--quiet")
    content = content_of(out, "best")
    assert content["methods"] == list(pipeline)
    config = content["coresets"][0]["config"]
    assert (config["method"], config["form"], config["labels"]) == ("fbpc", "mosaic:2", "learned")
    assert config["init"] == "coreset"


def test_same_coreset_is_made_once_for_several_kinds():
    found = kinds("digits", 10)
    assert found["best"].made_as(0) == found["best-bytes"].made_as(0)
    assert found["ablation-finish"].made_as(0) == found["best"].made_as(0)
    names = {kind.made_as(len(kind.methods) - 1) for kind in found.values()}
    assert found["ablation-learned"].made_as(0) == found["best"].made_as(0)
    assert len(names) == len(found) - 3  # jpeg is made of what random+experts is, and see above


def test_compressed_images_are_real_ones_that_fit():
    data = load_data("digits")
    generator = torch.Generator().manual_seed(0)
    small = compressed_images(data, 1000, 10, 20, generator)
    fine = compressed_images(data, 1000, 90, 20, torch.Generator().manual_seed(0))
    assert small.each > fine.each
    for found in (small, fine):
        assert found.images.shape == (10 * found.each, 1, 8, 8)
        assert found.bytes <= 1000
    first = torch.Generator().manual_seed(0)
    zeros = (data.train.targets == 0).nonzero().squeeze(1)
    place = zeros[torch.randperm(len(zeros), generator=first)[0]]
    away = (fine.images[0].float() - data.train.inputs[place].float()).abs().mean()
    assert away < 12
    assert (small.images[0].float() - data.train.inputs[place].float()).abs().mean() > away
    with pytest.raises(UserError, match="no JPEG image"):
        compressed_images(data, 100, 10, 20, generator)


def test_damaged_cells_and_other_experts_are_refused(results, tmp_path, capsys):
    out = tmp_path / "results"
    words = ["beyond", *SMALL, "--out", out, "--cells", "random+experts/1", "--coresets", 1]
    run(*words, "--quiet")
    run(*words, "--coresets", 2, "--num", 2, code=2)
    assert "--num" in capsys.readouterr().err
    path = cell("random+experts").path(out, SCOPE)
    good = json.loads(path.read_text())
    broken = json.loads(path.read_text())
    broken["coresets"][0]["scores"]["sghmc"]["pooled"]["nll"] = None
    for content in ("", "[]", json.dumps(broken), json.dumps({**good, "coresets": []})):
        path.write_text(content)
        run(*words, code=2)
        (line,) = capsys.readouterr().err.splitlines()
        assert "delete it to measure it again" in line
    path.write_text(json.dumps({**good, "data_fingerprint": "other"}))
    run(*words, code=2)
    assert "other --data" in capsys.readouterr().err


def test_coresets_of_a_cell_may_have_experts_trained_again(tmp_path):
    out = tmp_path / "results"
    words = ["beyond", *SMALL, "--out", out, "--cells", "random+experts/1", "--coresets", 1]
    for seed in (0, 1):  # of the experts too
        run(*words, "--seed", seed, "--quiet")
    first, second = content_of(out, "random+experts")["coresets"]
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first["experts"] != second["experts"]


def test_bytes_are_those_of_the_shipped_coreset(results):
    shipped = Pseudocoreset.load(shipped_path(results, SCOPE, "best", 1))
    (entry,) = content_of(results, "best-bytes")["coresets"]
    assert entry["fingerprint"] == shipped.rounded("byte").fingerprint
    assert entry["fingerprint"] != shipped.fingerprint


def test_listing_and_names(results, capsys):
    run("beyond", "--list", "--data", "digits", "--out", results)
    shown = capsys.readouterr().out
    found = found_cells(results, SCOPE)
    assert f"{len(found)} of {len(beyond_cells('digits'))} cells measured" in shown
    assert "best/1 2 × " in shown
    assert "missing: vbpc/1" in shown or "missing: best/10" in shown
    assert chosen_names([]) == ["table1", "dsa", "pictures"]
    assert chosen_names(["beyond"]) == ["beyond"]


def test_command_writes_the_page_and_draws(results, tmp_path):
    page = (results / "beyond.md").read_text()
    assert "## Digits" in page
    assert not (results / "pictures" / "digits-beyond.png").exists()  # a plot is of several sizes
    out = tmp_path / "results"
    shutil.copytree(results, out)
    run("beyond", *SMALL, "--out", out, "--cells", "random/10", "--quiet")
    assert (out / "pictures" / "digits-beyond.png").exists()
    assert (results / "pictures" / "digits-best-ipc1.png").exists()


def test_tables_without_images_are_refused(capsys, tmp_path):
    run("beyond", "--data", "diabetes", "--out", tmp_path / "results", code=2)
    assert "images with classes" in capsys.readouterr().err


def test_form_of_best_is_that_of_its_recipe(monkeypatch):
    shipped = dict(recipes._shipped())
    shipped["digits", 1] = {**shipped["digits", 1], "best": {}}
    monkeypatch.setattr(recipes, "_shipped", lambda: shipped)
    assert kinds("digits", 1)["mosaic+experts"].changes["form"] == "pixels"
    assert kinds("digits", 10)["mosaic+experts"].changes["form"] == "mosaic:2"
    assert budget(load_data("digits"), 1) == (650, 720)
