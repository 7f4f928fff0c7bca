"""Measuring cells: the posterior of a coreset, or of real images, beside that of all of them."""

from collections.abc import Callable, Iterator, Sequence
from math import isqrt
from pathlib import Path
from typing import Any

from pseudocoreset.coreset import Pseudocoreset, whole_data
from pseudocoreset.distillation import distill
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.parse import Shape, check_shape, read_json
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.compare import between_chains, distances
from pseudocoreset.evaluation.metrics import scores
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.reproduce import measure_cell
from pseudocoreset.reproduce.cells import CONTROL, FULL, Cell, Scope, fidelity_cells
from pseudocoreset.reproduce.fidelity.predictions import Kept, kept_predictions
from pseudocoreset.reproduce.measure_cell import Work
from pseudocoreset.reproduce.shipped import shipped_path

FORMAT = 1
NEAR = 0.005
"""Accuracies this near are the same."""
_DISTANCES: Shape = {
    **dict.fromkeys(("agreement", "total_variation", "kl"), float),
    **dict.fromkeys(("agreement_on_errors", "variance_ratio"), int | float | None),
}
_OWN: Shape = {
    **dict.fromkeys(("accuracy", "nll", "mutual_information"), float),
    "between_chains": int | float | None,
}
SHAPE: Shape = {
    "format": int,
    "cell": dict,
    "data_fingerprint": str,
    "distances": _DISTANCES,
    "halves": _DISTANCES,
    "own": _OWN,
    "reference": _OWN,
    "subset": dict | None,
    "sampling": {"chains": int, "seen": int, "seconds": float},
}


def measure_fidelity(cells: Sequence[Cell], work: Work, out: Path) -> Iterator[str]:
    """Measure the cells that were not yet; a line of words after each.

    Args:
        cells: what to measure
        work: what they share
        out: folder of the results
    """
    if cells and (not work.data.is_image or work.data.task != "classification"):
        raise UserError(
            f"`data` {work.data.name} can't be reproduced: the table is of images with classes.",
            "data",
        )
    for cell in cells:
        path = cell.path(out, work.scope)
        if path.exists():
            if read_fidelity(path, cell)["data_fingerprint"] != work.data.fingerprint:
                raise UserError(
                    f"{path} was measured on other `data`: give another `out`, or the data it was "
                    "measured on.",
                    "data",
                )
            yield f"fidelity {cell.name}: measured before (delete {path} to measure it again)"
            continue
        made = cell.method.removeprefix(CONTROL)
        if made not in ("random", FULL):
            assert cell.ipc is not None
            shipped = shipped_path(out, work.scope, made, cell.ipc)
            if not shipped.exists():
                yield f"fidelity {cell.name}: left out, there is no {shipped}"
                continue
        content = _measured(cell, work, out)
        write_json(path, {"format": FORMAT, "cell": cell.as_json(), **content})
        found = content["distances"]
        yield (
            f"fidelity {cell.name}: accuracy {content['own']['accuracy']:.1%}, agreement "
            f"{found['agreement']:.1%}, total variation {found['total_variation']:.3f}"
        )


def _measured(cell: Cell, work: Work, out: Path) -> dict[str, Any]:
    reference = _of_all(work, 1)
    subset: dict[str, Any] | None = None
    if cell.method == FULL:
        mine, halves = _of_all(work, 2), reference.halves()
    else:
        assert cell.ipc is not None
        if cell.method.startswith(CONTROL):
            target = _accuracy(_of_coreset(cell.method.removeprefix(CONTROL), cell.ipc, work, out))
            mine, subset = _matched(target, work)
        elif cell.method == "random":
            mine = _of_random(cell.ipc, work)
        else:
            mine = _of_coreset(cell.method, cell.ipc, work, out)
        halves = mine.halves()
    return {
        "data_fingerprint": work.data.fingerprint,
        "distances": dict(distances(mine.predicted, reference.predicted)),
        "halves": dict(halves),
        "own": _described(mine),
        "reference": _described(reference),
        "subset": subset,
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


def _of_all(work: Work, number: int) -> Kept:
    """All training images: the reference is 1, and others with other chains 2."""
    coreset = whole_data(work.data, measure_cell.NET)
    return kept_predictions(FULL, coreset, work.seed + number, work)


def _of_coreset(method: str, ipc: int, work: Work, out: Path) -> Kept:
    coreset = Pseudocoreset.load(shipped_path(out, work.scope, method, ipc))
    return kept_predictions(f"{method}-ipc{ipc}", coreset, work.seed, work)


def _of_random(ipc: int, work: Work) -> Kept:
    coreset = distill(
        work.data,
        (),
        "random",
        ipc=ipc,
        recipe="paper",
        net=measure_cell.NET,
        seed=work.seed,
        device=work.device,
        progress=work.progress,
    )
    return kept_predictions(f"random-ipc{ipc}", coreset, work.seed, work)


def _accuracy(kept: Kept) -> float:
    return float(scores(kept.predicted)["accuracy"])


def _matched(target: float, work: Work) -> tuple[Kept, dict[str, Any]]:
    """Real images whose posterior is as accurate."""
    most = int(work.data.train.targets.bincount(minlength=work.data.classes).min())
    ipc, tried = same_accuracy(target, lambda each: _accuracy(_of_random(each, work)), most)
    subset = {"ipc": ipc, "target": target, "tried": {str(k): v for k, v in tried.items()}}
    return _of_random(ipc, work), subset


def same_accuracy(
    target: float, accuracy: Callable[[int], float], most: int
) -> tuple[int, dict[int, float]]:
    """The size whose accuracy is nearest to the target, by halving the ratio of two sizes; and all
    sizes that were tried.

    Args:
        target: the accuracy
        accuracy: that of a size, which should grow with it
        most: the largest size
    """
    low, high = 1, most
    tried: dict[int, float] = {}
    while low <= high:
        middle = isqrt(low * high)
        tried[middle] = accuracy(middle)
        if abs(tried[middle] - target) <= NEAR:
            break
        if tried[middle] < target:
            low = middle + 1
        else:
            high = middle - 1
    return min(tried, key=lambda size: abs(tried[size] - target)), tried


def read_fidelity(path: Path, cell: Cell) -> dict[str, Any]:
    """Read a cell back; anything else in its place is refused by name.

    Args:
        path: its file
        cell: what it must be
    """
    try:
        content = read_json(path)
        check_shape(content, SHAPE)
        if content["format"] != FORMAT or content["cell"] != cell.as_json():
            raise ValueError("it holds another cell")
        if content["subset"] is not None:
            check_shape(content["subset"], {"ipc": int, "target": float})
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} can't be read as the measured cell {cell.name} ({error}): delete it to "
            "measure it again."
        ) from None
    return dict(content)


def fidelity_found(out: Path, scope: Scope) -> dict[Cell, dict[str, Any]]:
    """All cells that were measured.

    Args:
        out: folder of the results
        scope: what they were measured on
    """
    paths = {cell: cell.path(out, scope) for cell in fidelity_cells()}
    return {cell: read_fidelity(path, cell) for cell, path in paths.items() if path.exists()}
