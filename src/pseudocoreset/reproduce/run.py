"""Measure missing cells and list measured ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.bars import clock
from pseudocoreset.engine.progress import SILENT
from pseudocoreset.recipes import NAMES as RECIPES
from pseudocoreset.reproduce.beyond.stored import found_cells
from pseudocoreset.reproduce.cells import (
    CONVNET,
    SIZES,
    TABLES,
    Cell,
    Scope,
    beyond_cells,
    cells_of,
    fidelity_cells,
)
from pseudocoreset.reproduce.measure_cell import (
    Work,
    experts_for,
    measure_cell,
    refuse_too_few_epochs,
    shipped_for,
)
from pseudocoreset.reproduce.pictures import picture_path
from pseudocoreset.reproduce.settings import EXPERT_LR
from pseudocoreset.reproduce.shipped import ship
from pseudocoreset.reproduce.stored import (
    Measured,
    measured_cells,
    other_than_recipe,
    read_measured,
    write_measured,
)
from pseudocoreset.reproduce.tables import (
    experts_words,
    made_with,
    shown,
    time_words,
    unlike_recipe,
)
from pseudocoreset.scale import Executor, SerialExecutor, Task

LARGEST_SHIPPED = 10**7
"""The largest coreset, in bytes, that is stored with the results by default."""


def measure_missing(cells: Sequence[Cell], work: Work, out: Path) -> Iterator[str]:
    """Measure missing cells and yield a line after each."""
    work = replace(work, results=out)
    missing = [cell for cell in cells if not cell.path(out, work.scope).exists()]
    refuse_too_few_epochs(missing, work)
    for cell in cells:
        if cell not in missing:
            yield _measured_before(cell, work, out)
    if not missing:
        return
    if work.executor is None:
        executor: Executor = SerialExecutor()
        shared, gpus, progress = work, 0.0, SILENT  # each cell has its own bars
    else:
        executor, progress = work.executor, work.progress
        distilled = [c for c in missing if c.recipe is not None and shipped_for(c, work) is None]
        shared_by = {(cell.dsa, net): cell for cell in distilled for net in cell.made_for}
        for (_, net), cell in shared_by.items():
            experts_for(cell, work, net)
        shared = executor.put(work.in_a_task())
        gpus = float(executor.device(work.device) == torch.device("cuda"))

    def todo() -> Iterator[Task]:
        for cell in missing:
            if not cell.path(out, work.scope).exists():  # in the meantime, by another process
                yield Task(cell.name, measure_cell, (cell, shared), gpus)

    with progress.task("cells", len(missing)) as bar:
        for task, (measured, coreset) in executor.run(todo()):
            cell = task.arguments[0]
            # The coreset first: where there is a cell, what belongs to it is there too.
            _keep(cell, coreset, work.scope, out, work.options.keep_coresets)
            write_measured(cell.path(out, work.scope), measured)
            bar.advance()
            yield _words(measured, work)


def _measured_before(cell: Cell, work: Work, out: Path) -> str:
    path = cell.path(out, work.scope)
    measured = read_measured(path, cell)
    work.refuse_other_data(path, measured.content["coreset"].get("data_fingerprint"))
    other = _other_settings(measured, work)
    before = f"measured before{', with ' if other else ''}{', '.join(other)}"
    return f"{_words(measured, work)}; {before} (delete {path} to measure it again)"


def _other_settings(measured: Measured, work: Work) -> list[str]:
    """What a cell was measured with, and is not what was asked for."""
    content, asked = measured.content, work.options
    pairs: dict[str, tuple[Any, Any]] = {
        "seeds": (measured.seeds, asked.seeds),
        "first seed": (content["samplers"][0]["seed"], work.seed),
    }
    if content["experts"] is not None:
        others = other_than_recipe(measured, work.data.name)
        updates, of_recipe = others.pop("steps", (content["coreset"]["config"]["steps"],) * 2)
        pairs |= {
            "experts": (content["experts"]["num"], asked.num),
            "epochs": (content["experts"]["epochs"], asked.epochs),
            "learning rate of the experts": (content["experts"].get("lr", EXPERT_LR), asked.lr),
            "updates": (updates, of_recipe if asked.steps is None else asked.steps),
            **others,
        }
    return [f"{name} {was}, not {now}" for name, (was, now) in pairs.items() if was != now]


def _keep(cell: Cell, coreset: Pseudocoreset, scope: Scope, out: Path, all_methods: bool) -> None:
    """Ship the coreset of FBPC, or of all methods that make one; the tuned one if there is one.

    Those for other networks than the ConvNet are shipped, whatever the method.
    """
    if scope.holdout or cell.recipe is None:
        return
    if cell.made_for != (CONVNET,):
        ship(cell, coreset, scope, out)
        return
    if not TABLES[cell.table].ships or (cell.method != "fbpc" and not all_methods):
        return
    if coreset.stored_bytes > LARGEST_SHIPPED and not all_methods:
        return
    if cell.recipe == "paper" and replace(cell, recipe="tuned").path(out, scope).exists():
        return
    ship(cell, coreset, scope, out)


def _words(measured: Measured, work: Work) -> str:
    cell = measured.cell
    accuracy, nll, kim = (measured.score(name) for name in ("accuracy", "nll", "nll_kim"))
    recipe = f" ({cell.recipe})" if cell.recipe else ""
    return (
        f"{cell.table} {cell.name}{recipe}: {shown(accuracy)} %, "
        f"NLL {nll.mean:.3f} (Kim et al.'s {kim.mean:.3f}); {made_with(measured, work.data.name)}"
    )


def table_lines(name: str, out: Path, scope: Scope) -> list[str]:
    """What was measured, with its time; and what is missing, with that of its twin in table1."""
    found, of_table1 = (measured_cells(out, scope, table) for table in (name, "table1"))

    def with_twins_time(cell: Cell) -> str:
        twin = of_table1.get(replace(cell, table="table1"))
        return cell.name if twin is None else f"{cell.name} (about {clock(twin.seconds)})"

    lines: list[str] = []
    listed: list[Cell] = []
    for recipe in RECIPES:
        cells = [cell for cell in cells_of(name, recipe, scope.data) if cell not in listed]
        listed += cells
        done = [found[cell] for cell in cells if cell in found]
        missing = [with_twins_time(cell) for cell in cells if cell not in found]
        if cells:
            lines.append(f"{recipe}: {len(done)} of {len(cells)} cells measured; {_time(done)}")
        if done:
            times = (f"{m.cell.name} {time_words(m)}{_unlike(m, scope.data)}" for m in done)
            lines.append(f"  measured: {', '.join(times)}")
        if missing:
            lines.append(f"  missing: {', '.join(missing)}")
    return lines


def fidelity_lines(out: Path, scope: Scope) -> list[str]:
    """What of the fidelity cells was measured."""
    cells = fidelity_cells()
    done = [cell.name for cell in cells if cell.path(out, scope).exists()]
    return [f"{len(done)} of {len(cells)} cells measured: {', '.join(done)}"]


def beyond_lines(out: Path, scope: Scope) -> list[str]:
    """What of the cells beyond the paper was measured."""
    found = found_cells(out, scope)
    missing = [cell.name for cell in beyond_cells(scope.data) if cell not in found]
    lines = [f"{len(found)} of {len(found) + len(missing)} cells measured"]
    if found:
        times = [
            f"{cell.name} {len(each.coresets)} × {clock(60 * sum(each.minutes()[1:]))}"
            for cell, each in found.items()
        ]
        lines.append(f"  measured: {', '.join(times)}")
    if missing:
        lines.append(f"  missing: {', '.join(missing)}")
    return lines


def _unlike(measured: Measured, data: str) -> str:
    words = ", ".join(unlike_recipe(measured, data))
    return f" ({words})" if words else ""


def _time(done: list[Measured]) -> str:
    """The time that cells took: each by itself, and the experts that they share once."""
    if not done:
        return "time unknown"
    total = sum(measured.seconds for measured in done)
    experts: dict[str, float] = {}
    for measured in done:
        if measured.content["experts"] is not None:
            store = measured.content["experts"]["fingerprint"]
            experts[store] = max(experts.get(store, 0.0), measured.content["duration"]["experts_s"])
    devices = ", ".join(sorted({str(measured.content["device"]) for measured in done}))
    durations = [measured.content["duration"] for measured in done]
    whole = all(d["whole"] and d["experts_whole"] for d in durations)
    words = f"{clock(total)} and {clock(sum(experts.values()))} for the experts, on {devices}"
    before = {
        experts_words(measured.content["experts"]): None
        for measured in done
        if not measured.content["duration"]["experts_whole"]
    }
    if before:
        words += f", without stores that were there before ({', '.join(before)})"
    return words if whole else f"at least {words}"


def picture_lines(out: Path, scope: Scope) -> list[str]:
    """What of the pictures was drawn."""
    drawn = [ipc for ipc in SIZES if picture_path(out, scope, ipc).exists()]
    return [f"{len(drawn)} of {len(SIZES)} drawn; seconds each, once table1 has the coresets"]
