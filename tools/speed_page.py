"""Write the tables of docs/speed.md from the JSON files in results/.

`filled` puts each table between its marks, `<!-- NAME -->` and `<!-- /NAME -->`. The text around
the marks is written by hand. `python tools/render.py` runs this.
"""

import json
import re
from pathlib import Path
from typing import Any

from pseudocoreset.methods import METHODS
from pseudocoreset.reproduce.cells import SIZES
from pseudocoreset.reproduce.text_table import TextTable

ROOT = Path(__file__).parent.parent
NONE = "–"

Row = dict[str, Any]


def filled(text: str, made: dict[str, str]) -> str:
    """Replace what stands between the marks of each table."""
    for name, table in made.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = place.sub(lambda found, table=table: f"{found[1]}{table}{found[2]}", text)
    return text


def tables(results: Path) -> dict[str, str]:
    """All tables and sentences of the page by the name of their marks."""

    def read(name: str) -> Any:
        return json.loads((results / f"{name}.json").read_text(encoding="utf-8"))

    rows, memory, growing = read("benchmark"), read("memory"), read("scaling")
    rows = [row for row in rows if row["row"]["data"].startswith("cifar10")]
    of_convnet = [row for row in rows if row["net"] == "convnet"]
    agreement = read("fast-and-plain")
    starts = read("cold-start")
    plans = {name: read(name)["rows"] for name in ("plan", "plan-gpu")}
    by_hand = read("whole-job")["rows"]
    return {
        "headline": of_headline(of_convnet).markdown(),
        "job": of_job(starts["job"]),
        "start": of_start(starts).markdown(),
        "updates": of_updates(of_convnet).markdown(),
        "other-updates": of_updates([row for row in rows if row not in of_convnet]).markdown(),
        "agreement": of_agreement(agreement["rows"]).markdown(),
        "memory": of_memory(memory).markdown(),
        "growth": of_growth(growing).markdown(),
        "plans": of_plans(plans).markdown(),
        "whole-jobs": of_whole_jobs(plans["plan-gpu"], *by_hand).markdown(),
        "measured": measured_on(
            {
                "benchmark": rows,
                "memory": memory,
                "scaling": growing,
                "fast-and-plain": [agreement],
                **plans,
                "whole-job": by_hand,
                "cold-start": [starts],
                "quickstart": [read("quickstart")],
            }
        ),
    }


def of_whole_jobs(plans: list[Row], first: Row, many: Row) -> TextTable:
    """The seconds of the whole job in three ways."""
    spent = {row["command"]: row["took_s"] for row in plans}
    with_many = sum(many["took_s"]) + spent["distill"] + spent["evaluate"]
    seconds = {
        "20 experts of 30 epochs, kernels compiled before": sum(spent.values()),
        "the same with nothing compiled": sum(first["took_s"]),
        "100 experts of 50 epochs, commands timed separately": with_many,
    }
    return TextTable(("", "seconds"), [[(name, f"{each:.0f}") for name, each in seconds.items()]])


def of_start(starts: Row) -> TextTable:
    """Seconds until a command makes progress, and those of one further step."""
    names = {
        "experts": ("the first epoch of `experts`", "first"),
        "distill": ("the first update of `distill`, FBPC", "first"),
        "evaluate": ("the end of `evaluate`, 5 seeds", "end"),
    }
    found = {(row["edition"], row["command"], row["caches"]): row for row in starts["rows"]}
    lines = []
    for command, (what, until) in names.items():
        old = found["before", command, "empty"]
        new = found["after", command, "empty"]
        times = [f"{row[until]:.1f}" for row in (old, new, found["after", command, "full"])]
        later = [NONE if command == "evaluate" else f"{row['then']:.3f}" for row in (old, new)]
        lines.append((what, *times, *later))
    header = (
        "seconds until",
        "`torch.compile`, empty caches",
        "Triton, empty caches",
        "Triton, full caches",
        "each further one, `torch.compile`",
        "each further one, Triton",
    )
    return TextTable(header, [lines])


def of_job(job: Row) -> str:
    """Time and scores of the whole job in two sentences."""
    pooled = job["pooled"]
    experts, distill, evaluate = (f"{seconds:.0f} s" for seconds in job["took_s"])
    return (
        f"On one H200, turning CIFAR-10 into 100 images took **{sum(job['took_s']):.0f} s**: "
        f"{experts} for the experts,\n{distill} for distillation and {evaluate} for evaluation, "
        f"with nothing compiled before. Four chains pooled give\n"
        f"{100 * pooled['accuracy']:.1f} % accuracy and NLL {pooled['nll']:.2f}.\n"
    )


def of_updates(rows: list[Row]) -> TextTable:
    """The package beside plain PyTorch."""
    forms = {
        "network": ("net", "{}"),
        "images per class": ("ipc", "{}"),
        "MAP steps": ("map_steps", "{:g}"),
        "plain, s": ("plain_s", "{:.3g}"),
        "ours, s": ("fast_s", "{:.3g}"),
        "plain / ours": ("ratio", "{:.1f}×"),
        "plain, GB": ("plain_peak_gb", "{:.2f}"),
        "ours, GB": ("whole_peak_gb", "{:.2f}"),
    }
    if len({row["net"] for row in rows}) == 1:
        del forms["network"]
    lines = [(row["what"], *shaped(row, forms)) for row in rows]
    return TextTable(("", *forms), [lines])


def of_headline(rows: list[Row]) -> TextTable:
    """An update of FBPC by size, beside plain PyTorch and the paper."""
    forms = {
        "images per class": ("ipc", "{}"),
        "seconds": ("fast_s", "{:.3f}"),
        "plain PyTorch, seconds": ("plain_s", "{:.2f}"),
        "times faster": ("ratio", "{:.1f}"),
        "GB": ("whole_peak_gb", "{:.2f}"),
        "paper, seconds": ("paper_s", "{:.2f}"),
        "paper, GB": ("paper_gb", "{:.2f}"),
    }
    updates = [row for row in rows if row["what"] == "fbpc update"]
    return TextTable(tuple(forms), [[shaped(row, forms) for row in updates]])


def of_memory(rows: list[Row]) -> TextTable:
    """One row per method, one column per size."""
    found = {(row["what"].removesuffix(" update"), row["ipc"]): row for row in rows}

    def line(name: str, method: str, value: str) -> tuple[str, ...]:
        return (name, *(words(found.get((method, ipc), {}), value, "{:.2f}") for ipc in SIZES))

    lines = []
    measured = {method for method, _ in found}
    for method in (name for name in METHODS if name in measured):
        alone = method == "fbpc"
        name = f"`{method}`, without the step on real images" if alone else f"`{method}`"
        of_paper = line("", method, "paper_gb")[1:]
        stated = NONE if NONE in of_paper else " · ".join(of_paper)
        lines.append((*line(name, method, "peak_gb"), stated))
        if alone:
            lines.append((*line(f"`{method}`", method, "whole_peak_gb"), NONE))
    return TextTable(("method", *map(str, SIZES), "paper"), [lines])


def of_growth(rows: list[Row]) -> TextTable:
    """One row per setting; one of ipc, network, image size and classes grows at a time."""
    header = ("what grows", "images per class", "parameters", "image", "classes", "seconds", "GB")
    lines = [
        (
            row["row"]["grows"],
            f"{row['ipc']}",
            words(row, "parameters", "{:,}"),
            f"{row['row']['image_size']}²",
            f"{row['row']['classes']}",
            words(row, "fast_s", "{:.3f}"),
            words(row, "peak_gb", "{:.2f}"),
        )
        for row in rows
    ]
    return TextTable(header, [lines])


def of_plans(found: dict[str, list[Row]]) -> TextTable:
    """Planned and measured time, and the ratios of time, memory and the experts' disk."""
    forms = {
        "planned, s": ("planned_s", "{:.1f}"),
        "measured, s": ("took_s", "{:.1f}"),
        "time ratio": ("ratio", "{:.2f}"),
        "memory ratio": ("memory_ratio", "{:.2f}"),
        "disk ratio": ("disk_ratio", "{:.2f}"),
    }
    groups = [
        [
            (row["setting"], f"`{row['command']}`", row["plan"]["device"], *shaped(row, forms))
            for row in rows
        ]
        for rows in found.values()
    ]
    return TextTable(("setting", "command", "on", *forms), groups)


def of_agreement(rows: list[Row]) -> TextTable:
    """Scores of a coreset made by the package, and of one made by its plain twin."""
    columns = {"accuracy %": "accuracy", "NLL": "nll", "NLL of Kim et al.": "nll_kim", "ECE": "ece"}

    def score(row: Row, name: str) -> str:
        unit, digits = (100, 1) if name == "accuracy" else (1, 3)
        return f"{row[name] * unit:.{digits}f} ± {row[f'{name}_std'] * unit:.{digits}f}"

    lines = [(row["made_by"], *(score(row, name) for name in columns.values())) for row in rows]
    return TextTable(("made by", *columns), [lines])


def shaped(row: Row, forms: dict[str, tuple[str, str]]) -> tuple[str, ...]:
    return tuple(words(row, name, form) for name, form in forms.values())


def words(row: Row, name: str, form: str) -> str:
    value = row.get(name)
    return NONE if value is None else form.format(value)


def measured_on(found: dict[str, list[Row]]) -> str:
    """Of each file, the device, PyTorch, and the digests of the package's code."""
    lines = []
    for name, rows in found.items():
        sources = [row.get("plan", row) for row in rows]
        of_rows = [
            sorted({row["device"] for row in sources}),
            [f"PyTorch {torch}" for torch in sorted({row["versions"]["torch"] for row in sources})],
            [f"code {code}" for code in sorted({row["versions"]["code"] for row in sources})],
        ]
        where = ", ".join(part for parts in of_rows for part in parts)
        lines.append(f"- [{name}.json](../results/{name}.json): {where}\n")
    return "".join(lines)
