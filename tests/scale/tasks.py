"""Functions that other processes call."""

import os
import signal
import time
from pathlib import Path

import torch

from pseudocoreset.errors import UserError


def double(value):
    return 2 * value


def sum_of(tensor, number):
    return tensor.sum() + number


def threads():
    return torch.get_num_threads()


def refuse(word):
    raise UserError(f"`word` is {word}.", "word")


def fail():
    raise ZeroDivisionError("of a task")


class UnsendableError(Exception):
    """An error that pickle refuses."""

    def __init__(self):
        super().__init__("mine")
        self.cause = lambda: None


def fail_unsendably():
    raise UnsendableError


def killed_once(mark: Path, value):
    """Kill this process the first time, and leave a line for each time."""
    first = not mark.exists()
    with mark.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def killed_always():
    os.kill(os.getpid(), signal.SIGKILL)


def leave(code):
    os._exit(code)


def note(path: Path, value, seconds=0.0):
    """Leave a line, and after a while the value."""
    with path.open("a") as file:
        file.write(f"{value} {os.getpid()}\n")
    time.sleep(seconds)
    return value


def visible_gpus():
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def assigned_gpus():
    import ray

    return ray.get_runtime_context().get_assigned_resources().get("GPU")


def plan_on_a_cpu(data, net, settings):
    """What experts take on a CPU; a GPU is said to have four times as much."""
    from pseudocoreset.plan.estimate import plan_experts

    plan = plan_experts(data, net, settings, device="cpu")
    torch.cuda.mem_get_info = lambda: (4 * plan.peak_bytes, 4 * plan.peak_bytes)
    torch.cuda.memory_reserved = lambda: 0
    return plan
