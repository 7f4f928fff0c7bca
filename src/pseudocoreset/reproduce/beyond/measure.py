"""Measure cells, one coreset at a time. Existing results are kept."""

import time
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import Evaluation, evaluate
from pseudocoreset.experts import ExpertStore
from pseudocoreset.posterior import Sampler
from pseudocoreset.reproduce.beyond.kinds import Kind, kinds, samplers
from pseudocoreset.reproduce.beyond.make import Made, make, shipped_again
from pseudocoreset.reproduce.beyond.stored import (
    BeyondCell,
    held_out_temperature,
    read_cell,
    write_cell,
)
from pseudocoreset.reproduce.cells import Cell
from pseudocoreset.reproduce.measure_cell import Work, described, experts_for
from pseudocoreset.reproduce.shipped import shipped_coreset, shipped_path
from pseudocoreset.reproduce.time_spent import TimeSpent

EXPERTS_ALIKE = ("num", "epochs", "lr", "batch", "net", "dsa", "holdout")
"""The settings that the experts of all coresets of a cell share."""


def measure_beyond(cells: Sequence[Cell], work: Work, out: Path) -> Iterator[str]:
    """Measure missing parts of cells and yield a line after each coreset."""
    for cell in cells:
        assert cell.ipc is not None
        path = cell.path(out, work.scope)
        kind = kinds(work.scope.data, cell.ipc)[cell.method]
        number = work.options.coresets if kind.repeated else 1
        lines = 0
        for seed in range(work.seed, work.seed + number):
            found = read_cell(path, cell) if path.exists() else None
            if found is not None:
                work.refuse_other_data(path, found.content["data_fingerprint"])
            missing = _missing(found, seed, samplers(kind, cell.ipc))
            if not missing:
                continue
            measured = _with_coreset(cell, kind, found, work, out, seed, missing)
            write_cell(path, measured)
            lines += 1
            yield words(measured, seed)
        if not lines:
            yield f"{cell.table} {cell.name}: measured before (delete {path} to measure it again)"


def _missing(found: BeyondCell | None, seed: int, wanted: dict[str, Sampler]) -> dict[str, Sampler]:
    """The posteriors that the coreset of a seed was not yet scored by."""
    there = [] if found is None else [each for each in found.coresets if each["seed"] == seed]
    done = there[0]["scores"] if there else {}
    return {name: sampler for name, sampler in wanted.items() if name not in done}


def _refuse_other_experts(cell: Cell, found: BeyondCell | None, experts: ExpertStore) -> None:
    """All coresets of a cell are made with experts of the same settings, trained again or not."""
    before = None if found is None else found.content["experts"]
    now = described(experts)
    if before is not None and any(before.get(name) != now[name] for name in EXPERTS_ALIKE):
        words = f"{before['num']} of {before['epochs']} epochs"
        raise UserError(
            f"{cell.name} was measured with other experts, {words}: give the same `num`, `epochs` "
            "and `lr`, or another `out`.",
            "num",
        )


def _refuse_other_coreset(cell: Cell, entry: dict[str, Any], coreset: Pseudocoreset) -> None:
    """What is scored once more is the very coreset that was scored before."""
    if entry["fingerprint"] != coreset.fingerprint:
        raise UserError(
            f"the coreset of {cell.name} with seed {entry['seed']} is no longer the one that was "
            "scored: delete the cell's file to measure it again, or give another `out`.",
            "out",
        )


def _with_coreset(
    cell: Cell,
    kind: Kind,
    found: BeyondCell | None,
    work: Work,
    out: Path,
    seed: int,
    missing: dict[str, Sampler],
) -> BeyondCell:
    """The cell with one more coreset, or with more scores of it."""
    assert cell.ipc is not None
    experts, watch = None, None
    shipped = None
    if kind.shipped and not work.scope.holdout:
        shipped = shipped_coreset(out, work.scope, kind.shipped, cell.ipc, kind.recipe)
    if kind.experts and shipped is None:
        experts, watch = experts_for(cell, work)
        _refuse_other_experts(cell, found, experts)
    entries = [] if found is None else found.coresets
    before = next((each for each in entries if each["seed"] == seed), None)
    kept = work.folder / "scored" / f"{cell.file_name}-seed{seed}.safetensors"
    if before is not None and kept.exists():
        entry, coreset = before, Pseudocoreset.load(kept)
    else:
        if shipped is not None:
            made = shipped_again(shipped, kind.precision)
        else:
            made = make(kind, cell.ipc, work, experts, seed)
        entry, coreset = before or _described(made, seed, experts, watch), made.coreset
        coreset.save(kept, precision=coreset.precision)
    _refuse_other_coreset(cell, entry, coreset)
    scores = dict(entry["scores"])
    for name, sampler in missing.items():
        temperature = held_out_temperature(out, work.scope, cell, name)
        scores[name] = _scored(coreset, sampler, work, seed, temperature)
    if cell.method == "best" and seed == work.seed and not work.scope.holdout:
        path = shipped_path(out, work.scope, "best", cell.ipc)
        coreset.save(path, precision=coreset.precision)
    others = [each for each in entries if each["seed"] != seed]
    content = {
        "title": kind.title,
        "data_fingerprint": work.data.fingerprint,
        "methods": list(kind.methods),
        "recipe": kind.recipe,
        "changes": dict(kind.changes),
        "experts": None if experts is None else described(experts),
        "experts_s": watch.seconds if watch else 0.0,
        "experts_whole": watch is None or watch.whole,  # by now, other processes have ended theirs
        "coresets": sorted(
            [*others, {**entry, "scores": scores}], key=lambda each: int(each["seed"])
        ),
        "device": device_name(choose_device(work.device)),
        "versions": versions(),
    }
    return BeyondCell(cell, content)


def _described(
    made: Made, seed: int, experts: ExpertStore | None, watch: TimeSpent | None
) -> dict[str, Any]:
    coreset = made.coreset
    return {
        "seed": seed,
        "fingerprint": coreset.fingerprint,
        "experts": None if experts is None else experts.fingerprint,
        "experts_s": watch.seconds if watch else 0.0,
        "storage": {
            "numbers": made.numbers,
            "bytes": made.bytes,
            "precision": coreset.precision,
            "form": str(coreset.form),
            "stored": len(coreset),
            "seen": coreset.num_seen,
        },
        "config": coreset.provenance.config,
        "distill_s": made.seconds,
        "distill_whole": made.whole,
        "scores": {},
    }


def _scored(
    coreset: Pseudocoreset, sampler: Sampler, work: Work, seed: int, temperature: float | None
) -> dict[str, Any]:
    """The scores of a coreset by one posterior, three ways."""
    began = time.perf_counter()
    chains = work.options.chains
    evaluation = evaluate(
        coreset,
        work.data,
        sampler,
        seeds=chains,
        first_seed=seed * chains,
        split=work.scope.split,
        predictive_temperature=temperature,
        device=work.device,
        executor=work.executor,
        progress=work.progress,
    )
    steps = sampler.epochs * ceil(coreset.num_seen / sampler.batch)
    return {
        "single": dict(evaluation.single),
        "chain": _means(evaluation),
        "pooled": {k: v for k, v in evaluation.pooled.items() if isinstance(v, float)},
        "pooled_temperature": evaluation.pooled_temperature,
        "pooled_calibrated": dict(evaluation.pooled_calibrated),
        "chains": chains,
        "first_seed": seed * chains,
        "sampling_steps": steps,
        "protocol": evaluation.protocol,
        "seconds": time.perf_counter() - began,
    }


def _means(evaluation: Evaluation) -> dict[str, float]:
    """The mean of each score over chains, and its deviation."""
    found = {name: evaluation.mean(name) for name in evaluation.names}
    return found | {f"{name}_std": evaluation.std(name) for name in evaluation.names}


def words(found: BeyondCell, seed: int) -> str:
    """The scores of one coreset of a cell."""
    (entry,) = [each for each in found.coresets if each["seed"] == seed]
    parts = []
    for name, scores in entry["scores"].items():
        ways = (
            f"{way} {100 * scores[way]['accuracy']:.2f} % / {scores[way]['nll']:.3f}"
            for way in ("single", "chain", "pooled")
        )
        parts.append(f"{name} {', '.join(ways)}")
    storage = entry["storage"]
    size = f"{storage['stored']} stored, {storage['seen']} seen, {storage['bytes']:,} bytes"
    return f"{found.cell.table} {found.cell.name}, seed {seed}: {'; '.join(parts)} ({size})"
