"""Compare the estimates of `pseudocoreset plan` with measurements.

    python benchmarks/plan_check.py --out results/plan.json
    python benchmarks/plan_check.py --data cifar10:DIR --device cuda --out results/plan-gpu.json

Plans experts, a coreset and its scores, each before what it needs is there, then runs the same
commands and compares the whole time of each, from its start to its end, the peak of its memory, and
the disk that the experts take. Exits with 1 if one is off by more than a factor of 1.5.

On the embedded digits three settings are done in minutes on a CPU. On other data it is the whole
job of 10 images a class, for a GPU: 20 experts of 30 epochs, the recipe's updates, five posteriors;
with --short, a minute of it. What it makes is kept in --work, if given.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pseudocoreset.cli.plan import COMPILED
from pseudocoreset.engine.files import write_json
from pseudocoreset.errors import UserError
from script import exit_with
from speed_row import without_place


class Setting(NamedTuple):
    """The options of the three commands."""

    net: str
    experts: str
    coreset: str
    chains: str


SHORT_CHAINS = "--epochs 200 --every 20 --seeds 3"
DIGITS = {
    "FBPC, 10 a class": Setting(
        "convnet:width=32",
        "--num 4 --epochs 20 --lr 0.1 --batch 64",
        "--ipc 10",
        SHORT_CHAINS,
    ),
    "BPC-fKL, 1 a class": Setting(
        "convnet:width=16,norm=group",
        "--num 3 --epochs 25 --lr 0.1 --batch 32",
        "--method bpc-fkl --ipc 1 --steps 40",
        SHORT_CHAINS,
    ),
    "FBPC-isotropic, 20 a class": Setting(
        "convnet:depth=1,width=64",
        "--num 2 --epochs 30 --lr 0.1 --batch 128",
        "--method fbpc-isotropic --ipc 20 --steps 60",
        "--sampler map --epochs 50 --every 10 --seeds 2",
    ),
}
WHOLE_JOB = {
    "FBPC, 10 a class": Setting("convnet", "--num 20 --epochs 30", "--ipc 10", "--seeds 5")
}
SHORT = {
    "FBPC, 10 a class, short": Setting(
        "convnet", "--num 4 --epochs 5", "--ipc 10 --steps 100", "--seeds 2"
    )
}
GOAL = 1.5
RATIOS = ("ratio", "memory_ratio", "disk_ratio")

Row = dict[str, Any]


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
    parser.add_argument("--short", action="store_true", help="a minute of the whole job")
    parser.add_argument("--work", type=Path, help="a new folder, where experts and run are kept")
    options = parser.parse_args()
    if options.short and options.data == "digits":
        parser.error("--short is for other data: digits are done in minutes")
    if options.work is not None and options.work.exists():
        parser.error(f"--work {options.work} is there, and what it holds would not be made again")
    return options


def check(options: argparse.Namespace, folder: Path) -> int:
    rows = []
    for number, (name, setting) in enumerate(settings_for(options).items()):
        for row in compared(setting, options, folder / str(number)):
            rows.append({"setting": name, **row})
            ratios = ", ".join(f"{n} {row[n]:.2f}" for n in RATIOS if row[n] is not None)
            print(f"{name}: {row['command']} took {row['took_s']:.1f} s; {ratios}", flush=True)
            where = f"--data {without_place(options.data)} --device {options.device}"
            where += f"{' --short' if options.short else ''} --out {options.out.name}"
            command = f"python benchmarks/plan_check.py {where}"
            write_json(options.out, {"command": command, "rows": rows})
    print(f"in all: {sum(row['took_s'] for row in rows):.0f} s")
    found = [row[what] for row in rows for what in RATIOS if row[what] is not None]
    return 0 if all(1 / GOAL < ratio < GOAL for ratio in found) else 1


def settings_for(options: argparse.Namespace) -> dict[str, Setting]:
    if options.data == "digits":
        return DIGITS
    return SHORT if options.short else WHOLE_JOB


def compared(setting: Setting, options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Each command in its turn: what `plan` said, and what was."""
    store, made, chains = folder / "experts", folder / "run", setting.chains.split()
    experts, coreset = setting.experts.split(), setting.coreset.split()
    net = ["--net", setting.net]
    size = coreset[coreset.index("--ipc") :][:2]
    commands: dict[str, tuple[list[object], list[object]]] = {  # for plan, and for itself
        "experts": ([*net, *experts], [*net, *experts, "--out", store]),
        "distill": ([*net, *coreset], ["--experts", store, *coreset, "--out", made]),
        "evaluate": ([*net, *size, *chains], [made / "coreset.safetensors", *chains]),
    }
    same = ["--data", options.data, "--device", options.device, "--quiet"]
    for command, (of_plan, of_itself) in commands.items():
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "plan.json"
        for _ in range(2):  # once more where it had to compile: the command will not
            run(options.device, "plan", command, *of_plan, "--json", file, *same)
            plan = json.loads(file.read_text(encoding="utf-8"))
            if COMPILED not in plan["notes"]:
                break
        took_s, peak = run(options.device, command, *of_itself, *same)
        disk = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
        yield {
            "command": command,
            "planned_s": plan["seconds"],
            "took_s": took_s,
            "peak_bytes": peak,
            "disk_bytes": disk if command == "experts" else None,
            "ratio": plan["seconds"] / took_s,
            "memory_ratio": plan["peak_bytes"] / peak,
            "disk_ratio": plan["disk_bytes"] / disk if command == "experts" else None,
            "plan": plan,
        }


WATCHED = """
import sys
from pathlib import Path
import torch
from pseudocoreset.cli import main
from pseudocoreset.plan.measure import PeakMemory
file, device, *words = sys.argv[1:]
peak = PeakMemory(torch.device(device))
code = main(words)
Path(file).write_text(str(peak.whole()))
sys.exit(code)
"""
"""A command of pseudocoreset that leaves the peak of its memory in a file."""


def run(device: str, *arguments: object) -> tuple[float, int]:
    """The seconds that a command of pseudocoreset takes, and its peak of memory in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        peak = Path(folder, "peak")
        begun = time.perf_counter()
        command = [sys.executable, "-c", WATCHED, peak, device, *arguments]
        if subprocess.run(list(map(str, command)), check=False).returncode != 0:
            raise UserError(f"`{arguments[0]}` failed, as it says above")
        return time.perf_counter() - begun, int(peak.read_text(encoding="utf-8"))


if __name__ == "__main__":
    exit_with(main)
