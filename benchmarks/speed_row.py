"""One row of the speed benchmark: the package beside its plain twin, in a process of its own."""

import gc
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

import plain
from pseudocoreset.data import Data, Scaling, Split, load_data
from pseudocoreset.distillation import distill, run
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.files import locked
from pseudocoreset.engine.loop import compiled_anew
from pseudocoreset.engine.versions import versions
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.methods import method_class
from pseudocoreset.plan.estimate import FROZEN
from pseudocoreset.plan.measure import (
    PeakMemory,
    Stopwatch,
    seconds_a_step,
    stand_in_experts,
    synchronize,
)
from pseudocoreset.posterior import SGHMC, named_sampler
from script import job_of

GB = 1e9
WARM_UP = 2  # updates before those that count: kernels are chosen, compiled, captured
MOST_MAP_STEPS = 500  # of random weights on random images, γ may be out of reach
PRECISION = {"fast": "training steps in bfloat16, the rest in TF32", "plain": "TF32"}
STAND_IN = "stand-in"
EXPERTS = 10
SEEDS = 5


@dataclass(frozen=True)
class Row:
    """What is to be measured."""

    what: str
    net: str
    ipc: int | None
    data: str = STAND_IN
    device: str = "auto"
    repeats: int = 5
    small: bool = False
    with_plain: bool = True
    image_size: int = 32
    classes: int = 10
    map_steps: int | None = None
    """So many steps to the MAP solution, whatever the loss; None: until γ is reached."""
    real_batch: int | None = None
    grows: str | None = None
    """In the second part: what this row has more of."""

    def as_json(self) -> dict[str, Any]:
        """As it is stored: without the place of the data on this machine."""
        return asdict(self) | {"data": without_place(self.data)}

    @property
    def method(self) -> str:
        """The method of an update."""
        return self.what.removesuffix(" update")


def without_place(data: str) -> str:
    """A data spec without a folder of this machine."""
    return re.sub(":.*", ":DIR", data)


def measure(row: Row, turn: Path | None = None) -> dict[str, Any]:
    """All that is found out about a row; with a file `turn`, once no other process locks it."""
    data = data_of(row)
    if turn is None:
        return _measure(row, data)
    with turn.open("ab") as file, locked(file, 0, wait=True):
        return _measure(row, data)


def _measure(row: Row, data: Data) -> dict[str, Any]:
    place = choose_device(row.device)
    data = data.to(place)
    memory = PeakMemory(place)
    found: dict[str, Any] = {"floor_gb": _floor(place, memory)}
    if row.what.endswith("update"):
        found |= measure_update(row, data, place, memory)
    elif row.what == "expert epoch":
        found |= _expert_epoch(row, data, place, memory)
    else:
        found |= _sghmc(row, data, place, memory)
    plain_s, fast_s = found.get("plain_s"), found["fast_s"]
    return {
        "what": row.what,
        "net": row.net,
        "ipc": row.ipc,
        "plain_s": plain_s,
        "fast_s": fast_s,
        "ratio": None if plain_s is None else plain_s / fast_s,
        "peak_gb": found["whole_peak_gb"],
        "device": device_name(place),
        **{name: value for name, value in found.items() if name not in ("plain_s", "fast_s")},
        "data_gb": sum(s.inputs.nbytes + s.targets.nbytes for s in (data.train, data.test)) / GB,
        "precision": PRECISION if place.type == "cuda" else "float32",
        "repeats": row.repeats,
        "compiled": compiled_anew(),
        "row": row.as_json(),
        "versions": versions(),
    }


def stand_in_data(image_size: int, classes: int, images: int) -> Data:
    """Colour images that a network can tell apart: a coarse pattern a class, under noise."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 128, (classes, 3, 4, 4), generator=generator).float()
    patterns = F.interpolate(patterns, size=image_size).to(torch.uint8)

    def split(number: int) -> Split:
        labels = torch.arange(number) % classes
        shape = (number, 3, image_size, image_size)
        noise = torch.randint(0, 128, shape, generator=generator, dtype=torch.uint8)
        return Split(noise + patterns[labels], labels)

    names = tuple(f"class {number}" for number in range(classes))
    normalisation = Scaling((0.5,) * 3, (0.2,) * 3)
    return Data(STAND_IN, split(images), split(images // 5), names, normalisation)


def data_of(row: Row) -> Data:
    """The row's images, or made-up ones; their digests are computed before they move."""
    # An epoch of experts is one of 50,000 images; an update does not care how many there are.
    number = 10_000 if row.what.endswith("update") else 50_000
    number = 100 * row.classes if row.small else number
    made_up = row.data == STAND_IN
    data = stand_in_data(row.image_size, row.classes, number) if made_up else load_data(row.data)
    _ = data.fingerprint, data.train_digest, data.test_digest
    return data


def _floor(place: torch.device, memory: PeakMemory) -> float | None:
    """What the libraries reserve for the least of steps: workspaces and the smallest blocks."""
    if place.type != "cuda":
        return None
    images = torch.randn(2, 3, 8, 8, device=place, requires_grad=True)
    weight = torch.randn(4, 3, 3, 3, device=place, requires_grad=True)
    features = F.conv2d(images, weight).flatten(1)
    (features @ features.T).sum().backward()
    return memory.beyond() / GB


def _timed(work: Callable[[], Any], place: torch.device, times: int) -> list[float]:
    found = []
    for _ in range(times):
        synchronize(place)
        begun = time.perf_counter()
        work()
        synchronize(place)
        found.append(time.perf_counter() - begun)
    return found


@contextmanager
def _plainly(found: dict[str, Any], place: torch.device) -> Iterator[None]:
    """Measure the plain twin after what was captured is gone; too little memory is a result."""
    gc.collect()
    torch.backends.cudnn.benchmark = True  # as anyone would who trains with one size of batch
    torch.backends.cuda.matmul.allow_tf32 = True  # as the package does in its captured steps
    memory = PeakMemory(place)
    try:
        yield
        if place.type == "cuda":  # a process has but one peak, and the package was first
            found["plain_peak_gb"] = memory.beyond() / GB
    except torch.OutOfMemoryError as error:
        found["plain_failed"] = str(error).splitlines()[0]


def measure_update(row: Row, data: Data, place: torch.device, memory: PeakMemory) -> dict[str, Any]:
    """Seconds of a method's update, and the most memory since `memory` was made."""
    warm_up, size = (1 if row.small else WARM_UP), row.ipc * data.classes
    of_some = {
        "real_batch": row.real_batch,
        "gamma": None if row.map_steps is None else 1e-9,
        "max_map_steps": row.map_steps or MOST_MAP_STEPS,
    }
    own = {field.name for field in fields(method_class(row.method))}
    settings = {
        "method": row.method,
        "ipc": row.ipc,
        "steps": warm_up + row.repeats,
        "batch": size,
        "lr_images": FROZEN,
        "dsa": "on",
        **{name: v for name, v in of_some.items() if name in own and v is not None},
    }
    with tempfile.TemporaryDirectory() as folder:
        store = stand_in_experts(Path(folder), data, row.net, "on")
        job = job_of(settings, data, [store])
        watch = Stopwatch(place)
        run(job, data, [store], device=place, progress=watch)
        times = watch.durations[warm_up:]
        steps = [int(figures.get("map_steps", 0)) for figures in watch.figures[warm_up:]]
        found: dict[str, Any] = {
            "fast_s": median(times),
            "whole_peak_gb": memory.beyond() / GB,
            "fast_each_s": times,
            "once_s": max(0.0, watch.durations[0] - median(times)),
            "map_steps": median(steps) if any(steps) else None,
            "map_steps_each": steps,
            "map_missed": sum(figures.get("map_missed", 0) for figures in watch.figures),
            "parameters": store.make_net().num_params,
            "settings": job.config(),
            "experts": "random weights, one snapshot on the device at a time",
        }
        if row.with_plain:
            with _plainly(found, place):
                # The same coreset and the same MAP steps; the first update is warm-up.
                twin = plain.coreset_updates(data, store, job, place, [steps[0], *steps])
                found["plain_each_s"] = _timed(lambda: next(twin), place, 1 + len(steps))[1:]
                found["plain_s"] = median(found["plain_each_s"])
    return found


def _expert_epoch(row: Row, data: Data, place: torch.device, memory: PeakMemory) -> dict[str, Any]:
    """Two trainings that differ in their epochs alone: the difference is epochs, nothing else."""
    experts, short, longer = (2, 1, 6) if row.small else (EXPERTS, 1, 4)
    options = ExpertOptions(num=experts, batch=64 if row.small else 256)

    def train(epochs: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            chosen = replace(options, epochs=epochs)
            train_experts(data, row.net, folder, chosen, device=place, progress=False)

    (cold,) = _timed(lambda: train(short), place, 1)
    times = []
    for _ in range(min(3, row.repeats)):
        runs = {
            epochs: _timed(lambda e=epochs: train(e), place, 1)[0] for epochs in (short, longer)
        }
        pairs = [(experts * epochs, seconds) for epochs, seconds in runs.items()]
        times.append(seconds_a_step(*pairs))
    found: dict[str, Any] = {
        "fast_s": median(times),
        "whole_peak_gb": memory.beyond() / GB,
        "fast_each_s": times,
        "once_s": max(0.0, cold - experts * short * median(times)),
        "averaged_over_experts": experts,
        "steps_an_epoch": len(data.train) // options.batch,
    }
    if row.with_plain:
        with _plainly(found, place):
            twin = plain.PlainExpert(data, row.net, options, place, seed=0)
            found["plain_each_s"] = _timed(twin.epoch, place, 1 + min(3, row.repeats))[1:]
            found["plain_s"] = median(found["plain_each_s"])
    return found


def _sghmc(row: Row, data: Data, place: torch.device, memory: PeakMemory) -> dict[str, Any]:
    """Chains on random real images, scored on all test images; the plain twin runs one of them."""
    sampler = named_sampler("tuned", SGHMC(epochs=20, every=10) if row.small else SGHMC())
    coreset = distill(
        data, method="random", ipc=row.ipc, net=row.net, device=place, progress=False
    ).to(place)

    def scores(chosen: SGHMC, seeds: int) -> None:
        evaluate(coreset, data, chosen, seeds=seeds, device=place, progress=False)

    short = replace(sampler, epochs=sampler.every)
    (cold,) = _timed(lambda: scores(short, SEEDS), place, 1)
    times = _timed(lambda: scores(sampler, SEEDS), place, min(3, row.repeats))
    found: dict[str, Any] = {
        "fast_s": median(times),
        "whole_peak_gb": memory.beyond() / GB,
        "fast_each_s": times,
        "once_s": max(0.0, cold - median(times) * short.epochs / sampler.epochs),
        "protocol": {"sampler": sampler.name, **sampler.as_dict()},
        "test_images": len(data.test),
    }
    if row.with_plain:
        with _plainly(found, place):
            chain = plain.sghmc_scores
            _timed(lambda: chain(coreset, data, short, place, 0), place, 1)
            (one,) = _timed(lambda: chain(coreset, data, sampler, place, 0), place, 1)
            found |= {"plain_s": SEEDS * one, "plain_measured": f"one seed, times {SEEDS}"}
    return found
