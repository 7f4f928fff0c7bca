"""Measure how long commands take to start, with empty and with full caches.

    python benchmarks/cold_start.py --data cifar10:DIR --coreset CORESET --before OLD/src --job

Each row is a process of its own, begun with empty caches or with those that the row before it left:
seconds from its start until PyTorch is imported, the data are read, the first epoch or update is
done, and all is done; and the seconds that each further epoch or update takes. `--before` is the
`src` of an earlier edition, which is measured first, with empty caches, in the same run. On a GPU
alone. `--commands` measures some of the commands again and keeps the stored rows of the others.

The last row is a whole job by three commands, beginning with empty caches: CIFAR-10 as 100 stored
images, and its accuracy by four chains pooled.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
COMMANDS = ("experts", "distill", "evaluate")
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
EXPERTS = {"num": 2, "epochs": 6}
UPDATES = 20
JOB = (
    "experts --data {data} --num 6 --epochs 20 --out {work}/experts",
    "distill --data {data} --experts {work}/experts --method fbpc-isotropic --ipc 10 "
    "--from-epoch 10 --steps 400 --out {work}/run",
    "evaluate {work}/run --data {data} --seeds 4 --json {work}/scores.json",
)


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


def run_one(command: str, data_spec: str, coreset: str, work: str, begun: float) -> dict[str, Any]:
    """One command in this process."""
    clock = Clock(begun)
    import torch

    import pseudocoreset as pc

    torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
    clock.mark("imported")
    data = pc.load_data(data_spec)
    clock.mark("data")
    if command == "experts":
        pc.train_experts(data, "convnet", work, progress=clock, **EXPERTS)
    elif command == "distill":
        method = pc.FBPC(from_epoch=3, to_epoch=6)
        store = pc.ExpertStore.open(work)
        pc.distill(data, [store], method, ipc=10, steps=UPDATES, recipe="tuned", progress=clock)
    else:
        clock.marks["accuracy"] = pc.evaluate(
            pc.Pseudocoreset.load(coreset), data, progress=clock
        ).accuracy
    clock.mark("end")
    gaps = [b - a for a, b in zip(clock.steps, clock.steps[1:], strict=False)]
    return {**clock.marks, "first": clock.steps[0], "then": median(gaps)}


def rows_of(sources: Path, options: argparse.Namespace, all_caches: bool) -> Iterator[dict]:
    """The rows of one edition of the package."""
    with tempfile.TemporaryDirectory() as folder:
        for command in options.commands:
            for caches in ("empty", "full") if all_caches else ("empty",):
                store = "experts-full" if (command, caches) == ("experts", "full") else "experts"
                one = {"command": command, "data_spec": options.data, "begun": time.time()}
                one |= {"coreset": str(options.coreset), "work": f"{folder}/{store}"}
                done = subprocess.run(
                    [sys.executable, __file__, "--one", json.dumps(one)],
                    env=environment(sources, Path(folder, command)),
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                yield {"command": command, "caches": caches, **json.loads(done.stdout)}


def environment(sources: Path, caches: Path) -> dict[str, str]:
    """An edition to import from, and folders for what is compiled."""
    paths = [str(sources), *filter(None, [os.environ.get("PYTHONPATH")])]
    places = {name: str(caches / name) for name in CACHES}
    return {**os.environ, **places, "PYTHONPATH": os.pathsep.join(paths)}


def whole_job(data: str) -> dict[str, Any]:
    """Three commands, one after another, that begin with empty caches."""
    took, lines = [], []
    with tempfile.TemporaryDirectory() as folder:
        for line in JOB:
            begun = time.time()
            words = line.format(data=data, work=folder).split()
            command = [sys.executable, "-m", "pseudocoreset", *words]
            subprocess.run(command, env=environment(ROOT / "src", Path(folder, "c")), check=True)
            took.append(time.time() - begun)
            lines.append(f"pseudocoreset {line.format(data='cifar10:DIR', work='WORK')}")
        scores = json.loads(Path(folder, "scores.json").read_text())
    pooled = {name: scores["pooled"][name] for name in ("accuracy", "nll", "ece")}
    return {"commands": lines, "took_s": took, "pooled": pooled}


def main() -> int:
    options = parse()
    if options.one is not None:
        print(json.dumps(run_one(**json.loads(options.one))))
        return 0
    editions = {"before": options.before, "after": ROOT / "src"}
    from pseudocoreset.engine.device import choose_device, device_name
    from pseudocoreset.engine.files import write_json
    from pseudocoreset.engine.versions import versions

    stored = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    rows: list[dict[str, Any]] = []
    for edition, sources in editions.items():
        if sources is not None:
            for row in rows_of(sources, options, edition == "after"):
                code = {"code": versions()["code"]} if edition == "after" else {}
                rows.append({"edition": edition, **row, **code})
                print(rows[-1], flush=True)
    measured = {(row["edition"], row["command"]) for row in rows}
    kept = [r for r in stored["rows"] if (r["edition"], r["command"]) not in measured]
    rows = [*kept, *rows]
    job = whole_job(options.data) if options.job else stored.get("job")
    print(job, flush=True)
    device = device_name(choose_device("auto"))
    write_json(options.out, {"device": device, "versions": versions(), "rows": rows, "job": job})
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="digits", help="a data spec")
    parser.add_argument("--coreset", type=Path, help="a coreset of 10 images a class of it")
    parser.add_argument("--before", type=Path, help="`src` of an earlier edition")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=COMMANDS)
    parser.add_argument("--out", type=Path, default=RESULTS / "cold-start.json")
    parser.add_argument("--job", action="store_true", help="time a whole job, too")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a row as JSON: run it here
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
