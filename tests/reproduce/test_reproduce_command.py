"""`pseudocoreset reproduce` on the digits, shortened: all cells, again, interrupted, corrupt."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from pseudocoreset import SGHMC, Pseudocoreset, load_data, recipes
from pseudocoreset.cli import main
from pseudocoreset.engine import files
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.posterior import named_sampler
from pseudocoreset.reproduce import measure_cell as measuring
from pseudocoreset.reproduce import run as running
from pseudocoreset.reproduce.cells import SIZES, Cell, Scope, cells_of
from pseudocoreset.reproduce.page import COMMAND, MARK
from pseudocoreset.reproduce.shipped import shipped_path
from pseudocoreset.reproduce.stored import SCORE_KEYS
from pseudocoreset.scale import SerialExecutor

SMALL = ["--data", "digits", "--num", "1", "--epochs", "2", "--steps", "1", "--seeds", "2"]
SCOPE = Scope("digits")
TINY, TINY_OF_PAPER = (named_sampler(name, SGHMC(epochs=2, every=1)) for name in ("tuned", "paper"))


@pytest.fixture(scope="module")
def shortened():
    patch = pytest.MonkeyPatch()
    patch.setattr(measuring, "NET", "convnet:width=4")
    samplers = (TINY, TINY_OF_PAPER)
    patch.setattr(measuring, "SAMPLERS", samplers)
    patch.setattr(measuring, "FULL_SAMPLERS", [replace(one, epochs=1) for one in samplers])
    few = {"samples": 2, "gamma": 2.0, "from_epoch": 1, "covariance_steps": 2, "student_steps": 2}
    shipped = with_values(recipes._shipped(), few)
    patch.setattr(recipes, "_shipped", lambda: shipped)
    yield
    patch.undo()


def with_values(shipped, changes, data="digits", size=None):
    """The recipes with other values for some data, where a method has such options."""

    def changed(values):
        return {**values, **{name: v for name, v in changes.items() if name in values}}

    return {
        key: {
            section: {method: changed(values) for method, values in of_section.items()}
            for section, of_section in sections.items()
        }
        if key[0] == data and size in (None, key[1])
        else sections
        for key, sections in shipped.items()
    }


def run(*arguments: object, code: int = 0) -> None:
    words = ["reproduce", *arguments, "--device", "cpu"]
    assert main([str(word) for word in words]) == code


@pytest.fixture(scope="module")
def results(shortened, tmp_path_factory):
    """All of table1, and its pictures, measured."""
    out = tmp_path_factory.mktemp("reproduce") / "results"
    run("table1", "pictures", *SMALL, "--out", out, "--quiet")
    return out


def copied(results: Path, tmp_path: Path) -> Path:
    out = tmp_path / "results"
    shutil.copytree(results, out)
    return out


def times(out: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in out.rglob("*.json")}


def test_every_cell_stores_what_made_it(results):
    stored = {path.name for path in (results / "table1" / "digits").glob("*.json")}
    assert stored == {f"{cell.file_name}.json" for cell in cells_of("table1", "paper", "digits")}
    content = json.loads((results / "table1" / "digits" / "fbpc-ipc10-paper.json").read_text())
    assert content["cell"]["method"] == "fbpc"
    assert len(content["seeds"]) == 2
    assert content["accuracy"] == sum(seed["accuracy"] for seed in content["seeds"]) / 2
    assert (content["experts"]["num"], content["experts"]["epochs"]) == (1, 2)
    assert (content["experts"]["lr"], content["experts"]["batch"]) == (0.01, 256)
    assert content["coreset"]["config"]["steps"] == 1
    assert content["protocol"]["prior"] == TINY.prior
    assert content["by_paper"].keys() == {*SCORE_KEYS, "seeds", "protocol", "pooled"}
    assert content["by_paper"]["protocol"]["prior"] != TINY.prior
    assert {"code", "torch"} <= content["versions"].keys()
    assert content["by_paper"]["nll"] != content["nll"]
    assert content["by_paper"]["nll"] == pytest.approx(
        fmean(scores["nll"] for scores in content["by_paper"]["seeds"])
    )
    assert content["device"] == "cpu"
    assert content["duration"]["distill_s"] > 0
    assert content["duration"]["whole"]
    assert {"nll", "nll_kim", "ece", "brier", "versions"} <= content.keys()


def test_random_images_differ_by_seed_and_other_coresets_do_not(results):
    cells = results / "table1" / "digits"
    random = json.loads((cells / "random-ipc1.json").read_text())
    assert len(set(random["fingerprints"])) == 2
    assert [signs["seed"] for signs in random["samplers"]] == [0, 1]
    assert len(json.loads((cells / "fbpc-ipc1-paper.json").read_text())["fingerprints"]) == 1


def test_full_data_have_a_protocol_of_their_own(results):
    full = json.loads((results / "table1" / "digits" / "full.json").read_text())
    assert full["coreset"]["images"] == 1297
    assert full["protocol"]["epochs"] == 1
    assert "convnet:depth=2,width=4" in full["protocol"]["net"]
    assert full["by_paper"]["protocol"]["epochs"] == 1
    assert full["by_paper"]["protocol"]["prior"] != full["protocol"]["prior"]


def test_second_run_skips_what_is_measured(results, capsys):
    before = times(results)
    run("table1", "pictures", *SMALL, "--out", results)
    shown = capsys.readouterr().out
    assert shown.count("measured before") == len(cells_of("table1", "paper", "digits"))
    assert shown.count("drawn before") == len(SIZES)
    assert times(results) == before
    assert "measured before (delete" in shown


def test_first_experts_are_taken_where_there_are_more(shortened, tmp_path):
    fingerprints = []
    for name, num in (("one", 1), ("two", 2), ("one of two", 1)):
        words = [*SMALL, "--num", num, "--seeds", 1, "--cells", "fbpc/1", "--work", tmp_path / "w"]
        run("table1", *words, "--out", tmp_path / name, "--quiet")
        path = tmp_path / name / "table1" / "digits" / "fbpc-ipc1-paper.json"
        content = json.loads(path.read_text())
        assert content["experts"]["num"] == num
        fingerprints.append(content["experts"]["fingerprint"])
    assert fingerprints[0] == fingerprints[2] != fingerprints[1]


def test_cells_with_other_settings_say_so(results, capsys):
    words = [*SMALL, "--steps", 7, "--seeds", 3, "--seed", 5, "--num", 4]
    run("table1", *words, "--out", results, "--cells", "fbpc/1,random/1")
    random, made = capsys.readouterr().out.splitlines()[:2]
    assert "before, with seeds 2, not 3, first seed 0, not 5 (delete" in random
    assert "first seed 0, not 5, experts 1, not 4, updates 1, not 7 (delete" in made


def test_tables_are_written_beside_the_cells(results, capsys):
    run("table1", "--out", results)
    assert "Nothing is measured without --data" in capsys.readouterr().out
    page = (results / "results.md").read_text()
    assert page.startswith(MARK.format(COMMAND))
    section = page[page.index("## Digits") :]
    assert "not measured" not in section
    assert section.count("1 expert × 2 epochs, 1 of ") == 12
    assert section.count("updates, 2 seeds") == 12
    assert (
        "![FBPC, 50 per class, 10 of them shown, recipe `paper`](pictures/digits-fbpc-ipc50.png)"
        in section
    )
    latex = (results / "table1" / "digits.tex").read_text()
    assert latex.count(r"\midrule") == 4
    assert r"$\pm$" in latex


def test_shipped_coreset_gives_the_scores_of_its_cell(results, tmp_path):
    stored = results / "coresets" / "digits-fbpc-ipc10.safetensors"
    assert stored.stat().st_size < 100 * 64 * 2 + 9000  # two bytes a pixel
    cell = json.loads((results / "table1" / "digits" / "fbpc-ipc10-paper.json").read_text())
    assert Pseudocoreset.load(stored).fingerprint == cell["fingerprints"][0]
    words = ["evaluate", stored, "--data", "digits", "--seeds", 2, "--json", tmp_path / "scores"]
    words += ["--epochs", 2, "--every", 1, "--device", "cpu", "--quiet"]
    assert main([str(word) for word in words]) == 0
    scores = json.loads((tmp_path / "scores").read_text())
    assert [scores[name] for name in ("accuracy", "nll")] == [cell["accuracy"], cell["nll"]]


def test_only_fbpc_is_shipped_unless_all_are_asked_for(results, tmp_path, capsys):
    names = {path.name for path in (results / "coresets").iterdir()}
    assert names == {f"digits-fbpc-ipc{ipc}.safetensors" for ipc in SIZES}
    out = copied(results, tmp_path)
    (tmp_path / "reproduce-work").symlink_to(results.parent / "reproduce-work")
    (out / "table1" / "digits" / "bpc-fkl-ipc1-paper.json").unlink()
    (out / "table1" / "digits" / "random-ipc1.json").unlink()
    run("table1", *SMALL, "--out", out, "--cells", "bpc-fkl/1,random/*", "--keep-coresets")
    assert capsys.readouterr().out.count("measured before") == 2
    kept = {path.name for path in (out / "coresets").iterdir()} - names
    assert kept == {"digits-bpc-fkl-ipc1.safetensors"}


def test_tuned_coreset_is_shipped_where_there_is_one(results, tmp_path):
    tuned, paper = Cell("table1", "fbpc", 1, "tuned"), Cell("table1", "fbpc", 1, "paper")
    made_by = {
        cell: Pseudocoreset.load(results / "coresets" / f"digits-fbpc-ipc{ipc}.safetensors")
        for cell, ipc in ((paper, 1), (tuned, 10))
    }

    def shipped_after(cell, scope=SCOPE):
        running._keep(cell, made_by[cell], scope, tmp_path, all_methods=False)
        path = shipped_path(tmp_path, SCOPE, "fbpc", 1)
        return Pseudocoreset.load(path).fingerprint if path.exists() else None

    assert shipped_after(paper, Scope("digits", 100)) is None
    assert shipped_after(paper) == made_by[paper].fingerprint
    tuned.path(tmp_path, SCOPE).parent.mkdir(parents=True)
    tuned.path(tmp_path, SCOPE).write_text("{}")
    assert shipped_after(tuned) == made_by[tuned].fingerprint
    assert shipped_after(paper) == made_by[tuned].fingerprint


def test_interrupted_run_goes_on(shortened, tmp_path, monkeypatch):
    measure, made = running.measure_cell, []

    def interrupted(cell, work):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(cell.name)
        return measure(cell, work)

    monkeypatch.setattr(running, "measure_cell", interrupted)
    options = [*SMALL, "--out", tmp_path / "results", "--cells", "fbpc/1,bpc-fkl/1,random/*"]
    run("table1", *options, "--quiet", code=130)
    cells = tmp_path / "results" / "table1" / "digits"
    assert [path.name for path in sorted(cells.iterdir())] == [
        "random-ipc1.json",
        "random-ipc10.json",
    ]
    made.clear()
    run("table1", *options, "--quiet", code=130)
    assert made == ["random/50", "bpc-fkl/1"]
    experts = list((tmp_path / "reproduce-work" / "digits").glob("experts-*/trajectory-*"))
    before = [path.stat().st_mtime_ns for path in experts]
    made.clear()
    run("table1", *options, "--quiet")
    assert made == ["fbpc/1"]
    assert [path.stat().st_mtime_ns for path in experts] == before


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"format": 2}', '{"format": 1, "cell": {"method": "fbpc"}}']
)
def test_corrupt_cell_is_refused_by_its_path(results, tmp_path, capsys, text):
    out = copied(results, tmp_path)
    path = out / "table1" / "digits" / "random-ipc10.json"
    path.write_text(text)
    for more in (SMALL, ["--list", "--data", "digits"], []):
        run("table1", *more, "--out", out, code=2)
        (line,) = capsys.readouterr().err.splitlines()
        assert str(path) in line
        assert "delete it to measure it again" in line
    assert path.read_text() == text


def test_cell_of_another_place_or_without_scores_is_refused(results, tmp_path, capsys):
    cells = copied(results, tmp_path) / "table1" / "digits"
    one, other = cells / "fbpc-ipc10-paper.json", cells / "fbpc-ipc1-paper.json"
    content = json.loads(one.read_text())
    one.write_text(other.read_text())
    run("table1", "--out", tmp_path / "results", code=2)
    assert "fbpc-ipc10-paper.json" in capsys.readouterr().err
    for samplers in ([], [{}]):
        one.write_text(json.dumps(content | {"samplers": samplers}))
        run("table1", "--out", tmp_path / "results", code=2)
        assert "fbpc-ipc10-paper.json" in capsys.readouterr().err
    one.write_text(json.dumps(content | {"nll_kim": float("nan")}))
    run("table1", "--out", tmp_path / "results", code=2)
    assert "it holds the number NaN" in capsys.readouterr().err


def test_cells_of_other_data_are_refused(results, tmp_path, capsys):
    out = copied(results, tmp_path)
    path = out / "table1" / "digits" / "random-ipc1.json"
    content = json.loads(path.read_text())
    content["coreset"]["data_fingerprint"] = "another"
    path.write_text(json.dumps(content))
    run("table1", *SMALL, "--out", out, "--cells", "random/1", code=2)
    assert str(path) in capsys.readouterr().err


def test_dsa_cells_are_not_augmented_and_a_holdout_has_its_own_folder(shortened, tmp_path):
    out = tmp_path / "results"
    run("dsa", *SMALL, "--out", out, "--cells", "fbpc/1", "--holdout", "100", "--quiet")
    content = json.loads((out / "dsa" / "digits-holdout100" / "fbpc-ipc1-paper.json").read_text())
    assert content["experts"]["dsa"] == content["coreset"]["config"]["dsa"] == "off"
    assert (content["protocol"]["split"], content["protocol"]["images"]) == ("holdout", 100)
    assert content["coreset"]["holdout"] == content["experts"]["holdout"] == 100
    assert not (out / "coresets").exists()
    assert "Digits, scored on 100 held-out training images" in (out / "results.md").read_text()


def test_resized_images_have_a_folder_of_their_own(shortened, tmp_path):
    out = tmp_path / "results"
    run("table1", *SMALL, "--out", out, "--cells", "random/1", "--image-size", "16", "--quiet")
    path = Cell("table1", "random", 1, None).path(out, Scope("digits", image_size=16))
    made_of = json.loads(path.read_text())["coreset"]["data_fingerprint"]
    assert made_of == load_data("digits", 16).fingerprint
    assert (
        "## Digits resized to 16×16, scored on the test images" in (out / "results.md").read_text()
    )


def test_list_says_what_is_measured_and_how_long_it_took(results, tmp_path, capsys):
    run("--list", "--data", "digits", "--out", results)
    shown = capsys.readouterr().out
    assert "paper: 16 of 16 cells measured; 0:" in shown
    assert "tuned" not in shown  # nothing is, on digits
    assert "paper: 0 of 6 cells measured; time unknown" in shown
    assert "missing: bpc-fkl/1 (about 0:" in shown  # as long as with augmentation
    assert "3 of 3 drawn" in shown
    run("--list", "--out", results)
    tuned = [cell for cell in cells_of("table1", "tuned", "cifar10") if cell.recipe == "tuned"]
    table1 = capsys.readouterr().out.partition("dsa:")[0]
    assert f"tuned: 0 of {len(tuned)} cells measured" in table1
    out = copied(results, tmp_path)
    (out / "table1" / "digits" / "bpc-rkl-ipc1-paper.json").unlink()
    run("table1", "--list", "--data", "digits", "--out", out)
    shown = capsys.readouterr().out
    assert "paper: 15 of 16 cells measured" in shown
    assert "missing: bpc-rkl/1\n" in shown
    assert "dsa:" not in shown


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["table3"], "table3"),
        (["table1", "--recipe", "nosuch"], "--recipe"),
        (["table1", "--seeds", "0"], "--seeds"),
        (["table1", "--holdout", "-5"], "--holdout"),
        (["table1", "--steps", "-1"], "--steps"),
        (["dsa", "--data", "digits", "--cells", "random/*"], "--cells"),
        (["table1", "--cells", "fbpc/10"], "--data"),
        (["table1", "--num", "0", "--data", "digits"], "--num"),
        (["table1", "--epochs", "0", "--data", "digits"], "--epochs"),
        (["table1", "--data", "diabetes"], "--data"),
        (["--list", "--cells", "fbpc/1"], "--cells"),
    ],
)
def test_mistake_is_refused_in_one_line(arguments, names, tmp_path, capsys):
    run(*arguments, "--out", tmp_path / "results", code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert names in line
    assert not list(tmp_path.iterdir())


def test_unwritable_place_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(running, "measure_cell", pytest.fail)
    for out, work in ((file / "results", tmp_path / "w"), (tmp_path / "o", file)):
        words = ["--cells", "random/1", "--out", out, "--work", work]
        run("table1", *SMALL, *words, code=2)
        assert f"{file} is a file" in capsys.readouterr().err
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    run("table1", *SMALL, "--cells", "random/1", "--out", tmp_path / "o", code=2)
    assert "can't be written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


def test_run_of_more_updates_is_named_with_its_folder(results, tmp_path, capsys):
    out, work = copied(results, tmp_path), tmp_path / "work"
    shutil.copytree(results.parent / "reproduce-work", work)
    cell = Cell("table1", "fbpc", 1, "paper").path(out, SCOPE)
    words = [*SMALL, "--out", out, "--work", work, "--cells", "fbpc/1", "--quiet"]
    cell.unlink()
    run("table1", *words, "--steps", "0", code=2)
    (line,) = capsys.readouterr().err.splitlines()
    (folder,) = (work / "digits" / "runs").glob("fbpc-ipc1-paper-*-seed0")
    assert str(folder) in line
    assert "--work" in line
    assert "--out" not in line
    shutil.rmtree(folder)
    run("table1", *words, "--steps", "0")
    assert cell.exists()


@pytest.mark.parametrize("changes", [{"from_epoch": 3}, {"from_epoch": 1, "to_epoch": 3}])
def test_too_few_epochs_are_refused_before_anything_is_measured(
    results, tmp_path, capsys, monkeypatch, changes
):
    later = with_values(recipes._shipped(), changes, size=1)
    monkeypatch.setattr(recipes, "_shipped", lambda: later)
    words = ["table1", *SMALL, "--cells", "random/1,bpc-fkl/1,fbpc*/1,fbpc/10"]
    run("dsa", *words, "--out", tmp_path / "results", code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "--epochs 2" in line
    assert "fbpc/1 (3), fbpc-isotropic/1 (3)" in line
    assert not list(tmp_path.iterdir())
    run(*words, "--out", results, "--quiet")  # where they were measured before, there is no need


class Sent(SerialExecutor):
    """Runs tasks here as if it were elsewhere: what goes there and back is pickled."""

    def put(self, value):
        return pickle.loads(pickle.dumps(value))

    def run(self, tasks):
        for task in tasks:
            sent = pickle.loads(pickle.dumps(task))
            yield task, pickle.loads(pickle.dumps(sent.function(*sent.arguments)))


def test_cells_that_are_measured_elsewhere_are_the_same(results, tmp_path, monkeypatch, capsys):
    """Two are measured again; the others are left as they are."""
    out = copied(results, tmp_path)
    names = ["random-ipc1.json", "fbpc-ipc10-paper.json"]
    paths = [out / "table1" / "digits" / name for name in names]
    for path in paths:
        path.unlink()
    before = times(out)
    monkeypatch.setattr("pseudocoreset.cli.reproduce.executor_for", lambda _: Sent())
    run("table1", *SMALL, "--out", out)
    assert capsys.readouterr().out.count("measured before") == len(before)
    assert {name: before[name] for name in before} == {n: times(out)[n] for n in before}
    for path in paths:
        contents = [json.loads((results / path.relative_to(out)).read_text())]
        contents.append(json.loads(path.read_text()))
        for content in contents:
            del content["duration"]
        assert contents[0] == contents[1]


@pytest.mark.parametrize("said", [{}, {"test_accuracy": "high"}])
def test_experts_without_an_accuracy_are_refused(store, monkeypatch, said):
    assert 0 <= measuring.described(store)["test_accuracy"] <= 1
    monkeypatch.setattr(ExpertStore, "describe", lambda *_: said)
    with pytest.raises(UserError, match="no test accuracy"):
        measuring.described(store)
