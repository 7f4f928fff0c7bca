"""Does `pseudocoreset plan` say beforehand what then happens?

    python benchmarks/plan_check.py --out results/plan.json
    python benchmarks/plan_check.py --data cifar10:DIR --device cuda --out results/plan-gpu.json

Plans experts, a coreset and its scores, each before what it needs is there, then runs the same
commands and compares the whole time of each, from its start to its end. Exits with 1 if one is off
by more than a factor of 1.5.

On the embedded digits it is done in minutes on a CPU. On other data it is the whole job of 10
images a class, for a GPU: 20 experts of 30 epochs, the recipe's updates, five posteriors. What it
makes is kept in --work, if given.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pseudocoreset.engine.files import write_json
from pseudocoreset.errors import UserError
from script import exit_with
from speed_row import without_place

DIGITS = {
    "net": ["--net", "convnet:width=32"],
    "experts": ["--num", "4", "--epochs", "20", "--lr", "0.1", "--batch", "64"],
    "chains": ["--epochs", "200", "--every", "20", "--seeds", "3"],
}
OTHERS = {
    "net": ["--net", "convnet"],
    "experts": ["--num", "20", "--epochs", "30"],
    "chains": ["--seeds", "5"],
}
GOAL = 1.5


def main() -> int:
    options = parse()
    if options.work is not None:
        options.work.mkdir(parents=True)
        return check(options, options.work)
    with tempfile.TemporaryDirectory() as folder:
        return check(options, Path(folder))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", default="digits", help="a data spec")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--work", type=Path, help="a new folder, where experts and run are kept")
    options = parser.parse_args()
    if options.work is not None and options.work.exists():
        parser.error(f"--work {options.work} is there, and what it holds would not be made again")
    return options


def check(options: argparse.Namespace, folder: Path) -> int:
    chosen = DIGITS if options.data == "digits" else OTHERS
    net, experts, chains = chosen["net"], chosen["experts"], chosen["chains"]
    store, made = folder / "experts", folder / "run"
    settings = {  # what plan is given, and what the command is given
        "experts": ([*net, *experts], [*net, *experts, "--out", store]),
        "distill": ([*net, "--ipc", 10], ["--experts", store, "--ipc", 10, "--out", made]),
        "evaluate": ([*net, "--ipc", 10, *chains], [made / "coreset.safetensors", *chains]),
    }
    same = ["--data", options.data, "--device", options.device, "--quiet"]
    rows = []
    for command, (planned, given) in settings.items():
        file = folder / "plan.json"
        run("plan", command, *planned, "--json", file, *same)
        plan = json.loads(file.read_text(encoding="utf-8"))
        took = run(command, *given, *same)
        row = {"command": command, "planned_s": plan["seconds"], "took_s": took}
        row["ratio"] = row["planned_s"] / row["took_s"]
        row["plan"] = plan
        rows.append(row)
        print(
            f"{command:10} planned {row['planned_s']:6.1f} s, took {row['took_s']:6.1f} s: "
            f"{row['ratio']:.2f}",
            flush=True,
        )
        data = without_place(options.data)
        where = f"--data {data} --device {options.device} --out {options.out.name}"
        write_json(
            options.out, {"command": f"python benchmarks/plan_check.py {where}", "rows": rows}
        )
    print(f"in all: {sum(row['took_s'] for row in rows):.0f} s")
    return 0 if all(1 / GOAL < row["ratio"] < GOAL for row in rows) else 1


def run(*arguments: object) -> float:
    """The seconds that a command of pseudocoreset takes."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "pseudocoreset", *map(str, arguments)]
    if subprocess.run(command, check=False).returncode != 0:
        raise UserError(f"`{arguments[0]}` failed, as it says above")
    return time.perf_counter() - begun


if __name__ == "__main__":
    exit_with(main)
