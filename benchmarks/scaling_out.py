"""Measure the overhead of executors and the gain of several workers.

    OMP_NUM_THREADS=1 python benchmarks/scaling_out.py     (into results/scaling-out.json)

Tasks that do nothing, one after another, alone and with as many bytes of data as CIFAR-10 has; then
experts of the digits by 1, 2 and 4 workers, beside experts that this process trains. Ray, where it
is installed, runs on this machine, one CPU a worker. Each is measured in turn, so that what else
the machine does hits all of them; the lowest time counts. Last, what the driver does with one
expert of CIFAR-10.
"""

import argparse
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import pseudocoreset as pc
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.versions import versions
from pseudocoreset.experts import ExpertOptions, ExpertStore
from pseudocoreset.experts.lane import Trained
from pseudocoreset.experts.train import identify
from pseudocoreset.nets import Weights, make_net
from pseudocoreset.scale import Executor, ProcessExecutor, RayExecutor, SerialExecutor, Task
from script import exit_with

OUT = Path(__file__).parent.parent / "results" / "scaling-out.json"
WORKERS = (1, 2, 4)
NET = "convnet:depth=3,width=64"
EXPERTS = ExpertOptions(num=4, epochs=20, batch=64)
DATA_BYTES = 60_000 * 3 * 32 * 32
TASKS = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--rounds", type=int, default=2, help="times that each is measured")
    options = parser.parse_args()
    ways = ["serial", *(f"processes {n}" for n in WORKERS), *(f"ray {n}" for n in WORKERS)]
    try:
        import ray  # noqa: F401
    except ImportError:
        ways = [way for way in ways if not way.startswith("ray")]
    rows: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way in ways:
            with _executor(way) as executor:
                rows[way].append(_measured(executor))
            print(way, {k: round(v, 3) for k, v in rows[way][-1].items()}, flush=True)
    content = {
        "rows": [
            {"way": way, **{k: min(each[k] for each in found) for k in found[0]}}
            for way, found in rows.items()
        ],
        "store": _stored(),
        "rounds": options.rounds,
        "net": NET,
        "experts": EXPERTS.as_dict(),
        "data_bytes": DATA_BYTES,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "device": "cpu",
        "versions": versions(),
    }
    write_json(options.out, content)


@contextmanager
def _executor(way: str) -> Iterator[Executor]:
    kind, _, number = way.partition(" ")
    if kind == "serial":
        yield SerialExecutor()
    elif kind == "processes":
        yield ProcessExecutor(int(number))
    else:
        import ray

        ray.init("local", num_cpus=int(number), include_dashboard=False, log_to_driver=False)
        try:
            yield RayExecutor()
        finally:
            ray.shutdown()


def _measured(executor: Executor) -> dict[str, float]:
    """Seconds: of the first task, of one that does nothing, of one with data, of experts.

    CPU seconds are those of this process and of its own children, of which Ray's workers are none.
    """
    data = torch.zeros(DATA_BYTES, dtype=torch.uint8)
    first = _seconds(lambda: _run(executor, 1, None))
    cpu = _cpu_seconds()
    empty = _seconds(lambda: _run(executor, TASKS, None)) / TASKS
    empty_cpu = (_cpu_seconds() - cpu) / TASKS
    began = time.perf_counter()
    put = executor.put(data)
    put_s = time.perf_counter() - began
    with_data = _seconds(lambda: _run(executor, TASKS, put)) / TASKS
    with tempfile.TemporaryDirectory() as folder:
        cpu = _cpu_seconds()
        experts = _seconds(lambda: _train(executor, Path(folder) / "experts"))
        experts_cpu = _cpu_seconds() - cpu
    return {
        "first_s": first,
        "task_s": empty,
        "put_s": put_s,
        "task_with_data_s": with_data,
        "experts_s": experts,
        "task_cpu_s": empty_cpu,
        "experts_cpu_s": experts_cpu,
    }


def _stored() -> dict[str, float]:
    """What the driver does with an expert of CIFAR-10: the bytes that come, and its seconds."""
    images = torch.randint(0, 256, (60, 3, 32, 32), dtype=torch.uint8)
    data = pc.from_arrays(images.numpy(), (torch.arange(60) % 10).numpy())
    net = make_net("convnet", **data.shape)
    options = ExpertOptions(epochs=30)
    snapshots = [Weights(torch.randn(net.num_params), torch.zeros(0)) for _ in range(31)]
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        store = ExpertStore.create(folder, identify(data, net, options, 0))
        for number in range(5):
            sent = pickle.dumps(Trained(snapshots, {}, {}), pickle.HIGHEST_PROTOCOL)
            began = time.perf_counter()
            trained = pickle.loads(sent)
            store.write(number, trained.snapshots, trained.figures, net, trained.made)
            seconds.append(time.perf_counter() - began)
        size = store.trajectory_path(0).stat().st_size
    return {"bytes": size, "seconds": min(seconds)}


def _run(executor: Executor, number: int, data: Any) -> None:
    """One task after another, whatever the number of workers."""
    for each in range(number):
        list(executor.run([Task(str(each), nothing, (data,))]))


def nothing(data: Any) -> int:
    return 0 if data is None else int(data[0])


def _train(executor: Executor, out: Path) -> None:
    pc.train_experts(
        pc.load_data("digits"), NET, out, EXPERTS, device="cpu", executor=executor, progress=False
    )


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


if __name__ == "__main__":
    exit_with(main)
