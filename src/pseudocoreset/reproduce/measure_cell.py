"""Measuring one cell: its experts, its coreset, its scores."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pseudocoreset.coreset import Pseudocoreset, versions
from pseudocoreset.data import ImageData
from pseudocoreset.distill import distill
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.progress import Progress
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import Evaluation, evaluate
from pseudocoreset.experts import ExpertSettings, ExpertStore, train_experts
from pseudocoreset.posterior import Protocol, named_protocol
from pseudocoreset.quickstart import whole_data
from pseudocoreset.recipes import NAMES as RECIPES
from pseudocoreset.recipes import Recipe, recipe_for
from pseudocoreset.reproduce.cells import FULL, Cell, Scope
from pseudocoreset.reproduce.stored import SCORE_KEYS, Measured
from pseudocoreset.reproduce.time_spent import TimeSpent
from pseudocoreset.run_folder import OtherRunError
from pseudocoreset.settings import USED_BY, DistillSettings

NET = "convnet"
PROTOCOLS = tuple(map(named_protocol, ("tuned", "paper")))
"""Of every coreset, whatever the method: ours, and then what the paper itself did."""
FULL_PROTOCOLS = tuple(replace(protocol, epochs=50, every=5) for protocol in PROTOCOLS)
"""Of all training images: 1,000 epochs over them would take twenty times as long."""


@dataclass(frozen=True)
class ReproduceSettings:
    """What cells are made with.

    Args:
        num: number of experts
        epochs: epochs each expert is trained for
        steps: updates of every coreset; default: the recipe's
        seeds: posteriors sampled a cell; random images are drawn anew for each
        recipe: paper or tuned: the settings of the methods
    """

    num: int = 20
    epochs: int = 30
    steps: int | None = None
    seeds: int = 5
    recipe: str = "paper"

    def check(self) -> None:
        """Refuse at once what would be refused after an hour."""
        if self.recipe not in RECIPES:
            raise UserError(f"--recipe {self.recipe} is not known: give {' or '.join(RECIPES)}.")
        if self.seeds < 1:
            raise UserError(f"--seeds {self.seeds} is too small: give 1 or more.")
        if self.steps is not None and self.steps < 0:
            raise UserError(f"--steps {self.steps} is negative: give 0 or more.")
        ExpertSettings(num=self.num, epochs=self.epochs).check()


@dataclass(frozen=True)
class Work:
    """What all cells of one call share; what they make on the way is kept in `folder`."""

    data: ImageData
    scope: Scope
    folder: Path
    settings: ReproduceSettings
    seed: int
    device: str
    progress: Progress


@dataclass(frozen=True)
class Made:
    """The coresets of a cell (several for random images) and what they were made with."""

    coresets: list[Pseudocoreset]
    experts: ExpertStore | None = None
    experts_watch: TimeSpent | None = None
    watch: TimeSpent | None = None


def refuse_too_few_epochs(cells: Sequence[Cell], work: Work) -> None:
    """Refuse cells that need experts of a later epoch than these are trained to."""
    needed = {
        cell.name: _epochs_needed(cell, recipe_for(work.data.name, cell.ipc, cell.method, recipe))
        for cell in cells
        if cell.ipc is not None and (recipe := cell.recipe) is not None
    }
    late = {name: epoch for name, epoch in needed.items() if epoch > work.settings.epochs}
    if late:
        named = ", ".join(f"{name} ({epoch})" for name, epoch in late.items())
        raise UserError(
            f"--epochs {work.settings.epochs} is too few for cells that need experts of a later "
            f"epoch, {named}: give --epochs {max(late.values())} or more, or other --cells."
        )


def _epochs_needed(cell: Cell, recipe: Recipe) -> int:
    """The least number of epochs; students start as late as there are epochs for."""
    if cell.method in USED_BY["from_epoch"]:
        return max(recipe.from_epoch, recipe.to_epoch or 0)
    return recipe.expert_epochs if cell.method in USED_BY["expert_epochs"] else 1


def measure_cell(cell: Cell, work: Work) -> tuple[Measured, Pseudocoreset]:
    """Measure a cell: what is to be stored of it, and its (first) coreset, in half precision."""
    made = _made(cell, work)
    began = time.perf_counter()
    protocols = FULL_PROTOCOLS if cell.method == FULL else PROTOCOLS
    evaluation, by_paper = (_evaluated(made.coresets, work, protocol) for protocol in protocols)
    scores = by_paper.as_json()
    evaluate_s = time.perf_counter() - began
    content = evaluation.as_json()
    for signs in content["samplers"]:  # a few hundred figures a seed: for a run's page, not here
        del signs["loss_trace"]
    content |= {
        "by_paper": {name: scores[name] for name in (*SCORE_KEYS, "seeds", "protocol")},
        "fingerprints": [coreset.fingerprint for coreset in made.coresets],
        "experts": None if made.experts is None else _described(made.experts),
        "duration": {
            "experts_s": made.experts_watch.seconds if made.experts_watch else 0.0,
            "experts_whole": made.experts_watch is None or made.experts_watch.whole,
            "distill_s": made.watch.seconds if made.watch else 0.0,
            "evaluate_s": evaluate_s,
            "whole": made.watch is None or made.watch.whole,
        },
        "device": device_name(choose_device(work.device)),
        "versions": versions(),
    }
    return Measured(cell, content), made.coresets[0]


def _made(cell: Cell, work: Work) -> Made:
    if cell.method == FULL:
        return Made([whole_data(work.data, NET)])
    if cell.method == "random":
        # Ten images drawn at random differ much from ten others, so each seed has its own.
        seeds = range(work.seed, work.seed + work.settings.seeds)
        return Made([_distilled(cell, work, seed=seed) for seed in seeds])
    store = work.folder / _experts_name(cell, work)
    experts_watch = TimeSpent(store.with_name(f"{store.name}.seconds.json"), store)
    with experts_watch:
        experts = _experts(cell, work, store)
    name = f"{cell.file_name}{'' if cell.dsa else '-no-dsa'}-{len(experts)}x{experts.last_epoch}"
    folder = work.folder / "runs" / f"{name}-seed{work.seed}"
    watch = TimeSpent(folder / "seconds.json")
    with watch:
        coreset = _distilled(cell, work, experts, folder, work.seed)
    return Made([coreset], experts, experts_watch, watch)


def _experts(cell: Cell, work: Work, folder: Path) -> ExpertStore:
    """The experts that cells share, so many as were asked for; what is missing is trained."""
    store = train_experts(
        work.data,
        NET,
        folder,
        ExpertSettings(
            num=work.settings.num,
            epochs=work.settings.epochs,
            dsa="on" if cell.dsa else "off",
        ),
        seed=work.seed,
        device=work.device,
        progress=work.progress,
    )
    return store.first(work.settings.num)


def _experts_name(cell: Cell, work: Work) -> str:
    augmented = "" if cell.dsa else "-no-dsa"
    return f"experts-{work.settings.epochs}-epochs{augmented}-seed{work.seed}"


def _distilled(
    cell: Cell,
    work: Work,
    experts: ExpertStore | None = None,
    folder: Path | None = None,
    seed: int = 0,
) -> Pseudocoreset:
    """The coreset of a cell, rounded to the half precision in which coresets are shipped."""
    assert cell.ipc is not None  # only the full data have none
    settings = DistillSettings(
        method=cell.method,
        ipc=cell.ipc,
        recipe=cell.recipe or "paper",
        steps=None if cell.method == "random" else work.settings.steps,
    )
    try:
        coreset = distill(
            work.data,
            () if experts is None else experts,
            settings,
            net=NET if experts is None else None,
            out=folder,
            seed=seed,
            device=work.device,
            progress=work.progress,
        )
    except OtherRunError as error:
        raise UserError(
            f"{error.found}: delete that folder, which --work kept for {cell.name}, or give the "
            "options it was begun with."
        ) from None
    return replace(coreset, images=coreset.images.half().float())


def _evaluated(coresets: list[Pseudocoreset], work: Work, protocol: Protocol) -> Evaluation:
    """The scores over seeds: chains on one coreset, or one chain on each of several."""
    first, seeds = work.seed, work.settings.seeds
    each = 1 if len(coresets) > 1 else seeds
    found = [
        evaluate(
            coreset,
            work.data,
            protocol=protocol,
            seeds=each,
            first_seed=first + number,
            split=work.scope.split,
            device=work.device,
            progress=work.progress,
        )
        for number, coreset in enumerate(coresets)
    ]
    return replace(
        found[0],
        seeds=[scores for evaluation in found for scores in evaluation.seeds],
        samplers=[signs for evaluation in found for signs in evaluation.samplers],
    )


def _described(experts: ExpertStore) -> dict[str, Any]:
    accuracies = [experts.describe(path)["test_accuracy"] for path in experts.trajectories]
    return {
        **asdict(experts.identity),
        "num": len(experts),
        "fingerprint": experts.fingerprint,
        "store": experts.path.name,
        "test_accuracy": fmean(accuracies),
    }
