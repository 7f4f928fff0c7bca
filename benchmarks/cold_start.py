"""How long a command takes to get going, with nothing compiled and with the compiler's cache.

    python benchmarks/cold_start.py --data cifar10:DIR      (into results/cold-start.json)

Each row is a process of its own, begun with empty caches or with those that the row before it left:
seconds from its start until PyTorch is imported, the data are read, the first epoch or update is
done, and all is done; and the seconds that each further epoch or update takes. `plain` rows are the
same without `torch.compile`, captured and with our kernels all the same: what it buys, and what it
costs. On a GPU alone.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
CORESET = RESULTS / "coresets" / "cifar10-fbpc-ipc10.safetensors"
COMMANDS = ("experts", "distill", "evaluate")
WAYS = ("compiled", "plain")
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
EXPERTS = {"num": 2, "epochs": 6}
UPDATES = 20


class Clock:
    """Whoever listens to progress: when each step was done."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self.marks: dict[str, float] = {}
        self.steps: list[float] = []

    def mark(self, name: str) -> None:
        """Something is done."""
        self.marks[name] = time.time() - self._begun

    @contextmanager
    def task(self, what: str, total: int, done: int = 0) -> Iterator["Clock"]:
        """Begin a piece of work."""
        del what, total, done
        yield self

    def advance(self, **figures: float) -> None:
        """One more step is done."""
        del figures
        self.steps.append(time.time() - self._begun)


def run_one(command: str, way: str, data_spec: str, work: Path, begun: float) -> dict[str, Any]:
    """One command in this process."""
    clock = Clock(begun)
    if way == "plain":
        from pseudocoreset.engine import loop

        loop.compiled = lambda function, _: function  # before anything imports it
    import torch

    import pseudocoreset as pc

    torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
    clock.mark("imported")
    data = pc.load_data(data_spec)
    clock.mark("data")
    if command == "experts":
        pc.train_experts(data, "convnet", work / f"experts-{way}", progress=clock, **EXPERTS)
    elif command == "distill":
        store = pc.ExpertStore.open(work / "experts-compiled")
        method = pc.FBPC(from_epoch=3, to_epoch=6)
        pc.distill(data, [store], method, ipc=10, steps=UPDATES, recipe="tuned", progress=clock)
    else:
        found = pc.evaluate(pc.Pseudocoreset.load(CORESET), data, progress=clock)
        clock.marks["accuracy"] = found.accuracy
    clock.mark("end")
    gaps = [b - a for a, b in zip(clock.steps, clock.steps[1:], strict=False)]
    return {**clock.marks, "first": clock.steps[0], "then": median(gaps)}


def main() -> int:
    options = parse()
    if options.one is not None:
        one = json.loads(options.one)
        print(json.dumps(run_one(**{**one, "work": Path(one["work"])})))
        return 0
    from pseudocoreset.engine.device import choose_device, device_name
    from pseudocoreset.engine.files import refuse_unwritable_file, write_json
    from pseudocoreset.engine.versions import versions
    from script import run_script  # which imports PyTorch, and so not in a row's own process

    refuse_unwritable_file(options.out)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for way in options.ways:
            for command in COMMANDS:
                for caches in ("empty", "full"):
                    place = Path(folder, way, command)
                    environment = {**os.environ, **{name: str(place / name) for name in CACHES}}
                    one = {"command": command, "way": way, "data_spec": options.data}
                    one |= {"work": folder, "begun": time.time()}
                    found = run_script(__file__, "--one", json.dumps(one), environment=environment)
                    if command == "experts" and caches == "empty":
                        Path(folder, f"experts-{way}").rename(Path(folder, f"kept-{way}"))
                    rows.append({"command": command, "way": way, "caches": caches, **found})
                    print(rows[-1], flush=True)
    device = device_name(choose_device("auto"))
    write_json(options.out, {"device": device, "versions": versions(), "rows": rows})
    return any("failed" in row for row in rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="digits", help="a data spec")
    parser.add_argument("--out", type=Path, default=RESULTS / "cold-start.json")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a row as JSON: run it here
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
