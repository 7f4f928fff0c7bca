"""A real cluster of two nodes; a worker and a node are killed, and no bit changes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import own_code
import pytest
import tasks
import torch

import pseudocoreset as pc
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.plan.share import sharing_as_planned
from pseudocoreset.scale import RayExecutor, Task

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # Ray's own
]
NET = "convnet:depth=2,width=8"
FEW = ExpertOptions(num=4, epochs=60, lr=0.1, batch=20)
"""Each takes a while, so that there is time to kill it."""
SHORT = pc.SGHMC(epochs=4, every=2)
EXPERTS = ["experts", "--data", "digits", "--net", NET, "--num", "2", "--epochs", "1"]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def executor(cluster):
    return RayExecutor(cluster.address)


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    """Experts that were trained here."""
    out = tmp_path_factory.mktemp("alone")
    return train_experts(data, NET, out, FEW, device="cpu", progress=False)


def contents(store):
    return {path.name: path.read_bytes() for path in sorted(store.path.iterdir())}


class KillsOnce:
    """Progress that kills when the first step is done."""

    def __init__(self, kill):
        self.kill = kill
        self.killed = None

    @contextmanager
    def task(self, *_):
        yield self

    def advance(self, **_):
        if self.killed is None:
            self.killed = self.kill()


def raylets(cluster):
    """The process that is a node, for each node."""
    return [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]


def workers_at(words, raylet):
    """The workers of a node that are at a task whose name begins so."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            title = (place / "cmdline").read_bytes().decode()
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        if title.startswith(f"ray::{words}") and parent == raylet:
            found.append(int(place.name))
    return found


def kill(process):
    os.kill(process, signal.SIGKILL)
    return process


def until(find):
    """What is found at last."""
    end = time.monotonic() + 30
    while not (found := find()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def test_every_task_gives_its_result(executor):
    put = executor.put(torch.arange(5.0))
    todo = [Task(str(n), tasks.sum_of, (put, n)) for n in range(5)]
    found = {task.name: float(value) for task, value in executor.run(todo)}
    assert found == {str(n): 10.0 + n for n in range(5)}


def test_tasks_take_the_threads_of_the_driver(executor):
    ((_, found),) = executor.run([Task("threads", tasks.threads, ())])
    assert found == torch.get_num_threads()


def test_error_of_a_task_is_raised_when_the_others_are_given(executor):
    todo = [Task("bad", tasks.refuse, ("x",)), Task("good", tasks.double, (1,))]
    found = []
    with pytest.raises(UserError, match="`word` is x") as error:
        found.extend(value for _, value in executor.run(todo))
    assert error.value.parameter == "word"


def test_killed_worker_costs_its_own_task_alone(executor, tmp_path):
    others = [Task(str(n), tasks.note, (tmp_path / "others", n, 0.1)) for n in range(3)]
    killed = Task("killed", tasks.killed_once, (tmp_path / "mark", 7))
    found = {task.name: value for task, value in executor.run([others[0], killed, *others[1:]])}
    assert found == {"0": 0, "killed": 7, "1": 1, "2": 2}
    assert len((tmp_path / "mark").read_text().split()) == 2
    assert len((tmp_path / "others").read_text().splitlines()) == 3


def test_task_that_is_killed_each_time_is_given_up(executor):
    with pytest.raises(UserError, match="killed was started 4 times"):
        list(executor.run([Task("killed", tasks.killed_always, ())]))


def test_experts_are_the_same_file_for_file_though_a_worker_is_killed(
    executor, cluster, data, alone, tmp_path
):
    def kill_one():
        nodes = raylets(cluster)
        return kill(until(lambda: [w for n in nodes for w in workers_at("expert", n)])[0])

    progress = KillsOnce(kill_one)
    store = train_experts(
        data, NET, tmp_path, FEW, device="cpu", executor=executor, progress=progress
    )
    assert progress.killed
    assert contents(store) == contents(alone)


def test_experts_are_the_same_file_for_file_though_a_node_is_killed(
    executor, cluster, data, alone, tmp_path
):
    node = cluster.add_node(num_cpus=1)
    raylet = node.all_processes["raylet"][0].process.pid

    def kill_busy_node():
        assert until(lambda: workers_at("expert", raylet))
        return kill(raylet)

    progress = KillsOnce(kill_busy_node)
    store = train_experts(
        data, NET, tmp_path, FEW, device="cpu", executor=executor, progress=progress
    )
    assert progress.killed
    assert contents(store) == contents(alone)
    cluster.remove_node(node, allow_graceful=False)


def test_scores_are_the_same_bit_for_bit(executor, data):
    coreset = pc.distill(data, method="random", ipc=2, net=NET, progress=False)
    given = {"seeds": 3, "device": "cpu", "progress": False}
    here = pc.evaluate(coreset, data, SHORT, **given)
    there = pc.evaluate(coreset, data, SHORT, executor=executor, **given)
    assert there.as_json() == here.as_json()


def test_samples_are_the_same_bit_for_bit_with_code_of_ones_own(executor, data):
    coreset = pc.distill(data, method="random", ipc=2, net=own_code.WithDropout, progress=False)
    sampler = own_code.MySGLD(epochs=4, every=2)
    given = {"net": own_code.WithDropout, "chains": 3, "device": "cpu", "progress": False}
    here = pc.sample(coreset, sampler, **given)
    there = pc.sample(coreset, sampler, executor=executor, **given)
    assert torch.equal(there.params, here.params)
    assert there.details == here.details


def test_own_code_travels_where_workers_cannot_import_it(executor, tmp_path, monkeypatch):
    """A module, and another that it uses; both files are gone when the task runs."""
    (tmp_path / "helper_of_mine.py").write_text("def more(value):\n    return value + 1\n")
    text = "import helper_of_mine\n\ndef mine(value):\n    return helper_of_mine.more(value)\n"
    (tmp_path / "mine_alone.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import mine_alone

    for path in tmp_path.glob("*.py"):
        path.unlink()
    ((_, found),) = executor.run([Task("mine", mine_alone.mine, (1,))])
    assert found == 2


def test_devices_are_those_of_the_cluster(executor):
    assert executor.device("auto") == torch.device("cpu")
    with pytest.raises(UserError, match="no GPU"):
        executor.device("cuda")
    with pytest.raises(UserError, match="chooses among its GPUs"):
        executor.device("cuda:1")


def test_gpus_are_shared_out_by_fractions(executor, cluster, data):
    """A node that says it has a GPU: two tasks of half a GPU fit."""
    node = cluster.add_node(num_cpus=4, num_gpus=1)
    try:
        until(lambda: ray.cluster_resources().get("GPU"))
        assert executor.device("auto") == torch.device("cuda")
        assert executor._fitting(0.5) == 2
        todo = [Task("see", tasks.visible_gpus, (), 0.5) for _ in range(2)]
        assert [value for _, value in executor.run(todo)] == ["0", "0"]
        todo = [Task("a", tasks.assigned_gpus, (), 0.25), Task("b", tasks.assigned_gpus, (), 1.0)]
        sharing = executor.sharing(lambda: 0.5)
        assert {task.name: gpus for task, gpus in sharing.run(todo)} == {"a": 0.5, "b": 1.0}
        planned = sharing_as_planned(executor, "auto", tasks.plan_on_a_cpu, data, NET, FEW)
        todo = [Task("see", tasks.assigned_gpus, (), 0.125)]
        assert [gpus for _, gpus in planned.run(todo)] == [0.25]
    finally:
        cluster.remove_node(node)
        until(lambda: not ray.cluster_resources().get("GPU"))


def test_command_uses_the_cluster(cluster, tmp_path):
    """Another driver of the same cluster."""
    for name, where in {"here": [], "there": ["--ray", cluster.address]}.items():
        out = ["--out", str(tmp_path / name)]
        command = [sys.executable, "-m", "pseudocoreset", *EXPERTS, *out, *where]
        subprocess.run(command, check=True, timeout=120)
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("here", "there")
    )
    assert there == here


def test_cluster_that_does_not_answer_is_told_of():
    """The name `auto` is looked up in a folder of Ray's own, where there may be another."""
    for address in ("127.0.0.1:1", "no address"):
        done = subprocess.run(
            [sys.executable, "-m", "pseudocoreset", *EXPERTS, "--out", "x", "--ray", address],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert "no cluster answers" in done.stderr
