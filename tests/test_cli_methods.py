"""Every method, its options and its recipe as a person gives them on the command line."""

import json
import re

import pytest
import yaml

from pseudocoreset import Pseudocoreset
from pseudocoreset.cli import main, make_parser
from pseudocoreset.divergences import METHODS
from pseudocoreset.settings import USED_BY

NETS = ["convnet:width=4", "convnet:width=4,norm=none"]
SHORT = {
    "samples": 3,
    "from_epoch": 1,
    "to_epoch": 1,
    "gamma": 3.0,
    "lr_map": 0.01,
    "max_map_steps": 20,
    "draws": 2,
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
}
"""A value of each option that is not its default."""


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


def options_of(method):
    """As a person types them."""
    assert SHORT.keys() == USED_BY.keys()
    chosen = [(name, SHORT[name]) for name, methods in USED_BY.items() if method in methods]
    flags = [(f"--{name.replace('_', '-')}", value) for name, value in chosen]
    return dict(chosen), [part for flag in flags for part in flag]


@pytest.mark.parametrize("method", METHODS)
def test_a_coreset_for_two_networks(method, stores, tmp_path, capsys):
    config, options = options_of(method)
    command = ["distill", "--data", "digits", "--method", method, "--ipc", 1, "--lr-images", 0.1]
    command += ["--net", NETS[0], "--net", NETS[1], "--experts", stores[1], "--experts", stores[0]]
    command += [*options, "--out", tmp_path / "run"]
    run(*command, "--steps", 1, "--quiet")
    run(*command, "--steps", 2, "--quiet")  # goes on
    told = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert told.items() >= config.items()
    assert not told.keys() & (USED_BY.keys() - config.keys())
    rows = [
        json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().split("\n")[:2]
    ]
    assert [row["update"] for row in rows] == [1, 2]
    found = {key.split("/")[1] for row in rows for key in row if key != "update"}
    assert found == {"0", "1"}
    coreset = Pseudocoreset.load(tmp_path / "run" / "coreset.safetensors")
    assert [("norm=none" in net) for net in coreset.provenance.config["nets"]] == [False, True]
    assert coreset.provenance.method == method
    if method == "bpc-w":
        assert rows[0]["lr_student/0"] == rows[0]["lr_student/1"] == 0.05
        assert len({0.05, rows[1]["lr_student/0"], rows[1]["lr_student/1"]}) == 3
    run(*command, "--steps", 2, "--momentum", 0.25, code=2)
    assert "holds a run with momentum" in capsys.readouterr().err


def test_the_recipes_name_is_shown(stores, tmp_path, capsys):
    command = ["distill", "--data", "digits", "--recipe", "tuned", "--ipc", 1, "--steps", 0]
    run(*command, "--from-epoch", 1, "--experts", stores[0], "--out", tmp_path / "run", "--quiet")
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["recipe"] == "tuned"
    run("info", tmp_path / "run")
    assert re.search(r"recipe +tuned", capsys.readouterr().out)
    page = (tmp_path / "run" / "report.html").read_text()
    assert re.search(r"recipe</th>\s*<td>(<code>)?tuned", page)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--recipe", "best"], "no recipe is called 'best': give --recipe paper or tuned."),
        (["--noise", "0.1"], "--noise is an option of bpc-fkl, bpc-rkl and has no use in fbpc"),
        (["--method", "random", "--samples", "3"], "--samples is an option of fbpc"),
        (["--method", "bpc-fkl", "--noise", "0"], "--noise 0.0 is not positive: give a number"),
        (["--method", "bpc-w", "--lr-lr", "-1"], "--lr-lr -1.0 is out of range: give 0 or more."),
        (["--method", "bpc-rkl", "--samples", "1"], "--samples 1 has no covariance"),
        (["--method", "bpc-fkl", "--start-epochs", "3"], "epochs 0 to 3 are needed"),
        (["--method", "bpc-fkl", "--group", "few"], "--group: Expected an int"),
    ],
)
def test_a_mistake_is_one_sentence(options, says, stores, tmp_path, capsys):
    experts = [] if "random" in options else ["--experts", stores[0]]
    command = ["distill", "--data", "digits", "--ipc", 1, *experts, "--out", tmp_path / "run"]
    run(*command, *options, code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not (tmp_path / "run").exists()


def test_the_help_tells_which_options_a_method_takes(capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["distill", "--help"])
    text = capsys.readouterr().out
    for name, methods in USED_BY.items():
        section = text.split(f"options of {', '.join(methods)}:\n")[1].split("\noptions of")[0]
        assert f"--{name.replace('_', '-')} " in section
    assert "default: the" in text
