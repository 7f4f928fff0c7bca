"""Trying settings on held-out images: what is kept, what is run again, and what is refused."""

import json
import re
import sys
from time import sleep
from unittest.mock import Mock

import pytest

import choose_recipe
import script
from pseudocoreset import UserError, load_data, train_experts
from small_world import NET

FEW = {"ipc": 1, "steps": 2, "gamma": 2.0, "covariance_steps": 2, "from_epoch": 1}


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    """Experts of the digits but for a hundred."""
    folder = tmp_path_factory.mktemp("held-out") / "experts"
    return trained(load_data("digits").hold_out(100), folder)


def trained(data, folder):
    few = {"num": 1, "epochs": 1, "lr": 0.1, "batch": 256, "device": "cpu", "progress": False}
    train_experts(data, NET, folder, **few)
    return folder


def give(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", [*map(str, ["choose_recipe.py", *words])])


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the script on some tries: its exit code and what it printed."""

    def in_this_process(_, *words, longest_s):
        give(monkeypatch, *words)
        options = choose_recipe.parse()
        try:
            return choose_recipe.tried(json.loads(options.one), options)
        except UserError as error:
            return {"failed": str(error)}

    def run(folder, experts, tries, *more):
        (folder / "tries.json").write_text(json.dumps(tries))
        words = [folder / "tries.json", "--data", "digits", "--holdout", 100, "--experts", experts]
        words += ["--device", "cpu", "--epochs", 10, "--out", folder / "found.json", *more]
        give(monkeypatch, *words)
        with pytest.raises(SystemExit) as ended:
            script.exit_with(choose_recipe.main)
        printed = capsys.readouterr()
        return ended.value.code, printed.out + printed.err

    monkeypatch.setattr(choose_recipe, "run_script", in_this_process)
    return run


def test_tries_are_run_once_and_added_to_what_is_there(run, tmp_path, experts):
    earlier = {"experts": "of another time", "rows": [{"name": "fbpc"}]}
    (tmp_path / "found.json").write_text(json.dumps({"what": "mine", "waves": [earlier]}))
    tries = [{"name": "fbpc", **FEW}, {"name": "bad", **FEW, "from_epoch": 9}]
    code, printed = run(tmp_path, experts, tries)
    assert code == 1
    assert "bad failed" in printed
    assert "epoch" in printed
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["what"] == "mine"
    assert found["waves"][0] == earlier
    wave = found["waves"][1]
    assert wave["experts"] == "1 of 1 epochs"
    assert wave["protocol"]["epochs"] == 10
    assert str(tmp_path) not in wave["command"]
    (row,) = wave["rows"]
    assert (row["name"], row["settings"], wave["seeds"]) == ("fbpc", FEW, 1)
    assert 0 < row["accuracy"] < 1
    assert row["nll"] > 0
    assert row["map_steps"][0] >= 10
    assert len(row["variance_u"]) == 3

    other = {"name": "isotropic", "method": "fbpc-isotropic", "from_epoch": 1, "steps": 0}
    row["accuracy"] = 0.5  # a mark that would be gone, were it run again
    (tmp_path / "found.json").write_text(json.dumps(found))
    assert run(tmp_path, experts, [tries[0], other])[0] == 0
    rows = json.loads((tmp_path / "found.json").read_text())["waves"][1]["rows"]
    assert [row["name"] for row in rows] == ["fbpc", "isotropic"]
    assert rows[0]["accuracy"] == 0.5
    assert "variance_u" not in rows[1]

    code, printed = run(tmp_path, experts, [{**tries[0], "steps": 3}])
    assert code == 2
    assert "other settings" in printed


def test_tries_run_in_processes_of_their_own_on_resized_images(run, tmp_path, monkeypatch):
    monkeypatch.setattr(choose_recipe, "run_script", script.run_script)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    experts = trained(load_data("digits", 12).hold_out(100), tmp_path / "experts")
    tries = [{"name": "random", "method": "random", "ipc": 1}]
    code, printed = run(tmp_path, experts, tries, "--image-size", 12)
    assert code == 0, printed
    (wave,) = json.loads((tmp_path / "found.json").read_text())["waves"]
    assert "--image-size 12 " in wave["command"]
    assert 0 < wave["rows"][0]["accuracy"] < 1


GOOD = [{"name": "a", **FEW}]


@pytest.mark.parametrize(
    ("tries", "more", "sentence"),
    [
        ({}, [], "is empty"),
        (3, [], "no list of settings"),
        ([{"ipc": 1}], [], "no list of settings"),
        ([{"name": "a", "lr_z": 1}], [], "'a' can't be tried: .*lr_z"),
        ([{"name": "a", "ipc": "one"}], [], "'a' can't be tried"),
        ([{"name": "a"}, {"name": "a"}], [], "a name twice"),
        (GOOD, ["--seeds", 0], "--seeds is too small"),
        (GOOD, ["--epochs", 25], "no multiple of 10"),
        (GOOD, ["--out", "OTHER"], "no file of this script"),
        (GOOD, ["--out", "FOLDER"], "no file of this script"),
    ],
)
def test_tries_with_a_mistake_are_refused(
    tmp_path, experts, monkeypatch, capsys, tries, more, sentence
):
    (tmp_path / "OTHER").write_text("[]")
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "tries.json").write_text(json.dumps(tries))
    monkeypatch.chdir(tmp_path)
    words = ["tries.json", "--data", "digits", "--holdout", 100, "--experts", experts]
    give(monkeypatch, *words, "--out", "new.json", *more)
    with pytest.raises((UserError, SystemExit)) as refused:
        choose_recipe.main()
    assert re.search(sentence, str(refused.value) + capsys.readouterr().err)
    assert not (tmp_path / "new.json").exists()


def test_tries_left_over_do_not_begin_after_a_failure(tmp_path, experts, monkeypatch):
    (tmp_path / "tries.json").write_text(
        json.dumps([{**GOOD[0], "name": str(n)} for n in range(9)])
    )
    begun = []
    row = {"name": "0", "settings": FEW, "accuracy": 1, "nll": 1, "nll_kim": 1}
    monkeypatch.setattr(
        choose_recipe, "run_script", lambda *_, **__: begun.append(1) or sleep(0.2) or row
    )
    monkeypatch.setattr(choose_recipe, "write_json", Mock(side_effect=OSError("no space left")))
    words = [tmp_path / "tries.json", "--data", "digits", "--holdout", 100, "--experts", experts]
    give(monkeypatch, *words, "--out", tmp_path / "new.json")
    with pytest.raises(OSError, match="no space left"):
        choose_recipe.main()
    assert len(begun) < 4


def test_tries_are_scored_on_the_images_that_were_held_out(experts, monkeypatch):
    scored = []

    def evaluate(_, data, __, *, split, **___):
        scored.append((split, len(data.holdout)))
        return Mock(mean=lambda _: 0.5)

    monkeypatch.setattr(choose_recipe, "evaluate", evaluate)
    words = ["--one", "{}", "--data", "digits", "--holdout", 100, "--experts", experts]
    give(monkeypatch, *words, "--device", "cpu")
    one = {"name": "a", "settings": {"from_epoch": 1, "steps": 0}}
    row = choose_recipe.tried(one, choose_recipe.parse())
    assert scored == [("holdout", 100)]
    config = row.pop("config")
    assert (config["from_epoch"], config["steps"], config["gamma"]) == (1, 0, 0.3)
    assert row == {**one, "accuracy": 0.5, "nll": 0.5, "nll_kim": 0.5, "ece": 0.5}


def test_along_means_the_first_middle_and_last_updates():
    assert choose_recipe.along(range(100)) == [9.5, 49.5, 89.5]
    assert choose_recipe.along([0.001, 0.0011, 0.0018]) == [0.0013] * 3
