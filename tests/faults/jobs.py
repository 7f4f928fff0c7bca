"""Small jobs of the commands that write, and what they leave: to be interrupted and compared."""

import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from fuzz_world import SHORT, SMALL, make_npz_data
from safetensors import safe_open
from shortened import NET

from pseudocoreset.cli import main

PASSING = ("duration", "seconds", "spans", "begun", "versions", "train_s")
"""What files tell of time, which no two runs agree on."""


@dataclass(frozen=True)
class Job:
    """A command that is run in a folder of its own.

    Args:
        words: the command, for the folder
        prepare: puts there what the command works on
    """

    words: Callable[[Path], list[str]]
    prepare: Callable[[Path], None] = lambda _: None


def make_jobs(root: Path, data: str | None = None, larger: int = 1) -> dict[str, Job]:
    """The commands that write, each with what it needs under `root`.

    Args:
        root: a folder that is not there yet
        data: a spec; default: a few images, made up
        larger: how many times as long jobs take
    """
    held_out = "3" if data is None else "30"
    if data is None:
        make_npz_data(root / "data.npz")
        data = f"npz:{root / 'data.npz'}"
    of_data = ["--data", data]
    experts = ["experts", *of_data, "--net", NET, "--num", "2", "--epochs", str(2 * larger)]
    experts += ["--batch", "64", "--quiet", "--out"]
    distill = ["distill", *of_data, *SMALL, "--experts", str(root / "experts")]
    distill += ["--steps", str(3 * larger), "--checkpoint-every", "1", "--out"]
    short = ["--epochs", str(2 * larger), "--every", "1", "--quiet"]
    reproduce = ["reproduce", "table1", *of_data, "--cells", "fbpc/1,random/1", "--num", "2"]
    reproduce += ["--epochs", "2", "--steps", str(2 * larger), "--seeds", "2", "--quiet"]
    tune = ["tune", *of_data, "--holdout", held_out, *SMALL, "--net", NET, "--num", "2"]
    tune += ["--epochs", "2", "--steps", str(4 * larger), "--trials", "3", "--chain-epochs", "10"]
    image = np.zeros((2, 8, 8), np.uint8)
    done(*experts, root / "experts")
    done(*distill, root / "run")
    coreset, posterior = root / "run" / "coreset.safetensors", root / "posterior.safetensors"
    done("sample", coreset, "--chains", "1", *SHORT, "--out", posterior)
    np.savez(root / "images.npz", images=image)
    predict = ["predict", str(posterior), str(root / "images.npz"), "--quiet"]

    def copy_run(place: Path) -> None:
        shutil.copytree(root / "run", place / "run")

    return {
        "experts": Job(lambda place: [*experts, str(place / "experts")]),
        "distill": Job(lambda place: [*distill, str(place / "run")]),
        "sample": Job(
            lambda place: ["sample", str(coreset), *short, "--out", str(place / "p.safetensors")]
        ),
        "evaluate": Job(
            lambda place: [
                *("evaluate", str(place / "run"), *of_data, "--seeds", "2", *short),
                *("--json", str(place / "scores.json")),
            ],
            copy_run,
        ),
        "tune": Job(lambda place: [*tune, "--out", str(place / "tune")]),
        "reproduce": Job(
            lambda place: [*reproduce, "--out", str(place / "out"), "--work", str(place / "work")]
        ),
        "predict": Job(
            lambda place: [*predict, "--json", str(place / "a.json"), "--csv", str(place / "a.csv")]
        ),
    }


def done(*words: object) -> None:
    """Run a command to its good end."""
    told = io.StringIO()
    with redirect_stderr(told), redirect_stdout(io.StringIO()):
        code = main([str(word) for word in words])
    assert code == 0, told.getvalue()


def left(place: Path) -> dict[str, Any]:
    """What each file says, but for times; one that is not whole raises."""
    paths = (path for path in sorted(place.rglob("*")) if path.is_file())
    kept = (path for path in paths if path.suffix not in (".part", ".lock"))
    return {str(path.relative_to(place)): _content(path) for path in kept if path.name != ".lock"}


def _content(path: Path) -> Any:
    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as tensors:
            metadata = json.loads(tensors.metadata()["pseudocoreset"])
            values = {name: _bits(tensors.get_tensor(name)) for name in tensors.keys()}  # noqa: SIM118
            return [lasting(metadata), values]
    if path.suffix == ".json":
        return lasting(json.loads(path.read_text()))
    if path.suffix == ".jsonl":  # the last line may be cut short, and is written again
        lines = path.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]
    if path.suffix == ".yaml":
        return yaml.safe_load(path.read_text())
    if path.suffix in (".html", ".tex", ".md", ".png"):  # they tell of times and places
        return len(path.read_bytes()) > 0
    return path.read_bytes()


def _bits(tensor: torch.Tensor) -> tuple[str, list[int], bytes]:
    content = tensor.contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor
    return str(tensor.dtype), list(tensor.shape), content.numpy().tobytes()


def lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: lasting(each) for name, each in value.items() if name not in PASSING}
    return [lasting(each) for each in value] if isinstance(value, list) else value


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """The files that are missing, too many, or other than expected."""
    names = sorted(found.keys() | expected.keys())
    return [name for name in names if found.get(name) != expected.get(name)]


def lost(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What was there before and is there no more; of checkpoints, an earlier update."""
    gone = [name for name in before if name not in now]
    for name in before.keys() & now.keys():
        if name.endswith("checkpoint.safetensors"):
            gone += [name] if now[name][0]["update"] < before[name][0]["update"] else []
        elif "trajectory-" in name or name.endswith("coreset.safetensors"):
            gone += [name] if now[name] != before[name] else []
    return gone
