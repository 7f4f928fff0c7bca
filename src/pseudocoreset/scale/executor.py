"""What runs independent tasks: here one after another; in processes; on a Ray cluster."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.errors import UserError

RETRIES = 3
"""How often a task is run again whose process or node was killed."""


@dataclass(frozen=True)
class Task:
    """A function of a module and its arguments, to be called anywhere.

    What `Executor.put` gave may stand among the arguments; the function is called with what was
    put.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    gpus: float = 0.0
    """The share of a GPU that it needs at least."""


@runtime_checkable
class Executor(Protocol):
    """Runs tasks. Only who calls it writes files; a task gives what it found."""

    @property
    def slots(self) -> int:
        """How many tasks may be under way at once."""

    def device(self, device: DeviceLike) -> torch.device:
        """The device of this name where the tasks run.

        Args:
            device: `auto`, `cpu`, `cuda`, or where it can be chosen, `cuda:1`
        """

    def put(self, value: object) -> Any:
        """Give what many tasks need, once; the answer stands for it among their arguments.

        Args:
            value: such as the data set
        """

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Run tasks, at most `slots` at once, and give each with its result when it is done.

        Tasks are asked for when there is room for them. One whose process or node was killed is
        run again. If one raises, no more are begun, those under way are given, and then its error
        is raised.

        Args:
            tasks: what to run, in any order
        """


class SerialExecutor(Executor):
    """Runs tasks here, one after another."""

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
    """What runs tasks, as a person asked for it; None if they did not.

    Args:
        workers: so many processes
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
