"""Fill the tables of docs/speed.md and README.md with what was measured.

Between `<!-- NAME -->` and `<!-- /NAME -->` stands what `tables` makes of the files in results/;
the words around are a person's. `python tools/render.py` writes them.
"""

import json
import re
from pathlib import Path
from typing import Any

from pseudocoreset.methods import METHODS
from pseudocoreset.reproduce.cells import SIZES
from pseudocoreset.reproduce.text_table import TextTable

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "speed.md", ROOT / "README.md")
UPDATE_GOALS = ((1, 0.05, 6.0), (10, 0.06, 5.0), (50, 0.18, 4.0))
"""Of an update of FBPC with so many images per class: seconds, and the ratio to its plain twin."""
NONE = "–"

Row = dict[str, Any]


def filled(text: str, made: dict[str, str]) -> str:
    """The text with every table that it has a place for."""
    for name, table in made.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = place.sub(lambda found, table=table: f"{found[1]}{table}{found[2]}", text)
    return text


def tables(results: Path) -> dict[str, str]:
    def read(name: str) -> Any:
        return json.loads((results / f"{name}.json").read_text(encoding="utf-8"))

    rows, memory, growing = read("benchmark"), read("memory"), read("scaling")
    rows = [row for row in rows if row["row"]["data"].startswith("cifar10")]
    updates = [row for row in rows if row["what"] == "fbpc update" and row["net"] == "convnet"]
    profiled = read("memory-profile")
    agreement = read("fast-and-plain")
    looks = read("looks")
    starts = read("cold-start")
    plans = {name: read(name)["rows"] for name in ("plan", "plan-gpu")}
    by_hand = read("whole-job")["rows"]
    whole_job_s = whole_jobs(plans["plan-gpu"], *by_hand)
    quickstart_s = max(read("quickstart")["seconds"])
    return {
        "goals": of_goals(rows, whole_job_s, quickstart_s).markdown(),
        "updates": of_updates(rows).markdown(),
        "headline": of_headline(updates).markdown(),
        "looks": of_looks(looks).markdown(),
        "memory": of_memory(memory).markdown(),
        "pieces": of_pieces(profiled).markdown(),
        "allocators": of_allocators(profiled).markdown(),
        "growth": of_growth(growing).markdown(),
        "plans": of_plans(plans).markdown(),
        "agreement": of_agreement(agreement["rows"]).markdown(),
        "start": of_start(starts).markdown(),
        "job": of_job(starts["job"]),
        "measured": measured_on(
            {
                "benchmark": rows,
                "looks": looks,
                "memory": memory,
                "memory-profile": profiled,
                "scaling": growing,
                "fast-and-plain": [agreement],
                **plans,
                "whole-job": by_hand,
                "cold-start": [starts],
                "quickstart": [read("quickstart")],
            }
        ),
    }


def whole_jobs(plans: list[Row], first: Row, many: Row) -> dict[str, tuple[float, float]]:
    """The seconds of the whole job in three ways, and what each may take at most."""
    spent = {row["command"]: row["took_s"] for row in plans}
    with_many = sum(many["took_s"]) + spent["distill"] + spent["evaluate"]
    return {
        "whole job at 10 per class, kernels compiled before": (sum(spent.values()), 240.0),
        "the same, nothing compiled before": (sum(first["took_s"]), 240.0),
        "with 100 experts of 50 epochs, in pieces": (with_many, 900.0),
    }


def of_goals(
    rows: list[Row], whole_job_s: dict[str, tuple[float, float]], quickstart_s: float
) -> TextTable:
    """What was to be reached, and what is: at most so much, of ratios at least."""
    found = {(row["what"], row["net"], row["ipc"]): row for row in rows}
    lines = []

    def goal(what: str, reached: float, limit: float, form: str, least: bool = False) -> None:
        met = reached >= limit if least else reached <= limit
        asked = f"{'at least' if least else 'at most'} {form.format(limit)}"
        lines.append((what, asked, form.format(reached), "met" if met else "missed"))

    for ipc, seconds, ratio in UPDATE_GOALS:
        row = found["fbpc update", "convnet", ipc]
        goal(f"FBPC update, {ipc} per class", row["fast_s"], seconds, "{:.3f} s")
        goal("beside its plain twin", row["ratio"], ratio, "{:.1f}×", least=True)
    goal("expert's epoch", found["expert epoch", "convnet", None]["fast_s"], 0.12, "{:.3f} s")
    chains = found["sghmc 5 seeds", "convnet", 10]
    goal("SGHMC, 5 chains at 10 per class, captured before", chains["fast_s"], 3.0, "{:.2f} s")
    for name, (seconds, limit) in whole_job_s.items():
        goal(name, seconds, limit, "{:.0f} s")
    for (what, net, ipc), row in found.items():
        if what == "fbpc update" and "paper_gb" in row:  # ours is without the step on real images
            name = f"memory of an update, {net}, {ipc} per class"
            goal(name, row["peak_gb"], row["paper_gb"], "{:.2f} GB")
    goal("quickstart on two CPU cores", quickstart_s, 60.0, "{:.0f} s")
    return TextTable(("", "goal", "reached", ""), [lines])


def of_start(starts: Row) -> TextTable:
    """Seconds until a command gets going, and those of a further step."""
    names = {
        "experts": ("the first epoch of `experts`", "first", (15.0, 6.0)),
        "distill": ("the first update of `distill`, FBPC", "first", (15.0, 6.0)),
        "evaluate": ("all of `evaluate`, 5 seeds", "end", (20.0, 10.0)),
    }
    found = {(row["edition"], row["command"], row["caches"]): row for row in starts["rows"]}
    lines = []
    for command, (what, until, goals) in names.items():
        old = found["before", command, "empty"]
        for caches, goal in zip(("empty", "full"), goals, strict=True):
            row = found["after", command, caches]
            before = f"{old[until]:.1f}" if caches == "empty" else NONE
            later = command != "evaluate"
            lines.append(
                (
                    what,
                    caches,
                    before,
                    f"{row[until]:.1f}",
                    f"{goal:.0f}",
                    f"{old['then']:.3f}" if later else NONE,
                    f"{row['then']:.3f}" if later else NONE,
                )
            )
    head = ("", "caches", "before, s", "now, s", "goal", "each further one before", "now")
    return TextTable(head, [lines])


def of_job(job: Row) -> str:
    """The whole job, in a sentence."""
    pooled = job["pooled"]
    parts = " + ".join(f"{seconds:.0f}" for seconds in job["took_s"])
    return (
        f"CIFAR-10 as 100 stored images took {sum(job['took_s']):.0f} s ({parts}) on one H200, "
        f"with nothing compiled.\nFour chains pooled: {100 * pooled['accuracy']:.1f} %, NLL "
        f"{pooled['nll']:.2f}.\n"
    )


def of_updates(rows: list[Row]) -> TextTable:
    """All of the benchmark, ratios first."""
    forms = {
        "plain / ours": ("ratio", "{:.1f}×"),
        "plain, s": ("plain_s", "{:.3g}"),
        "ours, s": ("fast_s", "{:.3g}"),
        "MAP steps": ("map_steps", "{:g}"),
        "plain, GB": ("plain_peak_gb", "{:.2f}"),
        "ours, GB": ("whole_peak_gb", "{:.2f}"),
        "without real batch": ("peak_gb", "{:.2f}"),
        "paper, s": ("paper_s", "{:.2f}"),
        "paper, GB": ("paper_gb", "{:.2f}"),
    }
    lines = [
        (
            row["what"],
            row["net"],
            words(row, "ipc", "{}"),
            *shaped(row if "real_batch_gb" in row else row | {"peak_gb": None}, forms),
        )
        for row in rows
    ]
    return TextTable(("", "network", "ipc", *forms), [lines])


def of_headline(rows: list[Row]) -> TextTable:
    """The update of the paper's method, for the README."""
    forms = {
        "images per class": ("ipc", "{}"),
        "seconds": ("fast_s", "{:.3f}"),
        "plain / ours": ("ratio", "{:.1f}×"),
        "GB": ("whole_peak_gb", "{:.2f}"),
        "without the real batch": ("peak_gb", "{:.2f}"),
        "paper: seconds": ("paper_s", "{:.2f}"),
        "paper: GB": ("paper_gb", "{:.2f}"),
    }
    return TextTable(tuple(forms), [[shaped(row, forms) for row in rows]])


def of_looks(rows: list[Row]) -> TextTable:
    """An update that looks as often as it does, and one that looks once."""

    def line(row: Row) -> tuple[str, ...]:
        times = (f"{row[name] * 1000:.1f}" for name in ("seconds", "seconds_with_one"))
        return (f"`{row['method']}`", f"{row['ipc']}", *times)

    head = ("method", "images per class", f"{rows[0]['looks']} looks, ms", "one, ms")
    return TextTable(head, [[*map(line, rows)]])


def of_memory(rows: list[Row]) -> TextTable:
    """A row a method and network, a column a size."""
    found = {(row["what"].removesuffix(" update"), row["ipc"]): row for row in rows}

    def line(name: str, method: str, value: str) -> tuple[str, ...]:
        return (name, *(words(found.get((method, ipc), {}), value, "{:.2f}") for ipc in SIZES))

    lines = []
    measured = {method for method, _ in found}
    for method in (name for name in METHODS if name in measured):
        alone = method == "fbpc"
        name = f"`{method}`, without the real batch" if alone else f"`{method}`"
        of_paper = line("", method, "paper_gb")[1:]
        stated = NONE if NONE in of_paper else " · ".join(of_paper)
        lines.append((*line(name, method, "peak_gb"), stated))
        if alone:
            lines.append((*line(f"`{method}`", method, "whole_peak_gb"), NONE))
    return TextTable(("method", *map(str, SIZES), "in the paper"), [lines])


def of_pieces(rows: list[Row]) -> TextTable:
    """What the peak of an update is made of, by stream and by what needed it first."""
    groups = [
        [
            (
                row["net"],
                f"{row['ipc']}",
                f"{row['streams']}",
                f"{piece['mib']:.0f}",
                f"{piece['number']}",
                piece["stream"].removeprefix("stream "),
                f"`{piece['for']}`",
            )
            for piece in row["pieces"]
        ]
        for row in rows
        if row["pieces"]
    ]
    header = ("network", "ipc", "streams", "MiB", "pieces", "stream", "needed first by")
    return TextTable(header, groups)


def of_allocators(rows: list[Row]) -> TextTable:
    """The same peak with other settings of PyTorch's allocator, one a line."""
    lines = [
        (
            row["net"],
            f"{row['ipc']}",
            f"{row['streams']}",
            f"`{row['allocator']}`" if row["allocator"] else "as PyTorch has it",
            words(row, "peak_gb", "{:.3f}"),
        )
        for row in rows
    ]
    return TextTable(("network", "ipc", "streams", "`PYTORCH_ALLOC_CONF`", "GB"), [lines])


def of_growth(rows: list[Row]) -> TextTable:
    header = ("grows", "images per class", "parameters", "image", "classes", "seconds", "GB")
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
    """Time, and what was planned over what was: of time, memory, and the experts' disk."""
    forms = {
        "planned, s": ("planned_s", "{:.1f}"),
        "took, s": ("took_s", "{:.1f}"),
        "time: planned / taken": ("ratio", "{:.2f}"),
        "memory: planned / taken": ("memory_ratio", "{:.2f}"),
        "disk: planned / taken": ("disk_ratio", "{:.2f}"),
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
