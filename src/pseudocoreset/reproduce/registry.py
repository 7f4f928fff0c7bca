"""What can be reproduced: what each is, its options, and how it is measured and shown."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from pseudocoreset.engine.text import did_you_mean, printable
from pseudocoreset.errors import UserError
from pseudocoreset.reproduce import run
from pseudocoreset.reproduce.beyond.measure import measure_beyond
from pseudocoreset.reproduce.beyond.page import beyond_table_text, write_beyond
from pseudocoreset.reproduce.cells import (
    BEYOND,
    FIDELITY,
    NORMS,
    TABLES,
    Cell,
    Scope,
    beyond_cells,
    cells_of,
    fidelity_cells,
)
from pseudocoreset.reproduce.cost import NO_COSTS, cost_markdown
from pseudocoreset.reproduce.covariance import measure as covariance
from pseudocoreset.reproduce.exact.measure import measure_exact, stored
from pseudocoreset.reproduce.exact.problems import PROBLEMS
from pseudocoreset.reproduce.exact.show import draw_exact, exact_table, parts_table
from pseudocoreset.reproduce.fidelity.measure import measure_fidelity
from pseudocoreset.reproduce.fidelity.pictures import draw_fidelity
from pseudocoreset.reproduce.fidelity.show import fidelity_text
from pseudocoreset.reproduce.measure_cell import Work
from pseudocoreset.reproduce.page import FIRST, markdown_of
from pseudocoreset.reproduce.pictures import draw_pictures
from pseudocoreset.reproduce.small import classification, regression
from pseudocoreset.reproduce.small.show_classification import classification_table
from pseudocoreset.reproduce.small.show_regression import draw_traces, regression_table
from pseudocoreset.scale import Executor


@dataclass(frozen=True)
class Reproducible:
    """Something that can be reproduced.

    Args:
        shows: what it shows
        uses: the options that have an effect on it, beside those that always have one
        listed: says what of it is measured, in lines
        text: what is printed of it in the end
        draw: draws what belongs to it alone and yields a line about each file
        cells: the cells that it needs, by recipe and data
        measure: measures the cells of this table
        alone: measures it if it needs no data: so many trials from a seed on
    """

    shows: str
    uses: tuple[str, ...]
    listed: Callable[[Path, Scope], Iterable[str]]
    text: Callable[[Path, Scope], str] | None = None
    draw: Callable[[Path, Scope], Iterable[str]] = lambda *_: ()
    cells: Callable[[str | None, str], list[Cell]] = lambda *_: []
    measure: Callable[[Sequence[Cell], Work, Path], Iterator[str]] = run.measure_missing
    alone: Callable[[Path, int, int, Executor | None], Iterator[str]] | None = None


def _trials(content: dict[str, Any]) -> str:
    return f"{len(content['trials'])} trials measured"


_DATA = ("data", "image_size", "holdout")
_EXPERTS = ("num", "epochs", "lr", "from_epoch", "half", "other_versions")
_CELLS = (*_DATA, *_EXPERTS, "cells", "work", "seed", "device", "workers", "ray")
_TABLE = (*_CELLS, "steps", "seeds", "recipe")
REPRODUCIBLE = {
    **{
        name: Reproducible(
            table.shows,
            (*_TABLE, "keep_coresets") if table.ships else _TABLE,
            partial(run.table_lines, name),
            partial(markdown_of, name),
            cells=partial(cells_of, name),
        )
        for name, table in TABLES.items()
    },
    "logits": Reproducible(
        "outputs at one image under networks of four norms",
        _TABLE,
        lambda *_: ["drawn of the cells fbpc@*/10/* of norms"],
        cells=lambda recipe, data: [c for c in cells_of(NORMS, recipe, data) if c.keeps_outputs],
    ),
    "cost": Reproducible(
        "memory and time of an update, from the benchmark's results",
        _DATA,
        lambda *_: ["written of benchmark.json, which benchmarks/speed.py measures"],
        lambda out, _: cost_markdown(out) or NO_COSTS.format(out),
    ),
    "pictures": Reproducible(
        "the images of the FBPC coresets",
        (*_TABLE, "keep_coresets"),
        run.picture_lines,
        draw=draw_pictures,
        cells=lambda *chosen: [c for c in cells_of("table1", *chosen) if c.method == "fbpc"],
    ),
    BEYOND: Reproducible(
        "the best coresets for their size, controls of the same storage, an ablation",
        (*_CELLS, "steps", "coresets", "chains"),
        run.beyond_lines,
        beyond_table_text,
        write_beyond,
        lambda _, data: beyond_cells(data),
        measure_beyond,
    ),
    FIDELITY: Reproducible(
        "how far posteriors of coresets are from that of all images, and controls",
        (*_CELLS, "chains"),
        run.fidelity_lines,
        lambda out, _: fidelity_text(out),
        lambda out, _: draw_fidelity(out),
        lambda *_: fidelity_cells(),
        measure_fidelity,
    ),
    "regression": Reproducible(
        "a small network on diabetes: coresets beside all points, by HMC; needs no data",
        ("seed", "trials"),
        lambda out, _: [_trials(regression.STUDY.stored(out))],
        lambda out, _: regression_table(out).markdown(),
        lambda out, _: draw_traces(out),
        alone=lambda out, trials, seed, _: regression.STUDY.measure(out, trials, seed),
    ),
    "classification": Reproducible(
        "a small network on the digits: coresets of several methods, by HMC; needs no data",
        ("seed", "trials"),
        lambda out, _: [_trials(classification.STUDY.stored(out))],
        lambda out, _: classification_table(out).markdown(),
        alone=lambda out, trials, seed, _: classification.STUDY.measure(out, trials, seed),
    ),
    "covariance": Reproducible(
        "FBPC's variance of K steps beside the linearised one, exactly; needs no data",
        ("seed",),
        lambda out, _: [f"{len(covariance.stored(out)['rows'])} rows measured"],
        lambda out, _: covariance.covariance_table(out).markdown(),
        alone=lambda out, _, seed, __: covariance.measure_covariance(out, seed),
    ),
    "exact": Reproducible(
        "how far coresets' posteriors are from the data's, where these are known; needs no data",
        ("seed", "trials", "workers", "ray"),
        lambda out, _: [f"{each}: {_trials(stored(out, each))}" for each in PROBLEMS],
        lambda out, _: f"{exact_table(out).markdown()}\n{parts_table(out).markdown()}",
        lambda out, _: draw_exact(out),
        alone=lambda out, *how: measure_exact(list(PROBLEMS), out, *how),
    ),
}
"""Everything that can be reproduced."""
FEW = 4
"""Where fewer use an option, its help names them."""
OF_PAPER = (*FIRST, "pictures")
"""What is reproduced if nothing is named."""


def few_users(option: str) -> list[str]:
    """The names that an option has an effect on, if they are few."""
    users = [name for name, each in REPRODUCIBLE.items() if option in each.uses]
    return users if len(users) < FEW else []


def chosen_names(names: Sequence[str]) -> list[str]:
    """What is to be reproduced; all of the paper if nothing is named."""
    for name in names:
        if name not in REPRODUCIBLE:
            hint = did_you_mean(name, REPRODUCIBLE)
            raise UserError(
                f"{printable(name)} can't be reproduced{hint}: give {', '.join(REPRODUCIBLE)}, or "
                "nothing for those of the paper.",
                "names",
            )
    return list(names) or list(OF_PAPER)


def chosen_cells(
    names: Sequence[str], recipe: str | None, data: str, wanted: str | None
) -> list[Cell]:
    """The cells of what was named, each once; `wanted` are patterns such as fbpc/10,random/*."""
    found = list(dict.fromkeys(c for name in names for c in REPRODUCIBLE[name].cells(recipe, data)))
    if wanted is None:
        return found
    patterns = [pattern.strip() for pattern in wanted.split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(cell.name, pattern) for cell in found):
            known = ", ".join(dict.fromkeys(cell.name for cell in found))
            raise UserError(f"`cells` {printable(pattern)} is none of {known}.", "cells")
    return [cell for cell in found if any(fnmatchcase(cell.name, p) for p in patterns)]


def measure_cells(cells: Sequence[Cell], work: Work, out: Path) -> Iterator[str]:
    """Measure missing cells of all tables and yield a line after each, those of the paper first."""
    for measure in dict.fromkeys(each.measure for each in REPRODUCIBLE.values()):
        own = [cell for cell in cells if REPRODUCIBLE[cell.table].measure is measure]
        if own:
            yield from measure(own, work, out)


def listing(names: Sequence[str], out: Path, scope: Scope) -> str:
    """What these names stand for, what of it was measured, and how long that took."""
    lines = []
    for name in names:
        each = REPRODUCIBLE[name]
        of_data = f", on {scope.label}" if each.alone is None else ""
        lines.append(f"{name}: {each.shows}{of_data}")
        lines += [f"  {line}" for line in each.listed(out, scope)]
    return "\n".join(lines)
