"""The section of docs/beyond.md on the search for settings, from results/climb.json."""

import json
from pathlib import Path
from typing import Any

from pseudocoreset.reproduce.tables import UNKNOWN
from pseudocoreset.reproduce.text_table import TextTable, folded

LONG = 900
"""Runs with at least this many updates are listed in the table of the longest runs."""
TELLING = 0.015
"""Changes of the NLL below this are noise."""
Row = dict[str, Any]

_WORDS = """\
## The search, on held-out images

`benchmarks/climb_recipe.py` tried one setting at a time on CIFAR-10, with 12 to 20 experts of 30
epochs on 45,000 training images. Scores are accuracy % / NLL of two chains on the other 5,000
images; `vbpc` is scored by its last layer. The same images chose the settings, so the scores are
slightly too good. Each try is one coreset. Searches 1 to 6 followed one another, each from the
settings that the one before had kept. Sizes were searched at the same time on one H200, so a single
run takes less time than shown here. All tries are in `{file}`.

The longest runs:

{longest}
The next table shows the effect of single changes after a few hundred updates, where the NLL of a
chain changed by {telling} or more. A change that lowered the NLL was kept for the following tries.
Two ideas made results worse and were removed: `solutions` (several shared MAP solutions in turn)
and `data_steps` (the coreset's MAP solution, after a few steps on real data, replaced an expert; it
lost 7 to 38 points). Starting from cluster centres instead of random images (`init` clusters) made
no difference beyond noise. Stronger experts (search 6: learning rate 0.05, 20 epochs) did not help:
the best chains were 60.0 / 1.130, 69.5 / 0.872 and 73.8 / 0.743 with 1, 10 and 50 images per class.
With 50, `chroma:1` replaced `mosaic:2` in search 3: it is as good (72.6 / 0.785 against 72.7 /
0.792) with half as many images to train on.

{changes}"""


def search_section(results: Path, page: Path) -> str:
    """The section of the page; empty where no search is stored."""
    file = results / "climb.json"
    if not file.exists():
        return ""
    searches = json.loads(file.read_text(encoding="utf-8"))["searches"]
    return _WORDS.format(
        file=file.relative_to(page.parent.parent).as_posix(),
        telling=TELLING,
        longest=longest_table(searches).markdown(),
        changes=folded("Single changes", changes_table(searches).markdown()),
    )


def longest_table(searches: list[Row]) -> TextTable:
    """Runs of many updates, by stored images per class."""
    rows = [row for search in searches for row in search["rows"] if _is_long(row)]
    rows.sort(key=lambda row: (row["settings"]["ipc"], row["settings"]["steps"]))
    lines = []
    for row in rows:
        settings = row["settings"]
        gamma = settings.get("gamma")
        first = (str(settings["ipc"]), settings["method"], settings["form"])
        first += (UNKNOWN if gamma is None else f"{gamma:g}",)
        taken = (f"{settings['steps']:,}", f"{row['distill_s']:.0f}")
        lines.append((*first, *taken, *(_pair(row, way) for way in ("single", "chain", "pooled"))))
    header = ("images per class", "method", "form", "γ", "updates", "seconds")
    return TextTable((*header, "one network", "one chain", "both chains pooled"), [lines])


def changes_table(searches: list[Row]) -> TextTable:
    """Each change of a setting, with the scores before and after it."""
    lines = []
    for search in searches:
        before: Row | None = None
        for row in search["rows"]:
            if "scores" not in row or (row["changes"] and _is_long(row)):
                continue
            settings = row["settings"]
            if before is not None and abs(_nll(row) - _nll(before)) >= TELLING:
                number = search["search"].split(":")[0]
                words = ", ".join(f"`{k}` {v}" for k, v in _shown(row, before).items())
                scores = (_pair(before, "chain"), _pair(row, "chain"))
                kept = "yes" if row["kept"] else "no"
                lines.append(
                    (number, str(settings["ipc"]), settings["method"], words, *scores, kept)
                )
            before = row if row["kept"] else before
    header = ("search", "images per class", "method", "change", "before", "after", "kept")
    return TextTable(header, [lines])


def _is_long(row: Row) -> bool:
    settings = row.get("settings", {})
    return "scores" in row and row["kept"] and settings["steps"] >= LONG


def _shown(row: Row, before: Row) -> Row:
    """The change in few words: of another method, its name and its updates alone."""
    changes = {k: v for k, v in row["changes"].items() if v is not None}
    if row["settings"]["method"] != before["settings"]["method"]:
        return {"method": changes["method"], "steps": row["settings"]["steps"]}
    return changes


def _nll(row: Row) -> float:
    return float(row["scores"]["chain"]["nll"])


def _pair(row: Row, way: str) -> str:
    scores = row["scores"][way]
    return f"{100 * scores['accuracy']:.1f} / {scores['nll']:.3f}"
