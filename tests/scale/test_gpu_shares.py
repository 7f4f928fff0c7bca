"""The share of a GPU that a task declares follows from the memory that is planned for it."""

import pytest
import tasks
import torch

from pseudocoreset.plan import share
from pseudocoreset.plan.record import Plan
from pseudocoreset.plan.share import share_of_gpu, sharing_as_planned
from pseudocoreset.scale import ProcessExecutor, RayExecutor, Task

GIB = 2**30


def test_share_is_the_smallest_whose_memory_is_enough():
    needed = [0, 10, 11, 20, 21, 40, 41, 80, 81]
    shares = [1 / 8] * 2 + [1 / 4] * 2 + [1 / 2] * 2 + [1] * 3
    assert [share_of_gpu(n * GIB, 80 * GIB) for n in needed] == shares


def plan_of(peak):
    """A plan that says so many bytes."""
    return Plan("", {}, 0, peak, 0.0, "steps", 1, 0.0, 1, "cuda", [])


def test_planned_memory_and_what_cuda_takes_itself_are_needed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (70 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 9 * GIB)
    assert share.needed_and_there(plan_of, 15 * GIB) == (16 * GIB, 80 * GIB)

    def too_much():
        raise torch.OutOfMemoryError

    needed, memory = share.needed_and_there(too_much)
    assert share_of_gpu(needed, memory) == 1


class OnOneGPU(RayExecutor):
    """Stands for a cluster: runs tasks here, and keeps what they would declare."""

    def __init__(self):
        self.declared = []
        self._share = lambda: 0.0

    def device(self, device):
        return torch.device("cuda" if device == "auto" else device)

    def put(self, value):
        return value

    def _begin(self, task, gpus):
        self.declared.append((task.name, gpus))
        return task.function(*task.arguments)

    def _fitting(self, gpus):  # noqa: ARG002
        return 0

    def _answer(self, task, reference):  # noqa: ARG002
        return reference

    class _ray:  # noqa: N801
        wait = staticmethod(lambda answers: (answers, []))


@pytest.mark.parametrize(("gib", "expected"), [(1, 0.5), (50, 0.5), (100, 1.0)])
def test_first_task_on_a_gpu_has_its_memory_planned_once(monkeypatch, gib, expected):
    pytest.importorskip("ray", reason="the executor of a cluster sends code by it")
    monkeypatch.setattr(
        share, "needed_and_there", lambda plan, peak: (plan(peak).peak_bytes, 140 * GIB)
    )
    cluster = OnOneGPU()
    executor = sharing_as_planned(cluster, "auto", plan_of, gib * GIB)
    assert cluster.declared == []
    list(executor.run([Task("on a CPU", tasks.double, (1,))]))
    todo = [Task(f"expert {n}", tasks.double, (n,), 0.5) for n in range(2)]
    assert [value for _, value in executor.run(todo)] == [0, 2]
    assert cluster.declared == [
        ("on a CPU", 0.0),
        ("plan", 1.0),
        ("expert 0", expected),
        ("expert 1", expected),
    ]


def test_only_tasks_of_a_cluster_on_gpus_are_planned():
    for executor, device in ((None, "auto"), (ProcessExecutor(2), "auto"), (OnOneGPU(), "cpu")):
        assert sharing_as_planned(executor, device, plan_of, 1) is executor
