"""The share of a GPU that tasks on a cluster reserve, estimated by `plan`."""

from collections.abc import Callable
from typing import Any

import torch

from pseudocoreset.engine.device import DeviceLike
from pseudocoreset.plan.record import Plan
from pseudocoreset.scale import Executor, RayExecutor, Task

SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""The shares that tasks can reserve."""


def share_of_gpu(needed: int, memory: int) -> float:
    """The smallest share of a GPU with enough memory; 1 if none is enough.

    Args:
        needed: bytes that a task needs
        memory: bytes of the GPU
    """
    return next((share for share in SHARES if needed <= share * memory), 1.0)


def sharing_as_planned(
    executor: Executor | None, device: DeviceLike, plan: Callable[..., Plan], *arguments: Any
) -> Executor | None:
    """The executor, whose tasks declare at least the share of a GPU that one is planned to need.

    The plan is measured by a task that has a GPU of the cluster to itself, when the first task is
    begun. Only Ray asks for shares; other executors stay as they are.

    Args:
        executor: what runs the tasks
        device: where they run
        plan: what one of them would take
        arguments: of the plan, the data set first
    """
    if not isinstance(executor, RayExecutor) or executor.device(device).type != "cuda":
        return executor

    def measure() -> float:
        data, *others = arguments
        task = Task("plan", needed_and_there, (plan, executor.put(data), *others), 1.0)
        ((_, (needed, memory)),) = executor.run([task])
        return share_of_gpu(needed, memory)

    return executor.sharing(measure)


def needed_and_there(plan: Callable[..., Plan], *arguments: Any) -> tuple[int, int]:
    """What a task does: the bytes that a plan says, those of CUDA itself, and those of the GPU.

    Args:
        plan: what is planned
        arguments: of the plan
    """
    try:
        peak = plan(*arguments).peak_bytes
    except torch.OutOfMemoryError:
        peak = torch.cuda.mem_get_info()[1]
    free, memory = torch.cuda.mem_get_info()
    besides = memory - free - torch.cuda.memory_reserved()
    return peak + besides, memory
