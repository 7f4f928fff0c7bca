"""Compare FBPC with random points in the quickstart for several seeds.

    python benchmarks/quickstart_seeds.py --seeds 5 --out results/quickstart.json

Runs the quickstart once a seed (experts, initial images and chains all follow from it; both
methods start from the same images) and compares accuracy and NLL on the digits' test images. Exits
with 1 if a seed is lost.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from pseudocoreset.cli.quickstart import quickstart
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.versions import versions
from pseudocoreset.report import RunReport
from script import exit_with


def compare(runs: list[RunReport], ipc: int) -> dict[str, float]:
    found = {}
    for run in runs:
        if run.config.get("ipc") == ipc and run.evaluation is not None:
            for name in ("accuracy", "nll"):
                found[f"{run.config['method']}_{name}"] = run.evaluation[name]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows, times = [], []
    for seed in range(options.seeds):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            runs = quickstart(Path(folder), seed=seed, device="cpu")
        times.append(round(time.perf_counter() - start))
        for ipc in (1, 10):
            row = {"seed": seed, "ipc": ipc, **compare(runs, ipc)}
            row["won"] = (
                row["fbpc_accuracy"] > row["random_accuracy"]
                and row["fbpc_nll"] < row["random_nll"]
            )
            rows.append(row)
            print(row, f"{times[-1]} s", flush=True)
    words = f"--seeds {options.seeds} --out {options.out.name}"
    found = {
        "command": f"python benchmarks/quickstart_seeds.py {words}",
        "device": f"cpu, {torch.get_num_threads()} threads",
        "versions": versions(),
        "seconds": times,
        "rows": rows,
    }
    write_json(options.out, found)
    return 0 if all(row["won"] for row in rows) else 1


if __name__ == "__main__":
    exit_with(main)
