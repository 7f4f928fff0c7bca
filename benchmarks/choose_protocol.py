"""Choose the evaluation protocol on held-out training images.

    python benchmarks/choose_protocol.py --data cifar10:DIR --holdout 5000 RUN... \
        --temperature 1e-5 1e-6 --prior 0.2 0.3 0.5 --out protocol.json

Each RUN is a folder of `pseudocoreset distill --holdout 5000`. Each coreset's posterior is sampled
by the protocol `tuned` with every combination of the values given, and scored on the held-out
images, never on the test set. The file holds all scores; `chosen` is what has the best mean over
the coresets and both definitions of the NLL.
"""

import argparse
import sys
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import load_data
from pseudocoreset.engine.files import write_json
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.posterior import SGHMC, named_sampler
from script import exit_with
from speed_row import without_place

GRID = ("temperature", "prior", "step", "friction")
SCORES = ("accuracy", "accuracy_std", "nll", "nll_std", "nll_kim", "ece", "brier")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--holdout", type=int, required=True)
    for name in GRID:
        parser.add_argument(f"--{name}", nargs="+", type=float, default=[None])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    # What was run, without the places of this machine.
    words = map(without_place, sys.argv[1:])
    command = [Path(word).name if "/" in word else word for word in words]
    data = load_data(options.data).hold_out(options.holdout)
    grid = [
        {name: value for name, value in zip(GRID, values, strict=True) if value is not None}
        for values in product(*(getattr(options, name) for name in GRID))
    ]
    rows: list[dict[str, Any]] = []
    for changes, run in product(grid, options.runs):
        coreset = Pseudocoreset.load(run / "coreset.safetensors")
        sampler = named_sampler("tuned", SGHMC(**changes))
        found = evaluate(coreset, data, sampler, seeds=options.seeds, split="holdout")
        content = found.as_json()
        row = {"run": run.name, "method": coreset.provenance.method, "ipc": coreset.ipc}
        row["fingerprint"] = coreset.fingerprint
        row |= {"changes": changes, **{name: content[name] for name in SCORES}}
        rows.append(row)
        print(
            f"{run.name} {changes}: {row['accuracy']:.4f} NLL {row['nll']:.4f} "
            f"(Kim {row['nll_kim']:.4f})",
            flush=True,
        )
        varied = (*GRID, "weight_decay")
        same = {name: v for name, v in content["protocol"].items() if name not in varied}
        write_json(
            options.out,
            {
                "command": f"python benchmarks/choose_protocol.py {' '.join(command)}",
                "chosen": min(grid, key=lambda changes: _mean_nll(rows, changes)),
                "protocol": same | {"seeds": options.seeds},
                "rows": rows,
            },
        )


def _mean_nll(rows: list[dict[str, Any]], changes: dict[str, float]) -> float:
    found = [row[n] for row in rows if row["changes"] == changes for n in ("nll", "nll_kim")]
    return fmean(found) if found else float("inf")


if __name__ == "__main__":
    exit_with(main)
