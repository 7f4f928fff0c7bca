"""The commands with --workers give what they give without."""

import json
from pathlib import Path

import pytest

from pseudocoreset.cli import main

QUIET = ["--device", "cpu", "--quiet"]
SHORT = ["--epochs", "4", "--every", "2"]


@pytest.fixture(scope="module")
def coreset(tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    made = ["--method", "random", "--ipc", "1", "--net", "convnet:depth=2,width=8"]
    assert main(["distill", "--data", "digits", *made, "--out", str(run), *QUIET]) == 0
    return str(run / "coreset.safetensors")


def both(tmp_path: Path, *words: str) -> list[Path]:
    """What a command writes here, and in processes."""
    outs = [tmp_path / "here", tmp_path / "there"]
    for out, where in zip(outs, ([], ["--workers", "2"]), strict=True):
        assert main([*words, str(out), *where, *QUIET]) == 0
    return outs


def test_experts(tmp_path):
    made = ["--net", "convnet:depth=2,width=8", "--num", "2", "--epochs", "1", "--out"]
    here, there = both(tmp_path, "experts", "--data", "digits", *made)
    files = [{path.name: path.read_bytes() for path in out.iterdir()} for out in (here, there)]
    assert files[0] == files[1]


def test_sample(tmp_path, coreset):
    here, there = both(tmp_path, "sample", coreset, *SHORT, "--chains", "2", "--out")
    assert there.read_bytes() == here.read_bytes()


def test_evaluate(tmp_path, coreset):
    words = ["evaluate", coreset, "--data", "digits", *SHORT, "--seeds", "2", "--json"]
    here, there = (json.loads(path.read_text()) for path in both(tmp_path, *words))
    assert there == here


def test_one_of_both_is_given(capsys):
    words = ["experts", "--data", "digits", "--out", "x", "--workers", "2", "--ray", "auto"]
    assert main(words) == 2
    assert "--workers and --ray can't be combined" in capsys.readouterr().err
