"""Measure cells: compare the posterior of a coreset, or of real images, with that of all images."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pseudocoreset.coreset import Pseudocoreset, whole_data
from pseudocoreset.distillation import distill
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.parse import Shape, check_shape
from pseudocoreset.engine.versions import versions
from pseudocoreset.evaluation.compare import between_chains, distances
from pseudocoreset.evaluation.metrics import scores
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.reproduce import measure_cell
from pseudocoreset.reproduce.cells import FULL, RELABELLED, Cell, Scope, fidelity_cells
from pseudocoreset.reproduce.fidelity.predictions import Kept, kept_predictions
from pseudocoreset.reproduce.measure_cell import Work
from pseudocoreset.reproduce.shipped import shipped_path

FORMAT = 1
_DISTANCES: Shape = {
    **dict.fromkeys(("agreement", "total_variation", "kl"), float),
    **dict.fromkeys(("agreement_on_errors", "variance_ratio"), int | float | None),
}
_OWN: Shape = {
    **dict.fromkeys(("accuracy", "nll", "mutual_information"), float),
    "between_chains": int | float | None,
}
SHAPE: Shape = {
    "data_fingerprint": str,
    "distances": _DISTANCES,
    "halves": _DISTANCES,
    "own": _OWN,
    "reference": _OWN,
    "sampling": {"chains": int, "seen": int, "seconds": float},
    "reference_sampling": {"chains": int, "steps": int},
}


def measure_fidelity(cells: Sequence[Cell], work: Work, out: Path) -> Iterator[str]:
    """Measure missing cells and yield a line after each.

    All are sampled first and compared then, so that of several processes none waits for the one
    that samples the reference before its own work is done.

    Args:
        cells: what to measure
        work: settings and stored predictions of all cells
        out: folder of the results
    """
    missing = []
    for cell in cells:
        path = cell.path(out, work.scope)
        if path.exists():
            work.refuse_other_data(path, read_fidelity(path, cell)["data_fingerprint"])
            yield f"fidelity {cell.name}: measured before (delete {path} to measure it again)"
        elif reason := _lacking(cell, work, out):
            yield f"fidelity {cell.name}: left out, {reason}"
        else:
            missing.append(cell)
    for cell in missing:
        found = _sampled(cell, work, out).details
        yield f"fidelity {cell.name}: {found['chains']} chains in {found['seconds']:.0f} s"
    for cell in missing:
        content = _measured(cell, work, out)
        path = cell.path(out, work.scope)
        write_json(path, {"format": FORMAT, "cell": cell.as_json(), **content})
        apart = content["distances"]
        yield (
            f"fidelity {cell.name}: accuracy {content['own']['accuracy']:.1%}, agreement "
            f"{apart['agreement']:.1%}, total variation {apart['total_variation']:.3f}"
        )


def _lacking(cell: Cell, work: Work, out: Path) -> str:
    """Why a cell can't be measured; nothing where it can."""
    if cell.ipc is None:
        return ""
    if cell.method == "random":
        most = min(work.data.train.class_counts(work.data.classes))
        return f"a class has {most} images" if cell.ipc > most else ""
    shipped = shipped_path(out, work.scope, _made_by(cell), cell.ipc)
    return "" if shipped.exists() else f"there is no {shipped}"


def _made_by(cell: Cell) -> str:
    """The method of a cell's coreset, with whatever labels."""
    return RELABELLED.get(cell.method, (cell.method, ""))[0]


def _sampled(cell: Cell, work: Work, out: Path) -> Kept:
    """What a cell's posterior predicts; the chains of all images are others than the reference."""
    if cell.ipc is None:
        return _of_all(work, 2, cell.protocol)
    if cell.method == "random":
        coreset = distill(
            work.data,
            (),
            "random",
            ipc=cell.ipc,
            recipe="paper",
            net=measure_cell.NET,
            seed=work.seed,
            device=work.device,
            progress=work.progress,
        )
    else:
        coreset = Pseudocoreset.load(shipped_path(out, work.scope, _made_by(cell), cell.ipc))
    if cell.method in RELABELLED:
        coreset = _relabelled(coreset, cell, work)
    name = f"{cell.method}-ipc{cell.ipc}"
    return kept_predictions(name, coreset, work.seed, work, cell.protocol)


def _relabelled(coreset: Pseudocoreset, cell: Cell, work: Work) -> Pseudocoreset:
    """The same points with the experts' labels, or with the most probable class."""
    _, labels = RELABELLED[cell.method]
    if labels == "hard":
        return replace(coreset, targets=coreset.targets.argmax(1))
    experts, _ = measure_cell.experts_for(cell, work)
    return distill(
        work.data,
        experts,
        "fbpc",
        ipc=len(coreset) // len(coreset.class_names),
        init=coreset,
        labels=labels,
        steps=0,
        recipe="paper",
        seed=work.seed,
        device=work.device,
        progress=work.progress,
    )


def _of_all(work: Work, number: int, protocol: str) -> Kept:
    """All training images: the reference is 1, and others with other chains 2."""
    coreset = whole_data(work.data, measure_cell.NET)
    return kept_predictions(FULL, coreset, work.seed + number, work, protocol)


def _measured(cell: Cell, work: Work, out: Path) -> dict[str, Any]:
    mine, reference = _sampled(cell, work, out), _of_all(work, 1, cell.protocol)
    halves = (reference if cell.method == FULL else mine).halves()
    return {
        "data_fingerprint": work.data.fingerprint,
        "distances": dict(distances(mine.predicted, reference.predicted)),
        "halves": dict(halves),
        "own": _described(mine),
        "reference": _described(reference),
        "sampling": mine.details,
        "reference_sampling": reference.details,
        "versions": versions(),
    }


def _described(kept: Kept) -> dict[str, Any]:
    """A posterior's scores, and how its samples spread."""
    logs = kept.predicted.log_samples.double()
    information = Categorical(logs.shape[2]).predict(logs).mutual_information
    return {
        **scores(kept.predicted),
        "mutual_information": float(information.mean()),
        "between_chains": between_chains(logs.exp(), kept.chains),
    }


def read_fidelity(path: Path, cell: Cell) -> dict[str, Any]:
    """Read a cell back; anything else in its place is refused by name.

    Args:
        path: its file
        cell: what it must be
    """
    return cell.read(path, FORMAT, lambda content: check_shape(content, SHAPE))


def fidelity_found(out: Path, scope: Scope) -> dict[Cell, dict[str, Any]]:
    """All cells that were measured.

    Args:
        out: folder of the results
        scope: what they were measured on
    """
    paths = {cell: cell.path(out, scope) for cell in fidelity_cells()}
    return {cell: read_fidelity(path, cell) for cell, path in paths.items() if path.exists()}
