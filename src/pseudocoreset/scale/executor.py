"""Executors run independent tasks: in this process, in several processes, or on a Ray cluster."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.errors import UserError

RETRIES = 3
"""How many times a task is repeated if its process or node was killed."""


@dataclass(frozen=True)
class Task:
    """A function and its arguments, to be called by an executor.

    Results of `Executor.put` among the arguments are replaced by their values.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    gpus: float = 0.0
    """The smallest share of a GPU that it needs."""


@runtime_checkable
class Executor(Protocol):
    """Runs tasks. Tasks return results; only the caller writes files."""

    @property
    def slots(self) -> int:
        """The number of tasks that can run at the same time."""

    def device(self, device: DeviceLike) -> torch.device:
        """The device with this name for the tasks.

        Args:
            device: `auto`, `cpu`, `cuda`, or where it can be chosen, `cuda:1`
        """

    def put(self, value: object) -> Any:
        """Share a value among many tasks. Use the result as an argument of tasks.

        Args:
            value: such as the data set
        """

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Run tasks, at most `slots` at a time, and yield each with its result.

        The iterable of tasks is read as slots become free. If a process or node is killed, its task
        is run again. If a task raises an error, running tasks are finished and yielded, and then
        the error is raised.

        Args:
            tasks: what to run, in any order
        """


class SerialExecutor(Executor):
    """Runs tasks in this process, one after another."""

    slots = 1

    def device(self, device: DeviceLike) -> torch.device:
        """The device of this name."""
        return choose_device(device)

    def put(self, value: object) -> Any:
        """The value itself."""
        return value

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Run tasks one after another."""
        for task in tasks:
            yield task, task.function(*task.arguments)


def executor_of(workers: int | None, ray: str | None) -> Executor | None:
    """The executor for the given options; None for this process.

    Args:
        workers: the number of processes
        ray: `auto`, or the address of a cluster
    """
    if workers is not None and ray is not None:
        raise UserError("`workers` and `ray` can't be combined: give one of them.", "ray")
    if workers is not None:
        from pseudocoreset.scale.processes import ProcessExecutor

        return ProcessExecutor(workers)
    if ray is not None:
        from pseudocoreset.scale.on_ray import RayExecutor

        return RayExecutor(ray)
    return None
