"""The commands as a person calls them: what they print, write and return."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from pseudocoreset import Pseudocoreset
from pseudocoreset.cli import main, make_parser
from pseudocoreset.engine.progress import SILENT
from pseudocoreset.report.tensorboard import Curves

NET = "convnet:width=8"
EXPERTS = ["experts", "--data", "digits", "--net", NET, "--epochs", "2", "--batch", "64"]
COMMANDS = ["quickstart", "experts", "distill", "evaluate", "sample", "predict", "report", "info"]
COMMANDS += ["reproduce"]


def run(*arguments: object, code: int = 0) -> None:
    assert main([str(argument) for argument in arguments]) == code


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Experts, a run with scores, and a posterior, made by the commands."""
    root = tmp_path_factory.mktemp("cli")
    run(*EXPERTS, "--lr", "0.05", "--num", "2", "--out", root / "experts", "--quiet")
    distill = ["distill", "--data", "digits", "--experts", root / "experts", "--ipc", "2"]
    distill += ["--steps", "3", "--gamma", "1", "--from-epoch", "1", "--out", root / "run"]
    run(*distill, "--quiet")
    coreset = root / "run" / "coreset.safetensors"
    short = ["--epochs", "20", "--every", "10", "--quiet"]
    scores = root / "scores.json"
    run("evaluate", coreset, "--data", "digits", "--seeds", "2", "--json", scores, *short)
    run("sample", coreset, "--out", root / "posterior.safetensors", *short)
    return root


def test_the_run_folder_is_as_promised(folder):
    names = {path.name for path in (folder / "run").iterdir()}
    promised = {"config.yaml", "metrics.jsonl", "checkpoint.safetensors", "coreset.safetensors"}
    assert promised | {"figures", "report.html"} <= names
    assert len((folder / "run" / "metrics.jsonl").read_text().splitlines()) == 3
    config = yaml.safe_load((folder / "run" / "config.yaml").read_text())
    assert (config["ipc"], config["gamma"], config["samples"]) == (2, 1.0, 30)


def test_evaluate_writes_the_promised_json(folder):
    scores = json.loads((folder / "scores.json").read_text())
    promised = "accuracy accuracy_std nll nll_std nll_kim ece brier seeds protocol coreset"
    assert set(promised.split()) <= scores.keys()
    assert 0 <= scores["accuracy"] <= 1
    assert len(scores["seeds"]) == 2
    assert scores["protocol"]["epochs"] == 20
    assert scores["coreset"]["method"] == "fbpc"


def test_distill_run_again_does_nothing_new(folder, capsys):
    before = (folder / "run" / "coreset.safetensors").read_bytes()
    again = ["distill", "--data", "digits", "--experts", folder / "experts", "--ipc", "2"]
    again += ["--steps", "3", "--gamma", "1", "--from-epoch", "1", "--out", folder / "run"]
    run(*again, "--quiet")
    assert (folder / "run" / "coreset.safetensors").read_bytes() == before
    run(*again, "--lr-x", "0.2", code=2)
    assert "lr_x" in capsys.readouterr().err


def test_predict_takes_image_files_and_npz(folder, tmp_path, capsys):
    Image.fromarray(np.full((40, 30, 3), 200, np.uint8)).save(tmp_path / "photo.png")
    np.savez(tmp_path / "two.npz", images=np.zeros((2, 8, 8), np.uint8))
    out = tmp_path / "out.json"
    images = [tmp_path / "photo.png", tmp_path / "two.npz"]
    run("predict", folder / "posterior.safetensors", *images, "--json", out)
    rows = json.loads(out.read_text())
    assert [row["image"] for row in rows] == [str(images[0]), f"{images[1]}[0]", f"{images[1]}[1]"]
    for row in rows:
        assert sum(row["probabilities"].values()) == pytest.approx(1)
        assert 0 <= row["mutual_information"] <= row["entropy"] <= np.log(10) + 1e-9
    assert rows[1]["probabilities"] == rows[2]["probabilities"]
    assert str(images[0]) in capsys.readouterr().out


def test_predict_warns_where_images_depend_on_one_another(folder, tmp_path, capsys):
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8), np.uint8)
    np.savez(tmp_path / "some.npz", images=images)
    coreset, posterior = folder / "run" / "coreset.safetensors", tmp_path / "batch.safetensors"
    short = ["--epochs", "10", "--every", "10", "--quiet"]
    run("sample", coreset, "--net", "convnet:width=8,norm=batch", "--out", posterior, *short)
    run("predict", posterior, tmp_path / "some.npz")
    assert "each prediction depends on the others" in capsys.readouterr().err
    run("predict", folder / "posterior.safetensors", tmp_path / "some.npz")
    assert capsys.readouterr().err == ""


def test_predict_refuses_what_is_no_image(folder, tmp_path, capsys):
    (tmp_path / "not.png").write_text("hello")
    run("predict", folder / "posterior.safetensors", tmp_path / "not.png", code=2)
    run("predict", folder / "posterior.safetensors", tmp_path / "none.png", code=2)
    run("predict", folder / "run" / "coreset.safetensors", tmp_path / "not.png", code=2)
    np.savez(tmp_path / "empty.npz", images=np.zeros((0, 1, 8, 8), np.uint8))
    run("predict", folder / "posterior.safetensors", tmp_path / "empty.npz", code=2)
    run("predict", folder / "posterior.safetensors", tmp_path, code=2)
    run("sample", folder / "run", "--out", tmp_path / "p.safetensors", code=2)
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 6
    assert "holds a coreset" in errors[2]
    assert "holds no images" in errors[3]
    assert "is a folder: give image files" in errors[4]
    assert "is a folder: give the path of a coreset" in errors[5]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("experts", "trajectories"),
        ("experts/trajectory-0000.safetensors", "training loss"),
        ("run", "updates done"),
        ("run/coreset.safetensors", "20 of 1×8×8"),
        ("posterior.safetensors", "kinetic temperature"),
    ],
)
def test_info_describes(folder, what, says, capsys):
    run("info", folder / what)
    assert says in capsys.readouterr().out


def test_info_describes_data_and_refuses_the_rest(tmp_path, capsys):
    run("info", "digits")
    assert "1,297 of 1×8×8" in capsys.readouterr().out
    run("info", tmp_path / "nothing", code=2)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_report_writes_the_page_again(folder, capsys):
    page = folder / "run" / "report.html"
    page.unlink()
    run("report", folder / "run")
    assert str(page) in capsys.readouterr().out
    assert page.exists()


def test_several_networks_make_one_coreset(folder, tmp_path, capsys):
    other = "convnet:width=8,norm=group"
    group = [other if argument == NET else argument for argument in EXPERTS]
    run(*group, "--lr", "0.05", "--num", "1", "--out", tmp_path / "group", "--quiet")
    both = ["--net", NET, "--net", other]
    stores = ["--experts", tmp_path / "group", "--experts", folder / "experts"]
    settings = ["--ipc", "1", "--steps", "2", "--gamma", "1", "--from-epoch", "1"]
    run(
        "distill", "--data", "digits", *both, *stores, *settings, "--out", tmp_path / "r", "--quiet"
    )
    coreset = Pseudocoreset.load(tmp_path / "r" / "coreset.safetensors")
    assert [net.count("instance") for net in coreset.provenance.config["nets"]] == [1, 0]
    metrics = json.loads((tmp_path / "r" / "metrics.jsonl").read_text().splitlines()[0])
    assert {"loss_x/0", "loss_x/1"} <= metrics.keys()
    evaluate = ["evaluate", tmp_path / "r" / "coreset.safetensors", "--data", "digits", *both]
    short = ["--epochs", "10", "--every", "10", "--seeds", "1"]
    run(*evaluate, *short, "--json", tmp_path / "scores.json")
    nets = coreset.provenance.config["nets"]
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert [content["protocol"]["net"] for content in scores] == nets
    lines = capsys.readouterr().out.splitlines()
    for content in scores:
        below = lines[lines.index(content["protocol"]["net"]) + 1]
        assert below == f"accuracy      {content['accuracy']:.4f}"  # one seed has no spread
    run(*evaluate[:-4], *short, "--seeds", "2")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == nets[0]
    assert "±" in lines[1]
    assert lines[-1].endswith(f"to score it on each: --net {nets[0]} --net {nets[1]}")
    run(*evaluate[:-4], *short, "--quiet")
    assert capsys.readouterr().out.startswith(nets[0])  # or nobody would ever know
    run(*evaluate[:-4], *short, "--quiet", "--json", tmp_path / "scores.json")
    assert not capsys.readouterr().out


def test_options_come_from_a_file_and_the_command_line_wins(folder, tmp_path):
    settings = {"data": "digits", "experts": str(folder / "experts"), "ipc": 1, "steps": 1}
    settings |= {"gamma": 2.0, "from_epoch": 1, "out": str(tmp_path / "run"), "quiet": True}
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(settings))
    run("distill", "--config", tmp_path / "options.yaml", "--gamma", "1.5")
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (config["gamma"], config["steps"]) == (1.5, 1)


@pytest.mark.parametrize(
    "given",
    [
        ["--ipc", 1, "--steps", 2, "--gamma", 1.5, "--from-epoch", 1, "--seed", 3],
        ["--method", "random", "--ipc", 2, "--holdout", 100],
    ],
    ids=["fbpc", "random"],
)
def test_a_run_can_be_made_again_by_its_configuration(folder, tmp_path, given):
    experts = ["--experts", folder / "experts"] if "--gamma" in given else []
    first, again = tmp_path / "first", tmp_path / "again"
    run("distill", "--data", "digits", *given, *experts, "--out", first, "--quiet")
    config = first / "config.yaml"
    run("distill", "--config", config, *experts, "--out", again, "--quiet", code=2)
    run("distill", "--data", "digits", "--config", config, *experts, "--out", again, "--quiet")
    assert (again / "config.yaml").read_text() == config.read_text()
    made = [Pseudocoreset.load(path / "coreset.safetensors") for path in (first, again)]
    assert made[0].fingerprint == made[1].fingerprint


def test_the_data_that_are_given_before_a_runs_configuration_count(tmp_path):
    """It tells its data by a name, which is no place: `npz` of a/mine.npz is called mine."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        images = np.full((4, 3, 8, 8), ord(name[0]), np.uint8)
        arrays = {"train_images": images, "test_images": images}
        labels = np.array([0, 1, 0, 1])
        np.savez(tmp_path / name / "mine.npz", **arrays, train_labels=labels, test_labels=labels)
    first, second = (f"npz:{tmp_path / name / 'mine.npz'}" for name in ("first", "second"))
    made = ["--method", "random", "--ipc", 1, "--quiet"]
    run("distill", "--data", first, *made, "--out", tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    run("distill", "--data", second, "--config", config, "--out", tmp_path / "other", "--quiet")
    told = [yaml.safe_load((tmp_path / n / "config.yaml").read_text()) for n in ("run", "other")]
    assert told[0]["data_fingerprint"] != told[1]["data_fingerprint"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "the GPU's memory is too small"),
        (RuntimeError("[...] DefaultCPUAllocator: can't"), "this machine's memory is too small"),
        (MemoryError(), "this machine's memory is too small"),
        (PermissionError(13, "Permission denied", "x.png"), "x.png can't be read or written"),
    ],
)
def test_what_the_machine_refuses_is_one_sentence(error, says, monkeypatch, capsys):
    def evaluate(_):
        raise error

    monkeypatch.setattr("pseudocoreset.commands.evaluate", evaluate)
    run("evaluate", "x.safetensors", "--data", "digits", code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_other_errors_are_not_hidden(monkeypatch):
    def evaluate(_):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("pseudocoreset.commands.evaluate", evaluate)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        run("evaluate", "x.safetensors", "--data", "digits")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["evaluate", "it", "--data", "digits"], "--json"),
        (["sample", "it"], "--out"),
        (["predict", "posterior", "it"], "--json"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else None,
)
def test_what_is_read_is_not_written_over(command, option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("it").write_text("precious")
    run(*command, option, tmp_path / "it", code=2)
    assert Path("it").read_text() == "precious"
    assert "would be lost" in capsys.readouterr().err


def test_all_networks_are_looked_at_before_one_is_scored(folder, monkeypatch, capsys):
    monkeypatch.setattr("pseudocoreset.commands.evaluate_coreset", pytest.fail)
    coreset = folder / "run" / "coreset.safetensors"
    run("evaluate", coreset, "--data", "digits", "--net", NET, "--net", "nosuch", code=2)
    assert "no network is called 'nosuch'" in capsys.readouterr().err


def test_a_typo_at_the_end_of_a_number_is_shown(capsys):
    run("experts", "--data", "digits", "--out", "x", "--lr", "0.01.", code=2)
    assert "0.01.: see" in capsys.readouterr().err


def test_a_number_in_a_file_may_name_a_folder(tmp_path, capsys):
    (tmp_path / "options.yaml").write_text("experts: 5\n")
    options = ["--config", tmp_path / "options.yaml", "--out", tmp_path / "run"]
    run("distill", "--data", "digits", *options, code=2)
    assert "5 is no expert store" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["experts", "--data", "digits"],
        ["experts", "--data", "digits", "--out", "x", "--num", "many"],
        ["experts", "--data", "digits", "--out", "x", "--num", "0"],
        ["experts", "--data", "digits", "--out", "x", "--net", "nonsense"],
        ["experts", "--data", "digits", "--out", "x", "--net", "convnet", "--net", "lenet"],
        ["experts", "--data", "nonsense", "--out", "x"],
        ["experts", "--data", "cifar10:nowhere", "--out", "x"],
        ["experts", "--data", "digits", "--out", "x", "--dsa", "nonsense"],
        ["experts", "--data", "digits", "--out", "x", "--device", "nonsense"],
        ["experts", "--data", "digits", "--out", "x", "--holdout", "7"],
        ["experts", "--data", "digits", "--out", "x", "--from-replay", "nowhere"],
        ["experts", "--config", "nowhere.yaml"],
        ["distill", "--data", "digits", "--out", "x"],
        ["distill", "--data", "digits", "--out", "x", "--experts", "nowhere"],
        ["distill", "--data", "digits", "--out", "x", "--method", "nonsense"],
        ["distill", "--data", "digits", "--out", "x", "--method", "random", "--ipc", "5000"],
        ["evaluate", "nowhere.safetensors", "--data", "digits"],
        ["evaluate", "nowhere.npz", "--data", "digits"],
        ["evaluate", "nowhere", "--data", "digits"],
        ["sample", "nowhere.safetensors", "--out", "x"],
        ["report", "nowhere"],
    ],
)
def test_a_persons_mistake_is_one_sentence_and_exit_code_2(
    arguments, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run(*arguments, code=2)
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("pseudocoreset: ")
    assert line.endswith(".")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "missing", "command"),
    [
        (["plan", "distill"], "--data", "plan distill"),
        (["plan", "experts"], "--data", "plan experts"),
        (["distill"], "--data, --out", "distill"),
        (["distill", "--data", "digits"], "--out", "distill"),
        (["sample", "coreset"], "--out", "sample"),
        (["evaluate"], "coreset, --data", "evaluate"),
        (["info"], "what", "info"),
    ],
)
def test_what_is_missing_is_called_as_it_is_given(arguments, missing, command, capsys):
    run(*arguments, code=2)
    said = f"required: {missing}: see `pseudocoreset {command} --help`."
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("place", ["file/inside", "."])
@pytest.mark.parametrize(
    ("command", "option", "work"),
    [
        (["evaluate", "coreset"], "--json", "commands.evaluate_coreset"),
        (["sample", "coreset"], "--out", "commands.sample_posterior"),
        (["predict", "posterior", "image.png"], "--json", "commands.predict_files"),
        (["plan", "evaluate"], "--json", "plan_command.load"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else None,
)
def test_a_file_that_cant_be_written_is_refused_before_the_work(
    command, option, work, place, tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(f"pseudocoreset.{work}", pytest.fail)
    data = ["--data", "digits"] if "evaluate" in command else []
    run(*command, *data, option, tmp_path / place, "--device", "cpu", code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("give another place.")
    assert "is a file" in line or "is a folder" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(command, capsys):
    with pytest.raises(SystemExit) as stop:
        make_parser().parse_args([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "--seed" in text
    assert "--device" in text


def test_an_interrupt_keeps_what_was_done_and_exits_130(tmp_path):
    command = [sys.executable, "-m", "pseudocoreset", *EXPERTS, "--num", "50"]
    process = subprocess.Popen([*command, "--out", tmp_path / "experts"], stderr=subprocess.PIPE)
    first = tmp_path / "experts" / "trajectory-0000.safetensors"
    deadline = time.monotonic() + 60
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert first.exists()


def test_a_missed_gamma_is_said_loudly_and_in_the_report(folder, tmp_path, capsys):
    options = ["--ipc", "1", "--steps", "1", "--gamma", "1e-9", "--max-map-steps", "10"]
    experts = ["--experts", folder / "experts", "--from-epoch", "1"]
    command = ["distill", "--data", "digits", *experts, *options, "--out", tmp_path / "run"]
    run(*command, "--quiet")
    assert "warning: 1 of 1 updates did not reach the loss" in capsys.readouterr().err
    run("report", tmp_path / "run")
    assert "1 of 1" in (tmp_path / "run" / "report.html").read_text()


def test_tensorboard_files_are_written(folder, tmp_path):
    pytest.importorskip("tensorboard")
    options = ["--ipc", "1", "--steps", "1", "--gamma", "2", "--from-epoch", "1", "--tensorboard"]
    command = [sys.executable, "-m", "pseudocoreset", "distill", "--data", "digits", "--quiet"]
    command += ["--experts", folder / "experts", *options, "--out", tmp_path / "run"]
    subprocess.run(command, check=True)
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))


def test_curves_are_written_while_a_run_goes_on(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = [{"update": number, "loss": float(number)} for number in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Curves(tmp_path, SILENT).task("fbpc", 9, done=2) as task:  # the third is done again
        task.advance(loss=7.0)
        task.advance(loss=8.0)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in events] == [(1, 1), (2, 2), (3, 7), (4, 8)]


def test_a_run_that_is_not_finite_names_what_to_lower_and_keeps_its_curves(
    folder, tmp_path, capsys
):
    pytest.importorskip("tensorboard")
    options = ["--ipc", "1", "--gamma", "2", "--from-epoch", "1", "--covariance-steps", "2"]
    command = ["distill", "--data", "digits", "--experts", folder / "experts", *options, "--quiet"]
    command += ["--tensorboard", "--lr-images", "1e30", "--steps", "9", "--out", tmp_path / "run"]
    run(*command, code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "--lr-images (1e+30) or --lr-map (0.01) or --lr-x (0.05) or --lr-u (0.01)" in line
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))


def test_learned_labels_are_probabilities(folder, tmp_path):
    options = ["--ipc", "1", "--steps", "2", "--gamma", "2", "--from-epoch", "1", "--learn-labels"]
    experts = ["--experts", folder / "experts"]
    run("distill", "--data", "digits", *experts, *options, "--out", tmp_path / "run", "--quiet")
    labels = Pseudocoreset.load(tmp_path / "run" / "coreset.safetensors").labels
    assert torch.allclose(labels.sum(1), torch.ones(10))
    assert labels.argmax(1).tolist() == list(range(10))
