"""Does `pseudocoreset plan` say beforehand what then happens?

    python benchmarks/plan_check.py --out results/plan.json

Plans experts, a coreset and its scores on the embedded digits, each before what it needs is there,
then runs the same commands and compares the whole time of each, from its start to its end. Exits
with 1 if one is off by more than a factor of 1.5.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pseudocoreset.engine.files import write_json

NET = ["--net", "convnet:width=32"]
EXPERTS = ["--num", "4", "--epochs", "20", "--lr", "0.1", "--batch", "64"]
CHAINS = ["--epochs", "200", "--every", "20", "--seeds", "3"]
GOAL = 1.5


def run(*arguments: object) -> float:
    command = [sys.executable, "-m", "pseudocoreset", *map(str, arguments), "--quiet"]
    begun = time.perf_counter()
    subprocess.run([*command, "--data", "digits", "--device", "cpu"], check=True)
    return time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store, made = folder / "experts", folder / "run"
        settings = {  # what plan is given, and what the command is given
            "experts": ([*NET, *EXPERTS], [*NET, *EXPERTS, "--out", store]),
            "distill": ([*NET, "--ipc", 10], ["--experts", store, "--ipc", 10, "--out", made]),
            "evaluate": ([*NET, "--ipc", 10, *CHAINS], [made / "coreset.safetensors", *CHAINS]),
        }
        for command, (planned, given) in settings.items():
            file = folder / "plan.json"
            run("plan", command, *planned, "--json", file)
            plan = json.loads(file.read_text(encoding="utf-8"))
            row = {"command": command, "planned_s": plan["seconds"], "took_s": run(command, *given)}
            row["ratio"] = row["planned_s"] / row["took_s"]
            row["plan"] = plan
            rows.append(row)
            print(
                f"{command:10} planned {row['planned_s']:6.1f} s, took {row['took_s']:6.1f} s: "
                f"{row['ratio']:.2f}",
                flush=True,
            )
            command_line = f"python benchmarks/plan_check.py --out {options.out}"
            write_json(options.out, {"command": command_line, "rows": rows})
    return 0 if all(1 / GOAL < row["ratio"] < GOAL for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
