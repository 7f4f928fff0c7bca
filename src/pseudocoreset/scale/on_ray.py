"""Run tasks on a Ray cluster. Ray repeats tasks whose worker or node was killed."""

import os
import site
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pseudocoreset.engine.device import DeviceLike
from pseudocoreset.engine.plugins import described
from pseudocoreset.errors import UserError
from pseudocoreset.scale.executor import RETRIES, Executor, Task

ANSWER_S = 10
"""A cluster that does not answer for so long is not there."""


class RayExecutor(Executor):
    """Runs tasks on a Ray cluster.

    All nodes need the same versions of Python, Ray and pseudocoreset. Code of your own is sent with
    the tasks. Tasks use as many threads as this process and reserve as many CPUs, because the
    number of threads changes the last bits of results.

    Args:
        address: `auto` for the cluster on this machine, or the address of a cluster
    """

    def __init__(self, address: str = "auto") -> None:
        try:
            import ray
        except ImportError:
            raise UserError(
                "`ray` needs the package ray: pip install 'pseudocoreset[ray]'.", "ray"
            ) from None
        self._ray = ray
        if not ray.is_initialized():
            try:
                _refuse_silent(address)
                ray.init(address, log_to_driver=False, logging_level="ERROR")
            except Exception as error:
                raise UserError(
                    f"`ray` {address}: no cluster answers ({described(error)}). Start one "
                    "with Ray's own command, `ray start`, or give its address.",
                    "ray",
                ) from None
        self._call = ray.remote(max_retries=RETRIES)(_call)
        self._share = cache(lambda: 0.0)

    def sharing(self, share: Callable[[], float]) -> "RayExecutor":
        """The same cluster; tasks on a GPU declare at least this share of it.

        Args:
            share: gives the share, and is called once, before the first such task is begun
        """
        other = copy(self)
        other._share = cache(share)
        return other

    @property
    def slots(self) -> int:
        """How many tasks that need a whole GPU, or without GPUs this process's threads, fit."""
        return self._fitting(1.0 if self._ray.cluster_resources().get("GPU") else 0.0)

    def device(self, device: DeviceLike) -> torch.device:
        """The device of this name on the nodes."""
        has_gpu = bool(self._ray.cluster_resources().get("GPU"))
        name = ("cuda" if has_gpu else "cpu") if device == "auto" else str(device)
        if name not in ("cpu", "cuda"):
            raise UserError(
                f"`device` {name}: the cluster chooses among its GPUs, so give auto, cpu or cuda.",
                "device",
            )
        if name == "cuda" and not has_gpu:
            raise UserError("`device` cuda: the cluster has no GPU; give cpu.", "device")
        return torch.device(name)

    def put(self, value: object) -> Any:
        """Put a value into the object store, from which each node takes it once."""
        _send_own_modules()
        return self._ray.put(value)

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Run tasks on the cluster; see `Executor`."""
        _send_own_modules()
        waiting, under_way, failed = iter(tasks), dict[Any, Task](), None
        room = 1
        try:
            while True:
                while failed is None and len(under_way) < room:
                    task = next(waiting, None)
                    if task is None:
                        break
                    gpus = max(task.gpus, self._share()) if task.gpus else 0.0
                    under_way[self._begin(task, gpus)] = task
                    # One more than fits: a node takes it at once, and an autoscaler sees it.
                    room = self._fitting(gpus) + 1
                if not under_way:
                    break
                (done,), _ = self._ray.wait(list(under_way))
                task = under_way.pop(done)
                try:
                    answer = self._answer(task, done)
                except Exception as error:
                    failed = failed or error
                else:
                    yield task, answer
                    del answer, done  # what the object store keeps is freed
            if failed is not None:
                raise failed
        finally:
            for reference in under_way:
                self._ray.cancel(reference, force=True)

    def _begin(self, task: Task, gpus: float) -> Any:
        call = self._call.options(name=task.name, num_cpus=self._cpus(gpus), num_gpus=gpus)
        return call.remote(torch.get_num_threads(), task.function, *task.arguments)

    def _answer(self, task: Task, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from error
        except errors.RayError as error:
            raise UserError(
                f"{task.name} was started {RETRIES + 1} times, and its node or process died each "
                f"time ({type(error).__name__}).",
                "ray",
            ) from None

    def _cpus(self, gpus: float) -> int:
        """The CPUs of a task: its threads, if a node has this many."""
        if gpus:
            return 1
        nodes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        return max(1, min(torch.get_num_threads(), int(max(nodes, default=1))))

    def _fitting(self, gpus: float) -> int:
        """How many tasks with such a share of a GPU the cluster has room for."""
        there = self._ray.cluster_resources()
        fit = there.get("CPU", 0) / self._cpus(gpus)
        if gpus:
            fit = min(fit, there.get("GPU", 0) / gpus)
        return max(1, int(fit))


def _refuse_silent(address: str) -> None:
    """Raise where nobody listens: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address not in ("auto", "local"):
        with socket.create_connection((host, int(port)), timeout=ANSWER_S):
            pass


def _call(threads: int, function: Any, *arguments: Any) -> Any:
    """What a worker does."""
    torch.set_num_threads(threads)
    return function(*arguments)


def _send_own_modules() -> None:
    """Let functions and classes of modules that are not installed travel with what uses them."""
    from ray import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if name in known or file is None or name != module.__name__:
            continue
        ours = name.partition(".")[0] in ("__main__", "pseudocoreset")
        if not ours and not _is_installed(Path(file)):
            cloudpickle.register_pickle_by_value(module)


def _is_installed(file: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    paths = sysconfig.get_paths()
    places = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]}
    places |= {site.getusersitepackages(), *site.getsitepackages()}
    return any(os.path.realpath(file).startswith(os.path.realpath(p) + os.sep) for p in places)
