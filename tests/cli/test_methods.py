"""Every method with its own options on the command line, a person's own too."""

import json
from dataclasses import fields

import pytest
import yaml

from pseudocoreset import Pseudocoreset
from pseudocoreset.cli import main
from pseudocoreset.methods import METHODS

NETS = ["convnet:width=4", "convnet:width=4,norm=none"]
SHORT = {
    "samples": 3,
    "from_epoch": 1,
    "to_epoch": 1,
    "gamma": 3.0,
    "lr_map": 0.02,
    "max_map_steps": 20,
    "draws": 2,
    "experts_each": 2,
    "reuse": 2,
    "reuse_steps": 3,
    "lr_x": 0.02,
    "lr_u": 0.02,
    "covariance_steps": 2,
    "real_batch": 32,
    "start_epochs": 1,
    "student_steps": 3,
    "lr_student": 0.05,
    "expert_epochs": 2,
    "noise": 0.02,
    "group": 3,
    "likelihood_batch": 50,
    "weight_x": 1297.0,
    "weight_u": 10.0,
    "lr_lr": 0.001,
    "window": 3,
    "networks": 3,
    "pool": 4,
    "longest": 8,
    "inner_step": 0.05,
    "inner_friction": 0.2,
    "inner_decay": 0.01,
    "clip": 3.0,
    "chains": 2,
    "chain_steps": 2,
    "warm_up": 3,
    "lr_chains": 0.05,
    "friction": 0.2,
    "prior": 2.0,
    "temperature": 0.5,
    "head_prior": 0.02,
    "head_precision": 2.0,
    "kl_weight": 0.5,
    "pool_steps": 3,
    "lr_pool": 0.002,
}
"""A value of each option that is not its default."""
OWN = """
from dataclasses import dataclass

import torch

import pseudocoreset as pc


@dataclass(frozen=True)
class Shrink(pc.Method):
    needs_experts = False
    rate: float = pc.option(0.5, "how fast the images fade", above=0)

    def prepare(self, context):
        return Fading(self.rate)


class Fading:
    def __init__(self, rate):
        self.rate = rate

    def start(self):
        return {}

    def gradient(self, coreset, state, rng):
        return pc.Estimate({"inputs": self.rate * coreset.inputs}, state)


@dataclass(frozen=True)
class Collides(Shrink):
    ipc: int = pc.option(1, "which the command has too")


@dataclass(frozen=True)
class Sgd(pc.Sampler):
    jitter: float = pc.option(0.0, "standard deviation of the jump of a step", at_least=0)

    def rule(self, points, weight):
        return Rule(self.step, self.jitter)


@dataclass(frozen=True)
class Rule:
    step: float
    jitter: float

    def slots(self, params):
        return {}

    def draw(self, params, generator):
        return {"jump": torch.randn(params.shape, generator=generator)}

    def update(self, state, gradient):
        return {"params": state["params"] - self.step * gradient + self.jitter * state["jump"]}
"""


def run(*arguments: object, code: int = 0) -> None:
    assert main([str(argument) for argument in arguments]) == code


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Experts of two networks."""
    root = tmp_path_factory.mktemp("experts")
    for number, net in enumerate(NETS):
        command = ["experts", "--data", "digits", "--net", net, "--num", 1, "--epochs", 2]
        run(*command, "--batch", 128, "--lr", 0.05, "--out", root / str(number), "--quiet")
    return [root / str(number) for number in range(len(NETS))]


@pytest.mark.parametrize("name", [name for name in METHODS if name != "random"])
def test_method_takes_its_options_and_two_networks(name, stores, tmp_path):
    own = {each.name: SHORT[each.name] for each in fields(METHODS[name])}
    options = [part for key, value in own.items() for part in (f"--{key.replace('_', '-')}", value)]
    command = ["distill", "--data", "digits", "--method", name, "--ipc", 1, "--lr-images", 0.1]
    command += ["--net", NETS[0], "--net", NETS[1], "--experts", stores[1], "--experts", stores[0]]
    command += [*options, "--out", tmp_path / "run"]
    run(*command, "--steps", 1, "--quiet")
    run(*command, "--steps", 2, "--quiet")  # goes on
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config.items() >= own.items()
    assert not config.keys() & (SHORT.keys() - own.keys())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["update"] for row in rows] == [1, 2]
    assert {key.split("/")[1] for row in rows for key in row if key != "update"} == {"0", "1"}
    coreset = Pseudocoreset.load(tmp_path / "run" / "coreset.safetensors")
    assert [("norm=none" in net) for net in coreset.provenance.config["nets"]] == [False, True]
    if name == "bpc-w":
        assert rows[0]["lr_student/0"] == rows[0]["lr_student/1"] == 0.05
        assert len({0.05, rows[1]["lr_student/0"], rows[1]["lr_student/1"]}) == 3
    run(*command, "--steps", 2, "--momentum", 0.25, code=2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--recipe", "nosuch"], "--recipe"),
        (["--noise", "0.1"], "bpc-fkl, bpc-rkl"),
        (["--method", "random", "--samples", "3"], "fbpc"),
        (["--method", "random", "--steps", "3"], "--steps"),
        (["--method", "bpc-fkl", "--noise", "0"], "--noise"),
        (["--method", "bpc-w", "--lr-lr", "-1"], "--lr-lr"),
        (["--method", "bpc-rkl", "--samples", "1"], "--samples"),
        (["--method", "bpc-fkl", "--start-epochs", "3"], "--start-epochs"),
        (["--method", "bpc-fkl", "--group", "few"], "--group"),
        (["--from-epoch", "2", "--to-epoch", "1"], "--to-epoch"),
        (["--form", "mosaic:3"], "--form"),
        (["--lr-labels", "3"], "--lr-labels"),
    ],
)
def test_wrong_option_is_refused_by_its_flag(options, says, stores, tmp_path, capsys):
    experts = [] if "random" in options else ["--experts", stores[0]]
    command = ["distill", "--data", "digits", "--ipc", 1, *experts, "--out", tmp_path / "run"]
    run(*command, *options, code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert "`" not in line.replace("`pseudocoreset", "").replace("--help`", "")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", METHODS)
def test_help_has_the_options_of_the_chosen_method(name, capsys):
    run("distill", "--method", name, "--help")
    text = capsys.readouterr().out
    for option in SHORT:
        used = option in {each.name for each in fields(METHODS[name])}
        assert (f"--{option.replace('_', '-')} " in text) == used


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "own", raising=False)
    return tmp_path


def test_own_method_has_flags_like_ours(own, capsys):
    run("distill", "--method", "own:Shrink", "--help")
    assert "how fast the images fade" in capsys.readouterr().out
    made = ["distill", "--data", "digits", "--method", "own:Shrink", "--ipc", 1, "--steps", 2]
    made += ["--net", NETS[0], "--lr-images", 1, "--momentum", 0, "--quiet"]
    run(*made, "--rate", 0.25, "--out", "run")
    run("distill", "--data", "digits", "--method", "random", "--ipc", 1, "--net", NETS[0],
        "--out", "start", "--quiet")  # fmt: skip
    start, end = (Pseudocoreset.load(f"{name}/coreset.safetensors") for name in ("start", "run"))
    assert (end.inputs - start.inputs * 0.75**2).abs().max() < 1e-6
    assert end.provenance.config["rate"] == 0.25
    run(*made, "--rate", -1, "--out", "other", code=2)
    assert "--rate" in capsys.readouterr().err
    run(*made[:4], "own:Collides", "--ipc", 1, "--out", "other", code=2)
    assert "ipc" in capsys.readouterr().err


def test_own_sampler_has_flags_like_ours(own, capsys):
    run("distill", "--data", "digits", "--method", "random", "--ipc", 1, "--net", NETS[0],
        "--out", "run", "--quiet")  # fmt: skip
    options = ["--sampler", "own:Sgd", "--jitter", 0.01, "--epochs", 4, "--every", 2, "--chains", 1]
    run("sample", "run", "--out", "p.safetensors", *options, "--quiet")
    run("info", "p.safetensors")
    assert "own:Sgd" in capsys.readouterr().out
    run("sample", "run", "--out", "q.safetensors", *options[:-2], "--jitter", -1, code=2)
    assert "--jitter" in capsys.readouterr().err
