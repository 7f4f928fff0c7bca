"""Fill the tables of docs/speed.md and README.md with what was measured.

    python benchmarks/speed_page.py

Between `<!-- NAME -->` and `<!-- /NAME -->` stands what `tables` makes of the files in results/;
the words around are a person's.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pseudocoreset.engine.files import write_text
from pseudocoreset.reproduce.text_table import TextTable

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "speed.md", ROOT / "README.md")
METHODS = ("fbpc", "fbpc-isotropic", "bpc-fkl", "bpc-rkl", "bpc-w")
SIZES = (1, 10, 50)
NONE = "–"

Row = dict[str, Any]


def main() -> None:
    made = tables(ROOT / "results")
    for page in PAGES:
        write_text(page, filled(page.read_text(encoding="utf-8"), made))


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
    updates = [row for row in rows if row["what"] == "fbpc update" and row["net"] == "convnet"]
    planned = {name: read(name)["rows"] for name in ("plan", "plan-gpu")}
    return {
        "updates": of_updates(rows).markdown(),
        "headline": of_headline(updates).markdown(),
        "memory": of_memory(memory).markdown(),
        "growth": of_growth(growing).markdown(),
        "plans": of_plans(planned).markdown(),
        "measured": measured_on([*rows, *memory, *growing]),
    }


def of_updates(rows: list[Row]) -> TextTable:
    """All of the benchmark, ratios first."""
    header = ("", "network", "ipc", "ratio", "plain, s", "ours, s", "MAP steps")
    header += ("plain, GB", "ours, GB", "paper, s", "paper, GB")
    groups: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        cells = (
            words(row, "ratio", "{:.1f}×"),
            words(row, "plain_s", "{:.3g}"),
            words(row, "fast_s", "{:.3g}"),
            words(row, "map_steps", "{:g}"),
            words(row, "plain_peak_gb", "{:.2f}"),
            words(row, "peak_gb", "{:.2f}"),
            words(row, "paper_s", "{:.2f}"),
            words(row, "paper_gb", "{:.2f}"),
        )
        named = (row["what"], row["net"], words(row, "ipc", "{}"))
        groups.setdefault(row["what"], []).append((*named, *cells))
    return TextTable(header, list(groups.values()))


def of_headline(rows: list[Row]) -> TextTable:
    """The update of the paper's method, for the README."""
    header = ("images a class", "update, s", "faster than plain", "GB", "paper: s", "GB")
    cells = [
        (
            f"{row['ipc']}",
            f"{row['fast_s']:.3f}",
            f"{row['ratio']:.1f}×",
            f"{row['peak_gb']:.2f}",
            f"{row['paper_s']:.2f}",
            f"{row['paper_gb']:.2f}",
        )
        for row in rows
    ]
    return TextTable(header, [cells])


def of_memory(rows: list[Row]) -> TextTable:
    """A row a method, a column a size."""
    found = {(row["what"].removesuffix(" update"), row["ipc"]): row for row in rows}

    def line(name: str, method: str, value: Callable[[Row], str]) -> tuple[str, ...]:
        return (name, *(value(found[method, ipc]) for ipc in SIZES))

    lines = []
    for method in METHODS:
        of_paper = [words(found[method, ipc], "paper_gb", "{:.2f}") for ipc in SIZES]
        ours = line(f"`{method}`", method, lambda row: f"{row['peak_gb']:.2f}")
        lines.append((*ours, NONE if NONE in of_paper else " · ".join(of_paper)))
        if method == "fbpc":
            name = "`fbpc` with its real batches"
            lines.append((*line(name, method, lambda row: f"{row['whole_peak_gb']:.2f}"), NONE))
    return TextTable(("method", *map(str, SIZES), "in the paper"), [lines])


def of_growth(rows: list[Row]) -> TextTable:
    header = ("grows", "images a class", "parameters", "image", "classes", "update, s", "GB")
    groups: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        given = row["row"]
        cells = (
            given["grows"],
            f"{row['ipc']}",
            f"{row['parameters']:,}",
            f"{given['image_size']}²",
            f"{given['classes']}",
            f"{row['fast_s']:.3f}",
            f"{row['peak_gb']:.2f}",
        )
        groups.setdefault(given["grows"], []).append(cells)
    return TextTable(header, list(groups.values()))


def of_plans(found: dict[str, list[Row]]) -> TextTable:
    header = ("command", "on", "planned, s", "took, s", "ratio")
    groups = [
        [
            (
                f"`{row['command']}`",
                row["plan"]["device"],
                f"{row['planned_s']:.1f}",
                f"{row['took_s']:.1f}",
                f"{row['ratio']:.2f}",
            )
            for row in rows
        ]
        for rows in found.values()
    ]
    return TextTable(header, groups)


def words(row: Row, name: str, form: str) -> str:
    value = row.get(name)
    return NONE if value is None else form.format(value)


def measured_on(rows: list[Row]) -> str:
    devices = sorted({row["device"] for row in rows})
    torches = sorted({row["versions"]["torch"] for row in rows})
    codes = sorted({row["versions"]["code"] for row in rows})
    code = f"the code's digest {', '.join(codes)} (each row says which)"
    return f"Measured on {', '.join(devices)}, PyTorch {', '.join(torches)}, {code}.\n"


if __name__ == "__main__":
    main()
