"""Improving settings one at a time on held-out images: what is kept, and what is made again."""

import json
import sys
from unittest.mock import Mock

import pytest

import climb_recipe
import script
from pseudocoreset import Pseudocoreset, load_data, train_experts
from small_world import NET

BASE = {"method": "fbpc-isotropic", "ipc": 1, "steps": 2, "gamma": 2.0, "from_epoch": 1}
BASE |= {"sampler_epochs": 10, "sampler_every": 5}


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    """Experts of the digits but for a hundred."""
    folder = tmp_path_factory.mktemp("held-out") / "experts"
    few = {"num": 1, "epochs": 1, "lr": 0.1, "batch": 256, "device": "cpu", "progress": False}
    train_experts(load_data("digits").hold_out(100), NET, folder, **few)
    return folder


@pytest.fixture
def climb(monkeypatch, tmp_path, experts, capsys):
    """Run the script on a plan: its exit code, what it wrote and what it said."""

    def climb(plan, *more):
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        words = [tmp_path / "plan.json", "--data", "digits", "--holdout", 100, "--experts", experts]
        words += ["--device", "cpu", "--seeds", 1, "--out", tmp_path / "found.json", *more]
        monkeypatch.setattr(sys, "argv", [*map(str, ["climb_recipe.py", *words])])
        with pytest.raises(SystemExit) as ended:
            script.exit_with(climb_recipe.main)
        found = tmp_path / "found.json"
        content = json.loads(found.read_text()) if found.exists() else {}
        return ended.value.code, content, capsys.readouterr().err

    return climb


@pytest.fixture
def made(monkeypatch):
    """The options of each coreset that was made, and what it started from."""
    jobs, run = [], climb_recipe.run

    def counted(job, *arguments, **named):
        jobs.append((job.options, job.start))
        return run(job, *arguments, **named)

    monkeypatch.setattr(climb_recipe, "run", counted)
    return jobs


def test_change_that_lowers_the_nll_is_kept_and_others_are_not(climb, made, monkeypatch):
    scores = iter([2.0, 1.0, 3.0, 1.5])  # of the base, a better try, a worse one and the last

    def scored(*_, **__):
        nll = next(scores)
        part = {"accuracy": 0.5, "nll": nll, "ece": 0.1}
        found = {**part, "single": part, "pooled": part, "pooled_temperature": 1.0}
        return Mock(as_json=lambda: found)

    monkeypatch.setattr(climb_recipe, "evaluate", scored)
    tries = [{"gamma": 1.5}, {"lr_images": 9.0, "with": {"momentum": 0.1}}, {"gama": 3}]
    code, found, _ = climb({"base": BASE, "tries": tries, "final": {"steps": 3}})
    assert code in (0, None)
    base, better, worse, failed, last = found["rows"]
    assert [row.get("kept") for row in found["rows"]] == [True, True, False, None, True]
    assert base["settings"] == BASE
    assert better["settings"] == {**BASE, "gamma": 1.5}
    assert worse["settings"] == {**better["settings"], "lr_images": 9.0, "momentum": 0.1}
    assert "gama" in failed["failed"]
    assert last["settings"] == {**better["settings"], "steps": 3}
    assert [options.steps for options, _ in made] == [2, 2, 2, 3]
    assert (found["holdout"], found["seeds"], found["experts"]) == (100, 1, "1 of 1 epochs")


def test_scores_are_of_held_out_images_by_the_sampler_that_is_named(climb, made, tmp_path):
    """A sampler or sharper labels need no other coreset; `previous` starts from the best."""
    tries = [
        {"sampler_schedule": "cosine", "always": True},
        {"sampler_schedule": None, "sampler_name": "map", "always": True},
        {"label_temperature": 0.5, "always": True},
        {"init": "previous", "always": True},
    ]
    base = {**BASE, "labels": "learned"}
    code, found, _ = climb({"base": base, "tries": tries}, "--keep", tmp_path / "best.safetensors")
    assert code in (0, None)
    assert not [row["failed"] for row in found["rows"] if "failed" in row]
    scores = [row["scores"]["chain"]["nll"] for row in found["rows"]]
    assert len(set(scores)) == 5
    assert all(0 < row["scores"]["pooled"]["accuracy"] < 1 for row in found["rows"])
    assert "sampler_schedule" not in found["rows"][2]["settings"]
    (_, nothing), (_, start) = made
    assert nothing is None
    assert start is not None
    assert start.provenance.holdout == 100
    kept = Pseudocoreset.load(tmp_path / "best.safetensors")
    assert kept.provenance.config["init_coreset"] == start.fingerprint
    assert kept.precision == "half"


def test_no_try_is_begun_when_time_is_up(climb, made):
    tries = [{"gamma": 1.5}]
    _, found, _ = climb({"base": BASE, "tries": tries, "final": {"steps": 1}}, "--seconds", -1)
    assert [row["changes"] for row in found["rows"]] == [{}, {"steps": 1}]
    assert len(made) == 2


def test_base_that_is_wrong_is_one_sentence(climb):
    code, found, said = climb({"base": {**BASE, "speed": 3}, "tries": []})
    assert (code, found) == (2, {})
    assert said.count("\n") == 1
    assert "speed" in said
