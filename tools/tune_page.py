"""The tables of docs/tune.md, from results/tune/."""

import json
from pathlib import Path
from statistics import fmean

from pseudocoreset.reproduce.text_table import TextTable

SEARCHES = ("TPE alone", "tune")


def tune_tables(results: Path) -> dict[str, str]:
    """By the name of their place on the page."""
    rows = json.loads((results / "tune" / "searches.json").read_text(encoding="utf-8"))["rows"]
    found = {(row["search"], row["seed"]): row for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    columns = [[found["tune", seed]["first"] for seed in seeds]]
    columns += [[found[name, seed]["lowest"] for seed in seeds] for name in SEARCHES]
    names = [*map(str, seeds), "mean"]
    shown = [[f"{nll:.3f}" for nll in (*column, fmean(column))] for column in columns]
    header = ("seed", "the first trial", "TPE alone", "`tune`")
    return {"searches": TextTable(header, [list(zip(names, *shown, strict=True))]).markdown()}
