"""The table of docs/table.md: FBPC beside random points and no model, from results/tables.json."""

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pseudocoreset.reproduce.text_table import TextTable

TITLES = {
    "breast-cancer": "breast-cancer",
    "moons": "two moons",
    "rare": "three classes, one rare",
    "diabetes": "diabetes",
    "friedman": "Friedman's function",
    "prices": "prices",
}
WAYS = {"none": "no model", "random": "random points", "fbpc": "FBPC"}


def tables_table(results: Path) -> str:
    """Accuracy or RMSE, and NLL, by table; means over seeds with their deviation."""
    rows = json.loads((results / "tables.json").read_text(encoding="utf-8"))["rows"]
    found = []
    for name, title in TITLES.items():
        of_table = [row for row in rows if row["table"] == name]
        if of_table:
            found.append((title, *(_cell([row[way] for row in of_table]) for way in WAYS)))
    return TextTable(("table", *WAYS.values()), [found]).markdown()


def _cell(scores: list[dict[str, Any]]) -> str:
    """Score / NLL."""
    name = "rmse" if "rmse" in scores[0] else "accuracy"
    values, nlls = [each[name] for each in scores], [each["nll"] for each in scores]
    if name == "accuracy":
        return f"{mean(values):.1%}{_spread(values, '.1%')} / {mean(nlls):.2f}"
    digits = ",.0f" if mean(values) > 1000 else ".1f"
    return f"{mean(values):{digits}}{_spread(values, digits)} / {mean(nlls):.2f}"


def _spread(values: list[float], digits: str) -> str:
    spread = stdev(values) if len(values) > 1 else 0.0
    return f" ± {spread:{digits}}" if spread else ""
