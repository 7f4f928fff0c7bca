"""Measure trials and store them in one JSON file per problem."""

import re
import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.parse import Shape, check_shape, read_json
from pseudocoreset.engine.random import Rng, seed_for
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.methods import Points
from pseudocoreset.reproduce.exact.follow import experts_of, follow, paper_loss
from pseudocoreset.reproduce.exact.linear import LinearTruth
from pseudocoreset.reproduce.exact.logistic import LogisticTruth, Sampling
from pseudocoreset.reproduce.exact.moments import lowest_kl
from pseudocoreset.reproduce.exact.problems import (
    AS_IN_THE_PAPER,
    NOISE,
    PRIOR,
    PROBLEMS,
    Loss,
    Problem,
)
from pseudocoreset.scale import Executor, SerialExecutor, Task

FORMAT = 1
METHODS = {
    "random": "random points",
    "reverse-kl": "reverse KL, exact gradient",
    "forward-kl": "forward KL, exact gradient",
    "fbpc-moments": "FBPC, exact moments",
    "fbpc-samples": "FBPC, samples of both posteriors",
    "fbpc": "FBPC, as in the paper",
}
PARTS = {
    "fbpc-average": "as in the paper, without the noise",
    "fbpc-exact-variances": "the paper's means, exact variances",
    "fbpc-exact-means": "exact means, the paper's variances",
    "fbpc-laplace": "MAP solutions and curvature with weight and prior",
    "fbpc-noise": "exact moments, 30 drawn values",
}
"""FBPC with some parts as in the paper and others exact, for logistic regression."""
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


def methods_of(name: str) -> dict[str, str]:
    """The methods of a problem, with their titles.

    Args:
        name: the problem
    """
    return {**METHODS, **PARTS} if name == "logistic" else METHODS


def path_of(out: Path, name: str) -> Path:
    """Where a problem's trials are.

    Args:
        out: folder of the results
        name: the problem
    """
    return out / "exact" / f"{name}.json"


def stored(out: Path, name: str) -> dict[str, Any]:
    """What was measured of a problem; without trials if nothing was.

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
        _check_distances([each["distances"] for each in content["trials"]], methods_of(name).keys())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): delete it to measure again.") from None
    return dict(content)


def _check_distances(trials: list[dict[str, Any]], known: Set[str]) -> None:
    """Raise ValueError where trials do not all have the same sizes, and of a trial all sizes the
    same methods and distances.
    """
    for distances in trials:
        sizes = trials[0].keys()
        if not sizes or distances.keys() != sizes or not all(map(LIKE_A_SIZE, sizes)):
            raise ValueError("its trials are of other sizes")
        check_shape(distances, dict.fromkeys(sizes, dict))
        methods = next(iter(distances.values())).keys()
        if "random" not in methods or not known >= methods:
            raise ValueError("its methods are not known")
        check_shape(distances, dict.fromkeys(sizes, dict.fromkeys(methods, DISTANCES)))
        found = [of_size[method] for of_size in distances.values() for method in methods]
        for each in found:
            check_shape(each, dict.fromkeys({**found[0], **each}, float))


def measure_exact(
    names: Sequence[str], out: Path, trials: int, first: int, executor: Executor | None = None
) -> Iterator[str]:
    """Measure missing trials and yield a line after each.

    Args:
        names: of problems
        out: folder of the results
        trials: how many of each
        first: seed of the first trial
        executor: what runs the trials; None: this process
    """
    todo = []
    for name in names:
        done = {each["seed"]: each for each in stored(out, name)["trials"]}
        for seed in range(first, first + trials):
            known = done.get(seed, {"distances": {}})
            if _missing(name, known["distances"]):
                todo.append(Task(f"{name} {seed}", timed_trial, (name, seed, known)))
            else:
                yield f"exact {name}, seed {seed}: measured before"
    for task, (found, seconds) in (executor or SerialExecutor()).run(todo):
        name, seed, _ = task.arguments
        content = stored(out, name)
        others = [each for each in content["trials"] if each["seed"] != seed]
        every = [*others, {**found, "seed": seed, "seconds": seconds}]
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


def _missing(name: str, distances: dict[str, Any]) -> list[str]:
    """The methods that a trial lacks."""
    if not distances:
        return list(methods_of(name))
    return [each for each in methods_of(name) if each not in next(iter(distances.values()))]


def timed_trial(name: str, seed: int, known: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """A trial, and its seconds, those that were spent on it before among them.

    Args:
        name: the problem
        seed: of data and points
        known: what was measured of it
    """
    began = time.perf_counter()
    found = measure_trial(name, seed, known)
    return found, known.get("seconds", 0.0) + time.perf_counter() - began


def measure_trial(name: str, seed: int, known: dict[str, Any]) -> dict[str, Any]:
    """The methods that are missing, at all sizes, from the same random points at each size.

    Args:
        name: the problem
        seed: of data and points
        known: what was measured of it
    """
    effort, problem = EFFORTS[name], PROBLEMS[name](seed)
    generator = Rng(torch.device("cpu"), seed, "exact", name, "trial").host
    starts = {size: problem.random_points(size, generator) for size in effort.sizes}
    missing = _missing(name, known["distances"])
    generator.manual_seed(seed_for(seed, "exact", name, *missing))
    truth: LinearTruth | LogisticTruth
    found: dict[str, Any] = {"n": len(problem.data.train), **known, "distances": {}}
    if name == "logistic":
        truth = LogisticTruth(problem, SAMPLING, generator)
        found.setdefault("floor", truth.floor())
    else:
        truth = LinearTruth(problem, generator)
        found["lowest"] = {m: lowest_kl(truth.moments, PRIOR, m) for m in effort.sizes}
    with TemporaryDirectory() as folder:
        experts = experts_of(problem, Path(folder) / "experts", seed)
        for size, start in starts.items():
            distances = dict(known["distances"].get(str(size), {}))
            for method in missing:
                made = start
                if method != "random":
                    loss = _loss(method, problem, truth, start, experts, seed)
                    steps = effort.fbpc_steps if method == "fbpc" else effort.steps
                    made = follow(start, loss, problem.learned, steps, effort.lr)
                distances[method] = truth.distances(made)
            found["distances"][size] = distances
    return found


def _loss(
    method: str,
    problem: Problem,
    truth: LinearTruth | LogisticTruth,
    start: Points,
    experts: ExpertStore,
    seed: int,
) -> Loss:
    """What a method follows the gradient of."""
    if method == "fbpc":
        return paper_loss(problem, experts, seed, AS_IN_THE_PAPER)
    if isinstance(truth, LogisticTruth):
        return truth.loss(method, start, experts)
    return truth.loss(method)
