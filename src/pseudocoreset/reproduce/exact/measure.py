"""Measuring: trials of each problem, stored one after another in one JSON file a problem."""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.parse import Shape, check_shape, read_json
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.reproduce.exact.follow import (
    AS_IN_THE_PAPER,
    experts_of,
    follow,
    paper_loss,
)
from pseudocoreset.reproduce.exact.linear import LinearTruth, Loss
from pseudocoreset.reproduce.exact.logistic import LogisticTruth, Sampling
from pseudocoreset.reproduce.exact.moments import lowest_kl
from pseudocoreset.reproduce.exact.problems import NOISE, PRIOR, PROBLEMS
from pseudocoreset.scale import Executor, SerialExecutor, Task

FORMAT = 1
METHODS = {
    "random": "random points",
    "reverse-kl": "reverse KL, exact gradient",
    "forward-kl": "forward KL, exact gradient",
    "fbpc-moments": "FBPC, exact moments",
    "fbpc": "FBPC, as in the paper",
}
TRIAL: Shape = {"seed": int, "n": int, "distances": dict}
DISTANCES: Shape = {"forward": float, "reverse": float}
"""What is shown of a trial; logistic regression has more."""
LIKE_A_SIZE = re.compile(r"[1-9]\d{0,8}", re.ASCII).fullmatch


@dataclass(frozen=True)
class Effort:
    """Sizes of a problem's coresets, and how long they are improved."""

    sizes: tuple[int, ...]
    steps: int
    lr: float
    fbpc_steps: int = 300


EFFORTS = {
    "mean": Effort((1, 5, 20, 100), 300, 0.1),
    "linear": Effort((10, 50, 101, 200), 1000, 0.05),
    "logistic": Effort((2, 10, 50, 100), 300, 0.1),
}
SAMPLING = Sampling()


def path_of(out: Path, name: str) -> Path:
    """Where a problem's trials are.

    Args:
        out: folder of the results
        name: the problem
    """
    return out / "exact" / f"{name}.json"


def stored(out: Path, name: str) -> dict[str, Any]:
    """What was measured of a problem; without trials where nothing was.

    Args:
        out: folder of the results
        name: the problem
    """
    path = path_of(out, name)
    if not path.exists():
        return {"format": FORMAT, "problem": name, "trials": []}
    try:
        content = read_json(path)
        check_shape(content, {"format": int, "trials": [TRIAL]})
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, not {FORMAT}")
        _check_distances([trial["distances"] for trial in content["trials"]])
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): delete it to measure again.") from None
    return dict(content)


def _check_distances(trials: list[dict[str, Any]]) -> None:
    """Raise ValueError where trials do not all have the same sizes, methods and distances."""
    for distances in trials:
        sizes = trials[0].keys()
        if not sizes or distances.keys() != sizes or not all(map(LIKE_A_SIZE, sizes)):
            raise ValueError("its trials are of other sizes")
        check_shape(distances, dict.fromkeys(sizes, dict.fromkeys(METHODS, DISTANCES)))
        found = [of_size[method] for of_size in distances.values() for method in METHODS]
        for each in found:
            check_shape(each, dict.fromkeys({**found[0], **each}, float))


def measure_exact(
    names: Sequence[str], out: Path, trials: int, first: int, executor: Executor | None = None
) -> Iterator[str]:
    """Measure the trials that are missing; a line of words after each.

    Args:
        names: of problems
        out: folder of the results
        trials: how many of each
        first: seed of the first trial
        executor: what runs the trials; None: this process
    """
    todo = []
    for name in names:
        done = [each["seed"] for each in stored(out, name)["trials"]]
        for seed in range(first, first + trials):
            if seed in done:
                yield f"exact {name}, seed {seed}: measured before"
            else:
                todo.append(Task(f"{name} {seed}", timed_trial, (name, seed)))
    for task, (found, seconds) in (executor or SerialExecutor()).run(todo):
        name, seed = task.arguments
        content = stored(out, name)
        every = [*content["trials"], {"seed": seed, "seconds": seconds, **found}]
        content |= {
            "trials": sorted(every, key=lambda each: int(each["seed"])),
            "prior": PRIOR,
            "noise": NOISE,
            "effort": asdict(EFFORTS[name]),
            "sampling": asdict(SAMPLING),
            "fbpc": AS_IN_THE_PAPER.as_dict(),
            "command": f"pseudocoreset reproduce exact --seed {first} --trials {trials}",
            "device": "cpu",
            "versions": versions(),
        }
        write_json(path_of(out, name), content)
        yield f"exact {name}, seed {seed}: {seconds:.0f} s"


def timed_trial(name: str, seed: int) -> tuple[dict[str, Any], float]:
    """A trial, and its seconds.

    Args:
        name: the problem
        seed: of data and points
    """
    began = time.perf_counter()
    found = measure_trial(name, seed)
    return found, time.perf_counter() - began


def measure_trial(name: str, seed: int) -> dict[str, Any]:
    """All methods at all sizes, from the same random points at each size.

    Args:
        name: the problem
        seed: of data and points
    """
    effort, problem = EFFORTS[name], PROBLEMS[name](seed)
    generator = Rng(torch.device("cpu"), seed, "exact", name, "trial").host
    truth: LinearTruth | LogisticTruth
    if name == "logistic":
        truth = LogisticTruth(problem, SAMPLING, generator)
    else:
        truth = LinearTruth(problem)
    found: dict[str, Any] = {"n": len(problem.data.train), "distances": {}}
    if isinstance(truth, LogisticTruth):
        found["floor"] = truth.floor()
    else:
        found["lowest"] = {m: lowest_kl(truth.moments, PRIOR, m) for m in effort.sizes}
    with TemporaryDirectory() as folder:
        experts = experts_of(problem, Path(folder) / "experts", seed)
        for size in effort.sizes:
            start = problem.random_points(size, generator)
            distances = {"random": truth.distances(start)}
            for method in list(METHODS)[1:]:
                loss: Loss
                if method == "fbpc":
                    loss = paper_loss(problem, experts, seed, AS_IN_THE_PAPER)
                elif isinstance(truth, LogisticTruth):
                    loss = truth.loss(method, start)
                else:
                    loss = truth.loss(method)
                steps = effort.fbpc_steps if method == "fbpc" else effort.steps
                made = follow(start, loss, problem.learned, steps, effort.lr)
                distances[method] = truth.distances(made)
            found["distances"][size] = distances
    return found
