"""The commands as a person calls them: what they print, write and return."""

import csv
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from pseudocoreset import Posterior, Pseudocoreset, load_data
from pseudocoreset.cli import COMMANDS, main
from pseudocoreset.engine.progress import SILENT
from pseudocoreset.report import read_run
from pseudocoreset.report.tensorboard import Curves

NET = "convnet:width=8"
EXPERTS = ["experts", "--data", "digits", "--net", NET, "--epochs", "2", "--batch", "64"]


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
    run("sample", coreset, "--out", root / "posterior.safetensors", "--chains", 2, *short)
    return root


def test_distill_writes_the_run_folder(folder):
    names = {path.name for path in (folder / "run").iterdir()}
    promised = {"config.yaml", "metrics.jsonl", "checkpoint.safetensors", "coreset.safetensors"}
    assert promised | {"figures", "report.html"} <= names
    assert len((folder / "run" / "metrics.jsonl").read_text().splitlines()) == 3
    config = yaml.safe_load((folder / "run" / "config.yaml").read_text())
    assert (config["ipc"], config["gamma"], config["samples"]) == (2, 1.0, 30)


def test_evaluate_writes_its_json(folder):
    scores = json.loads((folder / "scores.json").read_text())
    promised = "accuracy accuracy_std nll nll_std nll_kim ece brier seeds protocol coreset"
    assert set(promised.split()) <= scores.keys()
    assert 0 <= scores["accuracy"] <= 1
    assert len(scores["seeds"]) == 2
    assert scores["protocol"]["epochs"] == 20
    assert scores["coreset"]["method"] == "fbpc"


def test_distill_again_changes_nothing(folder, capsys):
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


def test_predict_warns_of_batch_statistics(folder, tmp_path, capsys):
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8), np.uint8)
    np.savez(tmp_path / "some.npz", images=images)
    coreset, posterior = folder / "run" / "coreset.safetensors", tmp_path / "batch.safetensors"
    short = ["--epochs", "10", "--every", "10", "--quiet"]
    run("sample", coreset, "--net", "convnet:width=8,norm=batch", "--out", posterior, *short)
    run("predict", posterior, tmp_path / "some.npz")
    assert "each prediction depends on the other images" in capsys.readouterr().err
    run("predict", folder / "posterior.safetensors", tmp_path / "some.npz")
    assert capsys.readouterr().err == ""


def test_predict_refuses_what_is_no_image(folder, tmp_path, capsys):
    (tmp_path / "not.png").write_text("hello")
    run("predict", folder / "posterior.safetensors", tmp_path / "not.png", code=2)
    run("predict", folder / "posterior.safetensors", tmp_path / "none.png", code=2)
    np.savez(tmp_path / "empty.npz", images=np.zeros((0, 1, 8, 8), np.uint8))
    run("predict", folder / "posterior.safetensors", tmp_path / "empty.npz", code=2)
    (tmp_path / "empty").mkdir()
    run("predict", folder / "posterior.safetensors", tmp_path / "empty", code=2)
    assert len(capsys.readouterr().err.splitlines()) == 4


@pytest.mark.parametrize("what", ["run/coreset.safetensors", "run", "gallery:digits-1"])
def test_predict_with_a_coreset_says_how_to_sample(what, folder, capsys):
    given = what if what.startswith("gallery:") else folder / what
    run("predict", given, "a.png", code=2)
    assert f"`pseudocoreset sample {given} --out posterior" in capsys.readouterr().err


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


def test_info_shows_the_size_of_a_table_and_lists_in_plain_text(tmp_path, capsys):
    made = ["--data", "diabetes", "--net", "mlp:width=4", "--quiet"]
    run("experts", *made, "--num", 1, "--epochs", 1, "--out", tmp_path / "experts")
    run("info", tmp_path / "experts")
    lines = capsys.readouterr().out.split("\n")
    shown = {name: value for name, _, value in (line.strip().partition("  ") for line in lines)}
    assert (shown["inputs"].strip(), shown["outputs"].strip()) == ("10", "1")
    assert not {"channels", "image_size", "classes"} & set(shown)
    run(
        "distill",
        *made,
        "--method",
        "random",
        "--ipc",
        2,
        "--target-noise",
        1,
        "--out",
        tmp_path / "run",
    )
    run("info", tmp_path / "run")
    assert " mlp:depth=2,width=4\n" in capsys.readouterr().out


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


def test_page_of_a_run_shows_start_and_test_images_and_what_to_type(folder, tmp_path, monkeypatch):
    place = shutil.copytree(folder / "run", tmp_path / "my run")
    short = ["--epochs", "20", "--every", "10", "--quiet"]
    scores = tmp_path / "scores.json"
    run("evaluate", place, "--data", "digits", "--seeds", 1, "--random", "--json", scores, *short)
    found, data = read_run(place), load_data("digits")
    start = Pseudocoreset.load(place / "start.safetensors")
    real = data.train.inputs.flatten(1).tolist()
    assert all(row in real for row in data.scaling.invert(start.inputs).flatten(1).tolist())
    assert found.images
    for index, image in found.images.items():
        assert np.array_equal(image, data.test.inputs[index].numpy())
    random = json.loads(scores.read_text())["random"]
    assert random["coreset"]["method"] == "random"
    assert random["coreset"]["images"] == 20
    assert random["protocol"]["epochs"] == 20
    page = (place / "report.html").read_text()
    assert "Random images, 2 images per class" in page
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("my-image.png")
    for line in re.findall(r"<pre><code>(.*?)</code>", page):
        words = shlex.split(unescape(line))[1:]
        run(*words, *(["--epochs", 2, "--every", 1] if words[0] == "sample" else []), "--quiet")


def test_distill_takes_several_networks(folder, tmp_path, capsys):
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
        assert below.split() == ["accuracy", f"{content['accuracy']:.4f}"]  # no spread
    run(*evaluate[:-4], *short, "--seeds", "2")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == nets[0]
    assert "±" in lines[1]
    assert lines[-1].endswith(f"To score it on each, add: --net {nets[0]} --net {nets[1]}")
    run(*evaluate[:-4], *short, "--quiet")
    assert capsys.readouterr().out.startswith(nets[0])  # or nobody would ever know
    run(*evaluate[:-4], *short, "--quiet", "--json", tmp_path / "scores.json")
    assert not capsys.readouterr().out


def test_config_file_is_beneath_the_command_line(folder, tmp_path):
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
def test_run_is_made_again_by_its_configuration(folder, tmp_path, given):
    experts = ["--experts", folder / "experts"] if "--gamma" in given else []
    first, again = tmp_path / "first", tmp_path / "again"
    run("distill", "--data", "digits", *given, *experts, "--out", first, "--quiet")
    config = first / "config.yaml"
    run("distill", "--config", config, *experts, "--out", again, "--quiet", code=2)
    run("distill", "--data", "digits", "--config", config, *experts, "--out", again, "--quiet")
    assert (again / "config.yaml").read_text() == config.read_text()
    made = [Pseudocoreset.load(path / "coreset.safetensors") for path in (first, again)]
    assert made[0].fingerprint == made[1].fingerprint


def test_configuration_of_a_run_does_not_replace_the_data(tmp_path):
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
def test_machine_errors_are_one_sentence(error, says, monkeypatch, capsys):
    def evaluate(_):
        raise error

    monkeypatch.setattr("pseudocoreset.cli.evaluate.run", evaluate)
    run("evaluate", "x.safetensors", "--data", "digits", code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_errors_of_ours_are_not_hidden(monkeypatch):
    def evaluate(_):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("pseudocoreset.cli.evaluate.run", evaluate)
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
def test_input_files_are_not_overwritten(command, option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("it").write_text("precious")
    run(*command, option, tmp_path / "it", code=2)
    assert Path("it").read_text() == "precious"
    assert "would be overwritten" in capsys.readouterr().err


def test_evaluate_checks_all_networks_first(folder, monkeypatch, capsys):
    monkeypatch.setattr("pseudocoreset.cli.evaluate.evaluate", pytest.fail)
    coreset = folder / "run" / "coreset.safetensors"
    run("evaluate", coreset, "--data", "digits", "--net", NET, "--net", "nosuch", code=2)
    assert "nosuch" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["experts", "--data", "digits"],
        ["experts", "--data", "digits", "--out", "x", "--num", "many"],
        ["experts", "--data", "digits", "--out", "x", "--num", "0"],
        ["experts", "--data", "digits", "--out", "x", "--net", "nonsense"],
        ["experts", "--data", "digits", "--out", "x", "--net", "convnet", "--net", "lenet"],
        ["experts", "--data", "nonsense", "--out", "x"],
        ["experts", "--data", "cifar10:nowhere", "--out", "x"],
        ["experts", "--data", "digits", "--out", "x", "--dsa", "nonsense"],
        ["experts", "--data", "digits", "--out", "x", "--device", "nonsense"],
        ["experts", "--data", "digits", "--out", "x", "--holdout", "1297"],
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
        ["compare", "nowhere.safetensors", "full", "--data", "digits"],
        ["compare", "full", "full", "--data", "digits"],
        ["report", "nowhere"],
    ],
)
def test_mistake_is_one_sentence_and_exit_code_2(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(*arguments, code=2)
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("pseudocoreset: ")
    assert line.endswith(".")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["file/inside", "."])
@pytest.mark.parametrize(
    ("command", "option", "work"),
    [
        (["evaluate", "coreset"], "--json", "cli.evaluate.evaluate"),
        (["compare", "coreset", "full"], "--json", "cli.compare.compare"),
        (["sample", "coreset"], "--out", "cli.sample.sample"),
        (["predict", "posterior", "image.png"], "--json", "cli.predict.predict_files"),
        (["plan", "evaluate"], "--json", "cli.plan.load"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else None,
)
def test_output_paths_are_checked_before_the_work(
    command, option, work, place, tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(f"pseudocoreset.{work}", pytest.fail)
    data = ["--data", "digits"] if "evaluate" in command else []
    run(*command, *data, option, tmp_path / place, "--device", "cpu", code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in line


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_the_options(command, capsys):
    run(command, *(["experts"] if command == "plan" else []), "--help")
    text = capsys.readouterr().out
    assert "--seed" in text
    assert "--device" in text


def test_interrupt_keeps_the_work_and_exits_130(tmp_path):
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


def test_missed_gamma_is_warned_of(folder, tmp_path, capsys):
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


def test_tensorboard_curves_grow_with_the_run(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = [{"update": number, "loss": float(number)} for number in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Curves(tmp_path, SILENT).task("fbpc", 9, done=2) as task:  # the third is done again
        task.advance(loss=7.0)
        task.advance(loss=8.0)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in events] == [(1, 1), (2, 2), (3, 7), (4, 8)]


def test_run_that_is_not_finite_is_refused(folder, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    options = ["--ipc", "1", "--gamma", "2", "--from-epoch", "1", "--covariance-steps", "2"]
    command = ["distill", "--data", "digits", "--experts", folder / "experts", *options, "--quiet"]
    command += ["--tensorboard", "--lr-images", "1e30", "--steps", "9", "--out", tmp_path / "run"]
    run(*command, code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "--lr-images (1e+30)" in line
    assert "--lr-map (0.01)" in line
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))


def test_learned_labels_are_probabilities(folder, tmp_path):
    options = ["--ipc", "1", "--steps", "2", "--gamma", "2", "--from-epoch", "1", "--learn-labels"]
    experts = ["--experts", folder / "experts"]
    run("distill", "--data", "digits", *experts, *options, "--out", tmp_path / "run", "--quiet")
    labels = Pseudocoreset.load(tmp_path / "run" / "coreset.safetensors").targets
    assert torch.allclose(labels.sum(1), torch.ones(10))
    assert labels.argmax(1).tolist() == list(range(10))


def test_commands_are_listed_without_arguments(capsys):
    run()
    listed = capsys.readouterr().out
    run("--help")
    assert capsys.readouterr().out == listed
    assert all(f"  {command} " in listed for command in COMMANDS)
    run("--version")
    assert capsys.readouterr().out.startswith("pseudocoreset ")


def test_list_of_commands_imports_no_torch():
    program = (
        "import sys; from pseudocoreset.cli import main; main([]); main(['--version']);"
        "main(['nonsense']); assert not {'torch', 'numpy', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["distil"], "distill"),
        (["info", "cifr10:x"], "cifar10"),
        (["experts", "--data", "digts", "--out", "x"], "digits"),
        (["experts", "--data", "digits", "--out", "x", "--epoch", "3"], "--epochs"),
        (["experts", "--data", "digits", "--out", "x", "--net", "convet"], "convnet"),
        (["distill", "--data", "digits", "--out", "x", "--method", "fbcp"], "fbpc"),
        (["sample", "x", "--out", "y", "--sampler", "sghcm"], "sghmc"),
        (["evaluate", "x", "--data", "digits", "--seds", "3"], "--seeds"),
    ],
)
def test_misspelt_word_is_answered_with_the_nearest(arguments, nearest, capsys):
    run(*arguments, code=2)
    assert nearest in capsys.readouterr().err


def test_print_config_shows_resolved_values(folder, tmp_path, capsys):
    given = ["--data", "digits", "--experts", folder / "experts", "--ipc", 1, "--gamma", 1.5]
    run("distill", *given, "--from-epoch", 1, "--print-config")
    printed = capsys.readouterr().out
    shown = yaml.safe_load(printed)
    assert (shown["gamma"], shown["steps"], shown["lr_images"]) == (1.5, 30, 3.0)
    assert shown["dsa"] == "color,crop,cutout,scale,rotate"
    assert not list(tmp_path.iterdir())
    (tmp_path / "all.yaml").write_text(printed)
    run("distill", "--config", tmp_path / "all.yaml", "--print-config")
    again = yaml.safe_load(capsys.readouterr().out)
    assert again == shown
    assert not {"config", "print_config", "trust_code"} & shown.keys()


def test_print_config_of_experts_shows_what_the_data_decide(capsys):
    run("experts", "--data", "digits", "--num", 3, "--print-config")
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["num"], shown["lr"], shown["batch"]) == (3, 0.1, 64)


def test_question_ends_with_its_mark(capsys):
    run("distill", "--data", "digits", "--form", "croma:2", "--out", "nowhere", code=2)
    assert capsys.readouterr().err.endswith("did you mean chroma:2?\n")


def test_print_config_of_a_run_that_starts_from_a_coreset_can_be_used(folder, tmp_path, capsys):
    given = ["--data", "digits", "--experts", folder / "experts", "--ipc", 1, "--from-epoch", 1]
    run("distill", *given, "--steps", 0, "--out", tmp_path / "first", "--quiet")
    run("distill", *given, "--init", tmp_path / "first", "--steps", 0, "--print-config")
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["init"] == str(tmp_path / "first")
    (tmp_path / "all.yaml").write_text(printed)
    run("distill", "--config", tmp_path / "all.yaml", "--out", tmp_path / "second", "--quiet")
    paths = (tmp_path / each / "coreset.safetensors" for each in ("first", "second"))
    start, made = map(Pseudocoreset.load, paths)
    assert torch.equal(made.inputs, start.inputs)


@pytest.mark.parametrize(
    "content",
    [
        "ipc: null",
        "ipc: [1]",
        "ipc: {a: 1}",
        "gamma: yes",
        "steps: 1e400",
        "dsa: 5.5",
        "net: [1, 2]",
        "method: null",
        "method: [fbpc]",
        "seed: '7'\nlabels: soft",
        "no_such: 1",
        "? [1]\n: 2",
        "- 1",
        "&a [*a]",
        "ipc: !!python/object/apply:os.system ['true']",
        "data_fingerprint: 1\nipc: null",
        "\x00",
    ],
)
def test_fuzzed_configuration_is_one_sentence(content, folder, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(content)
    given = ["--data", "digits", "--experts", folder / "experts", "--steps", 0, "--from-epoch", 1]
    code = main(
        [str(w) for w in ("distill", "--config", tmp_path / "config.yaml", *given, "--ipc", 1)]
        + ["--out", str(tmp_path / "run"), "--quiet"]
    )
    captured = capsys.readouterr().err.splitlines()
    assert code in (0, 2)
    assert len(captured) == (code == 2)


def test_evaluate_takes_a_run_and_a_posterior(folder, tmp_path, capsys):
    short = ["--epochs", 20, "--every", 10, "--seeds", 1, "--quiet"]
    run("evaluate", folder / "run", "--data", "digits", *short, "--json", tmp_path / "run.json")
    of_run = json.loads((tmp_path / "run.json").read_text())
    posterior = ["evaluate", folder / "posterior.safetensors", "--data", "digits", "--quiet"]
    run(*posterior, "--json", tmp_path / "posterior.json")
    of_posterior = json.loads((tmp_path / "posterior.json").read_text())
    assert of_run["coreset"] == of_posterior["coreset"]
    assert len(of_run["pooled"]["confusion"]) == 10
    run(*posterior, "--seeds", 3, code=2)
    assert "--seeds" in capsys.readouterr().err


def test_evaluate_prints_one_network_and_a_predictive_temperature(folder, tmp_path, capsys):
    words = ["evaluate", folder / "run", "--data", "digits", "--epochs", 20, "--every", 10]
    words += ["--seeds", 2, "--predictive-temperature", 0.7, "--json", tmp_path / "a.json"]
    run(*words)
    lines = capsys.readouterr().out.splitlines()
    found = json.loads((tmp_path / "a.json").read_text())
    for title, name in (("one network", "single"), ("pooled at T 0.7", "pooled_calibrated")):
        (line,) = [line for line in lines if line.startswith(f"{title} ")]
        assert f"nll {found[name]['nll']:.4f}" in line
    run(*words, "--predictive-temperature", 0, code=2)
    assert "--predictive-temperature" in capsys.readouterr().err


def test_predict_writes_csv_and_takes_folders(folder, tmp_path):
    for number in range(2):
        Image.new("L", (8, 8), 40 * number).save(tmp_path / f"{number}.png")
    (tmp_path / "notes.txt").write_text("no image")
    out = tmp_path / "out.csv"
    run("predict", folder / "posterior.safetensors", tmp_path, "--csv", out, "--quiet")
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [Path(row["image"]).name for row in rows] == ["0.png", "1.png"]
    for row in rows:
        shares = [float(row[f"p({digit})"]) for digit in range(10)]
        assert sum(shares) == pytest.approx(1)
        assert row["class"] == str(int(np.argmax(shares)))


def test_table_is_distilled_sampled_and_predicted(tmp_path, capsys):
    experts = ["experts", "--data", "diabetes", "--num", 2, "--epochs", 5, "--batch", 32]
    run(*experts, "--lr", 0.05, "--out", tmp_path / "experts", "--quiet")
    distill = ["distill", "--data", "diabetes", "--experts", tmp_path / "experts", "--ipc", 5]
    run(*distill, "--steps", 2, "--from-epoch", 3, "--out", tmp_path / "run", "--quiet")
    short = ["--epochs", 20, "--every", 10, "--quiet"]
    run("sample", tmp_path / "run", "--out", tmp_path / "p.safetensors", *short)
    names = "age,sex,bmi,bp,s1,s2,s3,s4,s5,s6"
    (tmp_path / "new.csv").write_text(f"{names}\n59,2,32.1,101,157,93.2,38,4,4.8598,87\n")
    predict = ["predict", tmp_path / "p.safetensors", tmp_path / "new.csv"]
    run(*predict, "--json", tmp_path / "out.json")
    (row,) = json.loads((tmp_path / "out.json").read_text())
    assert 0 < row["mean"][0] < 400
    assert row["std"][0] > row["epistemic_std"][0] > 0
    run("evaluate", tmp_path / "run", "--data", "diabetes", "--seeds", 1, *short)
    assert "rmse" in capsys.readouterr().out


def test_folder_data_with_one_more_image_are_refused(tmp_path, capsys):
    """The leak: an image that was trained on must not be scored on unnoticed."""
    place = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (place / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(place / name / f"{number:02}.png")
    data, made = f"folder:{place}", tmp_path / "run"
    run("distill", "--data", data, "--method", "random", "--ipc", 1, "--net", NET, "--out", made,
        "--quiet")  # fmt: skip
    evaluate = ["evaluate", made, "--data", data, "--seeds", 1, "--epochs", 2, "--every", 1]
    run(*evaluate, "--quiet")
    page = (made / "report.html").read_bytes()
    Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(place / "cat" / "added.png")
    run(*evaluate, "--quiet", code=2)
    assert "--other-data" in capsys.readouterr().err
    run(*evaluate, "--quiet", "--other-data")
    assert (made / "report.html").read_bytes() == page  # not of other data
    run("evaluate", made, "--data", data, "--holdout", 4, "--other-data", *evaluate[4:], "--quiet")


def test_export_writes_for_other_programs(folder, tmp_path):
    for kind, name in (("png", "images"), ("npz", "set.npz"), ("hf", "card")):
        run("export", folder / "run", "--to", kind, "--out", tmp_path / name, "--quiet")
        assert (tmp_path / name).exists()
    with np.load(tmp_path / "set.npz") as arrays:
        assert arrays["images"].shape == (20, 1, 8, 8)


def test_classes_count_by_their_size_in_the_protocol_bayes(folder, tmp_path, capsys):
    short = ["--epochs", "20", "--every", "10", "--chains", "1", "--device", "cpu"]
    short += ["--protocol", "bayes"]
    coreset = tmp_path / "coreset.safetensors"
    shutil.copy(folder / "run" / coreset.name, coreset)
    data, found = load_data("digits"), {}
    for name, more in (("own", []), ("number", ["--weight", "5"])):
        run("sample", coreset, "--out", tmp_path / name, *more, *short)
        found[name] = Posterior.load(tmp_path / name).details["protocol"]
    assert found["own"]["weight"] == len(data.train) / 20
    assert found["own"]["class_weights"] == [n / 2 for n in data.class_counts]
    assert found["number"]["weight"] == 5
    assert "class_weights" not in found["number"]
    capsys.readouterr()
    compared = tmp_path / "compare.json"
    run("compare", coreset, "full", "--data", "digits", "--json", compared, *short)
    assert "warning" not in capsys.readouterr().err
    a, b = (json.loads(compared.read_text())[side]["protocol"] for side in "ab")
    assert a["class_weights"] == found["own"]["class_weights"]
    assert (b["weight"], "class_weights" in b) == (1, False)
    scores = tmp_path / "scores.json"
    run("evaluate", coreset, "--data", "digits", "--seeds", "1", "--json", scores, *short)
    protocol = json.loads(scores.read_text())["protocol"]
    assert protocol["class_weights"] == found["own"]["class_weights"]


def test_compare_says_how_far_apart_two_are(folder, tmp_path, capsys):
    posterior, json_file = folder / "posterior.safetensors", tmp_path / "compare.json"
    run("compare", posterior, posterior, "--data", "digits", "--json", json_file)
    assert "agreement           1.0000" in capsys.readouterr().out
    found = json.loads(json_file.read_text())
    assert (found["agreement"], found["total_variation"], found["kl"]) == (1, 0, 0)
    assert found["a"] == found["b"]
    short = ["--epochs", "20", "--every", "10", "--chains", "2", "--device", "cpu"]
    run("compare", folder / "run", "full", "--data", "digits", "--json", json_file, *short)
    captured = capsys.readouterr()
    assert "warning" not in captured.err
    found = json.loads(json_file.read_text())
    assert 0 < found["agreement"] < 1
    assert found["b"]["accuracy"] > found["a"]["accuracy"]
    assert [found[side]["seed"] for side in "ab"] == [0, 1]
    run("compare", posterior, "full", "--data", "digits", "--step", "0.05", *short)
    assert "not sampled in the same way: step 0.03 and 0.05" in capsys.readouterr().err
    run("compare", posterior, posterior, "--data", "digits", "--chains", "2", code=2)
    assert "--chains has no effect" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["--epochs", 3], ["--sampler", "map"], ["--seed", 1]])
def test_sampling_options_are_refused_where_nothing_is_sampled(folder, capsys, given):
    posterior = folder / "posterior.safetensors"
    for command in (["evaluate", posterior], ["compare", posterior, posterior]):
        run(*command, "--data", "digits", *given, code=2)
        assert f"{given[0]} has no effect on" in capsys.readouterr().err
    run("evaluate", posterior, "--data", "digits", "--random", code=2)
    assert "--random has no effect on a posterior" in capsys.readouterr().err


def test_posterior_is_known_by_its_content(folder, tmp_path, capsys):
    posterior = folder / "posterior.safetensors"
    other = shutil.copy(posterior, tmp_path / "posterior")
    run("evaluate", posterior, "--data", "digits")
    expected = capsys.readouterr().out
    run("evaluate", other, "--data", "digits")
    assert capsys.readouterr().out == expected
    nets = ["--net", NET, "--net", "convnet:width=16"]
    run("evaluate", posterior, "--data", "digits", *nets, code=2)
    assert "--net was given 2 times" in capsys.readouterr().err


def test_predict_says_how_a_coreset_becomes_a_posterior(folder, capsys):
    for coreset in ("gallery:digits-1", folder / "run"):
        run("predict", coreset, folder, code=2)
        assert f"`pseudocoreset sample {coreset} --out" in capsys.readouterr().err


def test_predicted_rows_of_a_table_are_inputs(tmp_path):
    made = ["--data", "breast-cancer", "--method", "random", "--ipc", 2]
    run("distill", *made, "--net", "mlp:width=4", "--out", tmp_path / "run", "--quiet")
    posterior, file = tmp_path / "posterior.safetensors", tmp_path / "found.csv"
    run("sample", tmp_path / "run", "--out", posterior, "--epochs", 2, "--every", 1, "--quiet")
    columns = [column.name for column in load_data("breast-cancer").columns]
    rows = [",".join(columns), ",".join("1" for _ in columns)]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    run("predict", posterior, tmp_path / "rows.csv", "--csv", file)
    with file.open(newline="") as found:
        (row,) = csv.DictReader(found)
    assert row["input"] == f"{tmp_path / 'rows.csv'}[0]"
    assert "image" not in row


def test_info_takes_the_task_of_a_table(tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text("a,b\n" + "".join(f"{n}.5,{n}\n" for n in range(40)))
    run("info", f"table:{table}", code=2)
    assert "give --task regression if it is a quantity" in capsys.readouterr().err
    run("info", f"table:{table}", "--task", "regression")
    assert "1, numbers" in capsys.readouterr().out


def test_no_garbage_is_looked_for_while_a_command_is_imported():
    program = (
        "import gc, sys; generations = []; from pseudocoreset import cli; "
        "gc.callbacks.append(lambda _, info: generations.append(info['generation'])); "
        "plain = cli.import_module; "
        "cli.import_module = lambda name: (plain(name), generations.append('imported'))[0]; "
        "cli.main(['info', '--help']); "
        "assert generations[0] == 'imported', generations; "
        "frozen = gc.get_freeze_count(); assert gc.isenabled() and frozen > 100_000, frozen; "
        "later = [[] for _ in range(1000)]; cli.main(['info', '--help']); "
        "assert gc.get_freeze_count() <= frozen"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_same_warning_is_shown_once(capsys):
    words = ["plan", "evaluate", "gallery:digits-1", "--data", "digits", "--temperature", "1"]
    assert main([*words, "--epochs", "4", "--every", "4", "--device", "cpu"]) == 0
    assert capsys.readouterr().err.count("Give --weight 129.7") == 1
