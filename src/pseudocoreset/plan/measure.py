"""Measure seconds per step and peak memory, with untrained experts."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

import torch

from pseudocoreset.data import Data
from pseudocoreset.engine.progress import Task
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertOptions, ExpertStore
from pseudocoreset.experts.train import identify
from pseudocoreset.nets import NetLike, Weights, make_net

STAND_IN_SNAPSHOTS = 4
STAND_IN_EPOCHS = 1_000_000
"""More epochs than any method needs."""


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_to_start(device: torch.device) -> float:
    """The time to start and end Python, the libraries and the device."""
    program = (
        f"import torch, pseudocoreset.cli.distill; torch.zeros((), device={device.type!r}).item()"
    )
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return time.perf_counter() - begun


class Enough(Exception):  # noqa: N818 - it is no error
    """Enough was measured."""


SLOW_S = 20.0


class Stopwatch:
    """Records the time of each step of a computation.

    After `least` steps beyond the first, and `seconds` of them, it stops the work with `Enough`;
    on a CPU, if nothing is compiled, after a first one that took longer than `SLOW_S`.
    A step is done when the device is; not so without `wait`, for work side by side, which would
    then no longer be.
    """

    def __init__(
        self,
        device: torch.device,
        least: int = sys.maxsize,
        seconds: float = inf,
        *,
        wait: bool = True,
    ):
        self.figures: list[dict[str, float]] = []
        self._device = device
        self._least = least
        self._seconds = seconds
        self._wait = wait
        self._stamps: list[float] = []

    @contextmanager
    def task(self, what: str, total: int, done: int = 0) -> Iterator[Task]:  # noqa: ARG002
        """Start the watch."""
        self._stamp()
        yield self

    def advance(self, **figures: float) -> None:
        """A step is done."""
        self._stamp()
        self.figures.append(figures)
        first, *measured = self.durations
        slow = self._device.type == "cpu" and first > SLOW_S and self._seconds < inf
        if slow or (len(measured) >= self._least and sum(measured) >= self._seconds):
            raise Enough

    @property
    def durations(self) -> list[float]:
        """Seconds of each step; the first one's hold what is done once."""
        pairs = zip(self._stamps, self._stamps[1:], strict=False)
        return [end - start for start, end in pairs]

    def _stamp(self) -> None:
        if self._wait:
            synchronize(self._device)
        self._stamps.append(time.perf_counter())


def seconds_a_step(short: tuple[int, float], longer: tuple[int, float]) -> float:
    """The time of a step, from two runs (steps, seconds) that differ in their steps alone."""
    steps, seconds = (b - a for a, b in zip(short, longer, strict=True))
    # On a busy machine the short run may have been the slow one, and says nothing then.
    return seconds / steps if seconds > 0 else longer[1] / longer[0]


class PeakMemory:
    """The most memory, in bytes, that was held since this was made.

    On CUDA, what the allocator reserved, captured graphs included; `beyond` leaves out what was
    there before. On a CPU, the resident memory of the process, which has one peak for all its life.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            synchronize(device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_reserved(device)
        else:
            self._before = _resident_peak()

    def whole(self) -> int:
        """The peak."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_reserved(self._device)
        return _resident_peak()

    def beyond(self) -> int:
        """How far the peak is above what was held at the start."""
        return self.whole() - self._before


def _resident_peak() -> int:
    import resource  # Windows has none, and most commands no need of it

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class _StandIns(ExpertStore):
    """A few snapshots, which come again and again as the epochs go on."""

    def snapshot(self, trajectory: Path, epoch: int, device: torch.device) -> Weights:
        kept = (epoch - self.first_epoch) % STAND_IN_SNAPSHOTS
        return super().snapshot(trajectory, self.first_epoch + kept, device)

    def refuse_damaged(self) -> None:
        """It has fewer snapshots than it says."""


def stand_in_experts(folder: Path, data: Data, net: NetLike, dsa: str) -> ExpertStore:
    """A store of random weights in the place of experts: an update on them takes as long."""
    network = make_net(net, **data.shape)
    settings = ExpertOptions(num=1, epochs=STAND_IN_EPOCHS, dsa=dsa)
    store = ExpertStore.create(folder, identify(data, network, settings, seed=0))
    rng = Rng(torch.device("cpu"), 0, "stand-in")
    snapshots = [network.init(rng.device) for _ in range(STAND_IN_SNAPSHOTS)]
    store.write(0, snapshots, {"train_loss": []}, network)
    return _StandIns(store.path, store.identity)
