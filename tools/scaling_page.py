"""The tables of docs/scaling-out.md, from scaling-out, plan-gpu and kills.json in results/."""

import json
from pathlib import Path
from typing import Any

from pseudocoreset.reproduce.text_table import TextTable

NAMES = {"serial": "here, no worker", "processes": "`--workers {}`", "ray": "Ray, {} CPUs"}
NONE = "–"
EXPERTS, GPUS = 1000, 100
NETWORK_BYTES_S = 1.25e9
"""10 Gbit/s."""


def scaling_tables(results: Path) -> dict[str, str]:
    def read(name: str) -> Any:
        return json.loads((results / f"{name}.json").read_text(encoding="utf-8"))

    measured = read("scaling-out")
    (planned,) = (row for row in read("plan-gpu")["rows"] if row["command"] == "experts")
    return {
        "scaling-out": _of_workers(measured).markdown(),
        "scaling-on-paper": _on_paper(measured, planned["plan"]).markdown(),
        "kills": _of_kills(read("kills")["rows"]).markdown(),
    }


def _of_workers(measured: Any) -> TextTable:
    header = ("", "an empty task", "one with the data", "the experts", "their CPU time")
    return TextTable(
        header,
        [
            [
                (
                    _words(row["way"]),
                    f"{row['task_s']:.2f} s",
                    f"{row['task_with_data_s']:.2f} s",
                    f"{row['experts_s']:.1f} s",
                    NONE if row["way"].startswith("ray") else f"{row['experts_cpu_s']:.1f} s",
                )
                for row in measured["rows"]
            ]
        ],
    )


def _words(way: str) -> str:
    kind, _, number = way.partition(" ")
    return NAMES[kind].format(number).replace("1 CPUs", "1 CPU")


def _on_paper(measured: Any, plan: Any) -> TextTable:
    """What 1,000 experts of CIFAR-10 would take, if nothing else stood in the way."""
    store, expert_s = measured["store"], 30 * plan["step_s"]
    back = EXPERTS * store["bytes"]
    gpu_s = EXPERTS / GPUS * expert_s + plan["once_s"]
    return TextTable(
        ("what", "how much", "seconds"),
        [
            [
                (
                    "the GPUs: 10 experts each",
                    f"{expert_s:.1f} s an expert on an H200, and {plan['once_s']:.0f} s once",
                    f"{gpu_s:.0f}",
                ),
                (
                    "data to the nodes",
                    f"{measured['data_bytes'] / 1e6:.0f} MB a node, from node to node",
                    f"{measured['data_bytes'] / NETWORK_BYTES_S:.1f} a copy",
                ),
                (
                    "snapshots to the driver, 10 Gbit/s",
                    f"{store['bytes'] / 1e6:.1f} MB an expert, {back / 1e9:.1f} GB in all",
                    f"{back / NETWORK_BYTES_S:.0f}",
                ),
                (
                    "the driver stores them",
                    f"{store['seconds']:.2f} s an expert, one after another",
                    f"{EXPERTS * store['seconds']:.0f}",
                ),
                ("one GPU, no cluster", "", f"{EXPERTS * expert_s + plan['once_s']:,.0f}"),
            ]
        ],
    )


def _of_kills(rows: Any) -> TextTable:
    """How often each command was killed, and how often what it left differed then."""
    lines = []
    for command in dict.fromkeys(row["command"] for row in rows):
        there = {row["where"]: row for row in rows if row["command"] == command}
        cells = [_killed(there.get(where)) for where in ("alone", "ray")]
        lines.append((f"`{command}`", *cells))
    return TextTable(("", "alone", "under Ray"), [lines])


def _killed(row: Any) -> str:
    if row is None:
        return NONE
    return f"{row['kills']}, the same" if "kills" in row else "differs"
