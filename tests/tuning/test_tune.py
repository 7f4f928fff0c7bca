"""`tune` searches settings on held-out points and writes them as a recipe."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import pseudocoreset as pc
from pseudocoreset.cli import main
from pseudocoreset.errors import DivergedError
from pseudocoreset.evaluation.evaluate import Evaluation
from pseudocoreset.evaluation.metrics import Scores
from pseudocoreset.scale import ProcessExecutor, SerialExecutor
from pseudocoreset.tuning import attempt as trial_module
from pseudocoreset.tuning.trials import FINISHED, PRUNED, RUNNING, Trial, Trials
from small_world import NET, make_data, make_store
from toy_methods import Searched, SearchedAndKilled

HELD_OUT = 15
QUICK = {
    "ipc": 1,
    "steps": 8,
    "lr_images": 0.1,
    "chain_epochs": 10,
    "device": "cpu",
    "progress": False,
}
ISOTROPIC = pc.FBPCIsotropic(lr_map=0.01, max_map_steps=10, samples=3, draws=1)


@pytest.fixture(scope="module")
def held():
    return make_data().hold_out(HELD_OUT)


@pytest.fixture(scope="module")
def experts(held, tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("held"), held)


def rows(out):
    """What a search found, without times."""
    content = json.loads((Path(out) / "trials.json").read_text())
    return [{k: v for k, v in row.items() if k != "seconds"} for row in content["trials"]]


def stopping_after(number):
    """An executor that is interrupted in the trial after so many."""

    class Stopping(SerialExecutor):
        def run(self, tasks):
            for done, task in enumerate(tasks):
                if done == number:
                    raise KeyboardInterrupt
                yield task, task.function(*task.arguments)

    return Stopping()


@pytest.mark.slow
def test_search_on_digits_is_no_worse_than_the_recipe_and_its_recipe_gives_its_score(
    tmp_path, capsys
):
    words = ["--data", "digits", "--ipc", 1, "--method", "fbpc-isotropic", "--steps", 4]
    search = [*words, "--net", "convnet:width=4", "--num", 2, "--epochs", 3, "--trials", 4]
    out, run = tmp_path / "tune", tmp_path / "run"
    given = [*search, "--out", out, "--chain-epochs", 20, "--device", "cpu", "--quiet"]
    assert main(["tune", *map(str, given)]) == 0
    found = rows(out)
    finished = [row for row in found if row["state"] == FINISHED]
    assert [row["number"] for row in found] == list(range(4))
    best = min(finished, key=lambda row: row["nll"])
    assert best["nll"] <= found[0]["nll"]
    assert main(["info", str(out)]) == 0
    assert f"lowest NLL         {best['nll']}" in capsys.readouterr().out

    data = pc.load_data("digits").hold_out(120)
    chain = pc.SGHMC(epochs=20, every=2)
    for name, recipe, row in (("a", "best", found[0]), ("b", out / "recipe.yaml", best)):
        made = [*words, "--holdout", 120, "--experts", out / "experts", "--recipe", recipe]
        made += ["--out", run / name, "--device", "cpu", "--quiet"]
        assert main(["distill", *map(str, made)]) == 0
        coreset = pc.Pseudocoreset.load(run / name / "coreset.safetensors")
        scores = pc.evaluate(
            coreset, data, chain, seeds=1, split="holdout", device="cpu", progress=False
        )
        assert scores.nll == row["nll"]
        assert scores.accuracy == row["scores"]["accuracy"]


def test_recipe_has_the_updates_of_the_recipe_it_began_with(held, experts, tmp_path, monkeypatch):
    monkeypatch.setattr("pseudocoreset.tuning.first_trial.FEW_UPDATES", 4)
    options = {name: value for name, value in QUICK.items() if name != "steps"}
    found = pc.tune(held, experts, ISOTROPIC, out=tmp_path, trials=1, **options)
    values = yaml.safe_load(found.recipe.read_text())["best"]["fbpc-isotropic"]
    assert values["steps"] > 200
    assert values["lr_map"] == 0.01  # what was given is part of it
    assert json.loads((tmp_path / "trials.json").read_text())["settings"]["steps"] == 4
    assert "nll" in repr(found)


@pytest.mark.parametrize("kind", ["toy", pytest.param("isotropic", marks=pytest.mark.slow)])
def test_resumed_search_equals_one_that_was_not_interrupted(held, experts, tmp_path, kind):
    """The twelve trials are more than those of one option each, and some are pruned."""
    toy, isotropic = {"method": Searched(), "net": NET}, {"method": ISOTROPIC, "experts": experts}
    given = {**QUICK, **(toy if kind == "toy" else isotropic)}
    pc.tune(held, out=tmp_path / "whole", trials=12, **given)
    whole = rows(tmp_path / "whole")
    assert {row["state"] for row in whole} == {FINISHED, PRUNED}

    with pytest.raises(KeyboardInterrupt):
        pc.tune(held, out=tmp_path / "cut", trials=12, executor=stopping_after(5), **given)
    assert [row["state"] == RUNNING for row in rows(tmp_path / "cut")] == [False] * 5 + [True]
    pc.tune(held, out=tmp_path / "cut", trials=10, **given)
    pc.tune(held, out=tmp_path / "cut", trials=12, **given)
    assert rows(tmp_path / "cut") == whole
    assert (tmp_path / "cut/recipe.yaml").read_text() == (
        tmp_path / "whole/recipe.yaml"
    ).read_text()


def test_killed_search_goes_on_to_the_same_end(tmp_path):
    """SIGKILL, for real, at an update; each start is the same command."""
    words = ["--data", "digits", "--method", "toy_methods:Searched", "--net", "convnet:width=4"]
    words += ["--ipc", "1", "--steps", "8", "--chain-epochs", "10", "--trials", "5"]
    words += ["--form", "pixels", "--labels", "hard", "--lr-images", "0.1", "--device", "cpu"]
    words += ["--quiet"]
    assert main(["tune", *words, "--out", str(tmp_path / "whole")]) == 0
    marker = tmp_path / "marker"
    marker.touch()
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TOY_MARKER": str(marker), "PYTHONPATH": path}
    command = [sys.executable, "-m", "pseudocoreset", "tune", *words, "--out", tmp_path / "cut"]
    for updates, code in ((19, -9), (1000, 0)):
        environment["TOY_UPDATES"] = str(updates)
        assert subprocess.run(command, env=environment, check=False).returncode == code
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")


def test_trials_side_by_side_are_each_told_once(held, tmp_path, monkeypatch):
    """They end in another order than they began in, and the search is stopped before some end."""

    class Backwards(SerialExecutor):
        slots = 3

        def run(self, tasks):
            waiting = []
            for task in tasks:
                waiting.append(task)
                if len(waiting) == self.slots:
                    last = waiting.pop()
                    yield last, last.function(*last.arguments)
            raise KeyboardInterrupt

    given = {**QUICK, "method": Searched(), "net": NET, "trials": 6}
    with pytest.raises(KeyboardInterrupt):
        pc.tune(held, out=tmp_path, executor=Backwards(), **given)
    stopped = rows(tmp_path)
    assert [row["state"] for row in stopped[:2]] == [RUNNING] * 2
    assert all(row["state"] != RUNNING for row in stopped[2:])
    made = []
    attempt = trial_module.attempt
    monkeypatch.setattr(
        "pseudocoreset.tuning.driver.attempt", lambda *given: made.append(1) or attempt(*given)
    )
    pc.tune(held, out=tmp_path, **given)
    assert len(made) == 2
    ended = rows(tmp_path)
    assert [row["settings"] for row in ended] == [row["settings"] for row in stopped]
    assert ended[2:] == stopped[2:]


@pytest.mark.slow
def test_trials_in_processes_score_as_here(held, experts, tmp_path):
    given = {**QUICK, "method": ISOTROPIC, "experts": experts, "trials": 6}
    pc.tune(held, out=tmp_path / "there", executor=ProcessExecutor(2), **given)
    pc.tune(held, out=tmp_path / "here", **given)
    there, here = rows(tmp_path / "there"), rows(tmp_path / "here")
    assert [row["number"] for row in there] == list(range(6))
    assert there[:2] == here[:2]  # the rest follow from what had ended when they were begun


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_killed_worker_costs_no_trial(held, tmp_path, monkeypatch, kind):
    """SIGKILL, for real, in the seventh update of some trial, which runs again."""
    given = {**QUICK, "net": NET, "trials": 5}
    monkeypatch.setenv("TOY_MARKER", str(tmp_path / "marker"))
    if kind == "ray":
        ray = pytest.importorskip("ray")
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        executor = ProcessExecutor(2) if kind == "processes" else pc.RayExecutor("auto")
        method = SearchedAndKilled()
        pc.tune(held, method=method, out=tmp_path / "there", executor=executor, **given)
    finally:
        if kind == "ray":
            ray.shutdown()
    assert (tmp_path / "marker").exists()
    monkeypatch.delenv("TOY_MARKER")
    pc.tune(held, method=Searched(), out=tmp_path / "here", **given)
    there, here = rows(tmp_path / "there"), rows(tmp_path / "here")
    assert [row["number"] for row in there] == list(range(5))
    for one, other in zip(there, here, strict=True):
        assert one["settings"] == other["settings"]  # the first are drawn at random
        if one["state"] == other["state"]:  # and stopped by those that had ended
            assert one["nll"] == other["nll"]


@pytest.mark.cuda
@pytest.mark.parametrize("executor", [None, ProcessExecutor(2)])
def test_trials_run_on_a_gpu(tmp_path, executor):
    quick = {**QUICK, "device": "cuda", "num": 2, "epochs": 3, "net": "convnet:width=32"}
    del quick["lr_images"]
    data = pc.load_data("digits")
    found = pc.tune(data, out=tmp_path, trials=4, executor=executor, **quick)
    assert {trial.made_with["device"] for trial in found.trials} != {"cpu"}
    assert found.first.state == FINISHED


def test_trial_that_begins_badly_is_stopped(held, tmp_path, monkeypatch):
    begun = []
    run = trial_module.run
    monkeypatch.setattr(
        trial_module,
        "run",
        lambda job, *a, **k: begun.append(job.options.steps) or run(job, *a, **k),
    )
    early = [0.5, 0.7, 0.6, 0.8, 0.74, 0.78]  # the last quartiles before: 0.775, 0.77
    monkeypatch.setattr(trial_module, "evaluate", _scores(early))
    found = pc.tune(held, method=Searched(), net=NET, out=tmp_path, trials=6, **QUICK)
    assert [trial.state for trial in found.trials] == [FINISHED] * 5 + [PRUNED]
    assert begun == [2, 8] * 5 + [2]
    assert found.trials[5].early_nll == 0.78


def _scores(early):
    """Scores of trials, one after another, each before and after; later ones are better."""

    values = iter(
        [value for number, nll in enumerate(early) for value in (nll, 0.4 - number / 100)]
    )
    return lambda *_, **__: Evaluation([Scores({"nll": next(values)})], [], {}, {}, {})


def test_trial_that_diverges_is_the_worst_and_the_search_goes_on(held, tmp_path, monkeypatch):
    monkeypatch.setattr(trial_module, "evaluate", _scores([0.5, float("nan"), 0.5]))
    found = pc.tune(held, method=Searched(), net=NET, out=tmp_path, trials=2, **QUICK)
    assert found.best.number == 1

    def diverges(job, *arguments, **named):
        if job.method.centre != 0.5:
            raise DivergedError("update 3 gave a loss that is not finite.")
        return run(job, *arguments, **named)

    run, only = trial_module.run, {**QUICK, "form": "pixels", "labels": "hard"}
    monkeypatch.undo()
    monkeypatch.setattr(trial_module, "run", diverges)
    found = pc.tune(held, method=Searched(), net=NET, out=tmp_path / "b", trials=3, **only)
    assert [trial.state for trial in found.trials] == [FINISHED, "failed", "failed"]
    assert "update 3" in found.trials[1].failed
    assert found.best == found.first


def test_search_without_a_score_says_why(held, tmp_path, monkeypatch):
    def diverges(*_, **__):
        raise DivergedError("update 3 gave a loss that is not finite.")

    monkeypatch.setattr(trial_module, "run", diverges)
    with pytest.raises(pc.UserError, match="no trial gave a score: update 3"):
        pc.tune(held, method=Searched(), net=NET, out=tmp_path, trials=2, **QUICK)


def test_no_trial_begins_after_so_many_seconds(held, tmp_path):
    given = {**QUICK, "method": Searched(), "net": NET, "trials": 5}
    found = pc.tune(held, out=tmp_path, seconds=1e-9, **given)
    assert len(found.trials) == 1
    assert len(pc.tune(held, out=tmp_path, **given).trials) == 5


def test_points_are_held_out_by_default(tmp_path):
    data = make_data()
    found = pc.tune(data, method=Searched(), net=NET, out=tmp_path, trials=1, **QUICK)
    settings = json.loads((tmp_path / "trials.json").read_text())["settings"]
    assert settings["holdout"] == 6  # a tenth of 60
    assert settings["data_fingerprint"] == data.hold_out(6).fingerprint
    assert found.first.made_with["device"] == "cpu"


def test_test_points_are_never_looked_at(held, tmp_path, monkeypatch):
    """Other test points, the same search."""
    given = {**QUICK, "method": Searched(), "net": NET, "trials": 2}
    pc.tune(held, out=tmp_path / "a", **given)
    other = replace(held, test=held.train.take(held.train.targets.argsort()[:9]))
    pc.tune(other, out=tmp_path / "b", **given)
    assert [row["nll"] for row in rows(tmp_path / "a")] == [
        row["nll"] for row in rows(tmp_path / "b")
    ]


def refused(*positional, **named):
    with pytest.raises(pc.UserError) as error:
        pc.tune(*positional, progress=False, device="cpu", **named)
    return str(error.value)


def test_what_can_not_be_searched_is_refused(held, experts, store, tmp_path):
    out = tmp_path / "new"
    assert "no settings to search" in refused(held, method="random", out=out)
    assert "of other data" in refused(held, store, out=out)
    assert "`holdout`" in refused(make_data(), store, out=out)
    assert "`lr_z` is not an option" in refused(held, experts, out=out, lr_z=1)
    assert "`chain_epochs` is 25" in refused(held, experts, out=out, chain_epochs=25)
    assert "`trials` is 0" in refused(held, experts, out=out, trials=0)
    assert "does not divide" in refused(held, out=out, form="mosaic:3")  # before experts are made
    assert "leave it out" in refused(held, experts, "bpc-rkl", out=out, lr_images=1.0)
    fixed = {"form": "pixels", "labels": "hard", "lr_images": 1.0}
    assert "no setting left" in refused(
        held, method=Searched(centre=1.0), net=NET, out=out, **fixed
    )
    assert not out.exists()


def test_folder_of_another_search_is_refused(held, tmp_path):
    given = {"method": Searched(), "net": NET, "trials": 1}
    pc.tune(held, out=tmp_path, **given, **QUICK)
    quick = {k: v for k, v in QUICK.items() if k not in ("device", "progress")}
    assert "seed 0, not 1" in refused(held, out=tmp_path, seed=1, **given, **quick)
    assert "steps 8, not 9" in refused(held, out=tmp_path, **{**given, **quick, "steps": 9})
    more = {**given, **quick, "method": Searched(centre=0.5)}
    assert "searched" in refused(held, out=tmp_path, **more)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"settings": {"centre": 0.5}}, "settings that are not searched here"),
        ({"settings": {"centre": "far"}}, "settings that are not searched here"),
        ({"settings": []}, "can't be read"),
        ({"number": "one"}, "can't be read"),
        ({"number": 1}, "can't be read"),
        ({"state": "lost"}, "can't be read"),
        ({"nll": None}, "can't be read"),
        ({"early_nll": True}, "can't be read"),
        (None, "can't be read"),
    ],
)
def test_damaged_trials_are_refused_and_kept(held, tmp_path, change, sentence):
    given = {"method": Searched(), "net": NET, "trials": 1, **QUICK}
    pc.tune(held, out=tmp_path, **given)
    path = tmp_path / "trials.json"
    content = json.loads(path.read_text())
    content["trials"] = [None if change is None else {**content["trials"][0], **change}]
    path.write_text(json.dumps(content))
    before = path.read_text()
    with pytest.raises(pc.UserError, match=sentence):
        pc.tune(held, out=tmp_path, **given)
    assert path.read_text() == before


def test_trials_are_on_disk_before_they_count(tmp_path):
    trials = Trials(tmp_path / "trials.json", {"seed": 3})
    trials.put(Trial(1, {"a": 1}))
    trials.put(Trial(0, {"a": 2}, FINISHED, nll=0.5))
    trials.put(Trial(1, {"a": 1}, FINISHED, nll=0.4))
    again = Trials(tmp_path / "trials.json")
    assert again.all() == trials.all()
    assert again.best() == trials.all()[1]
    assert json.loads((tmp_path / "trials.json").read_text())["seed"] == 3


def test_distill_without_a_recipe_for_the_data_names_tune(tmp_path, capsys):
    data = pc.load_data("digits")
    arrays = {"train_images": data.train.inputs, "train_labels": data.train.targets}
    arrays |= {"test_images": data.test.inputs, "test_labels": data.test.targets}
    np.savez(tmp_path / "own.npz", **{name: array.numpy() for name, array in arrays.items()})
    (tmp_path / "own.yaml").write_text("best: {vbpc: {lr_pool: 0.01}}")
    words = ["--method", "vbpc", "--steps", "1", "--ipc", "1", "--device", "cpu"]
    for name, spec, recipe, said in (
        ("a", "digits", "best", False),
        ("b", f"npz:{tmp_path / 'own.npz'}", "best", True),
        ("c", f"npz:{tmp_path / 'own.npz'}", tmp_path / "own.yaml", False),
    ):
        given = ["--data", spec, "--recipe", str(recipe), "--out", str(tmp_path / name)]
        assert main(["distill", *words, *given]) == 0
        assert ("`pseudocoreset tune` can find a better one." in capsys.readouterr().out) == said


def test_plan_counts_experts_and_trials(tmp_path, monkeypatch):
    monkeypatch.setattr("pseudocoreset.plan.estimate.BUDGET_S", 0.05)
    words = ["plan", "tune", "--data", "digits", "--net", "convnet:width=4", "--device", "cpu"]
    words += ["--ipc", "1", "--steps", "3", "--chain-epochs", "10", "--trials", "7", "--num", "2"]
    file = tmp_path / "plan.json"
    assert main([*words, "--epochs", "3", "--json", str(file), "--quiet"]) == 0
    found = json.loads(file.read_text())
    assert (found["step"], found["steps"]) == ("trials", 7)
    parameters = next(iter(found["parameters"].values()))
    assert found["disk_bytes"] == 2 * 4 * 4 * parameters  # snapshots of the experts
    assert found["seconds"] > 7 * found["step_s"] > 0
    assert list(tmp_path.iterdir()) == [file]


def test_search_from_a_coreset_keeps_its_form(held, experts, tmp_path):
    quick = {k: v for k, v in QUICK.items() if k in ("ipc", "device", "progress")}
    start = pc.distill(held, (), "random", net=NET, out=tmp_path / "start", **quick)
    assert start.form == pc.Pixels()
    given = {**QUICK, "init": str(tmp_path / "start"), "trials": 6}
    pc.tune(held, experts, ISOTROPIC, out=tmp_path / "search", **given)
    tried = rows(tmp_path / "search")
    assert len(tried) == 6
    assert not any("form" in row["settings"] for row in tried)


@pytest.mark.parametrize("command", [["tune"], ["plan", "tune"]])
def test_options_of_experts_are_refused_where_none_are_trained(tmp_path, capsys, command):
    words = [*command, "--data", "digits", "--ipc", "1", "--out", str(tmp_path / "out")]
    without = ["--method", "vbpc", "--net", "convnet:width=4", "--epochs", "3"]
    assert main([*words, *without]) == 2
    assert "--epochs has no effect where no experts are trained" in capsys.readouterr().err
    assert main([*words, "--net", "convnet:width=4", "--net", "convnet:width=8"]) == 2
    assert "--net was given 2 times" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("device", "share"), [("cpu", 0), ("cuda", 0.25), ("cuda:1", 0)])
def test_trials_on_a_gpu_that_was_chosen_see_all_of_them(held, tmp_path, device, share):
    begun = []

    class Noting(SerialExecutor):
        def device(self, _):
            return torch.device(device)

        def run(self, tasks):
            begun.append(next(iter(tasks)))
            raise KeyboardInterrupt

    given = {"method": Searched(), "net": NET, "trials": 1, "executor": Noting()}
    with pytest.raises(KeyboardInterrupt):
        pc.tune(held, out=tmp_path / "out", **given, **QUICK)
    assert [task.gpus for task in begun] == [share]
