"""Measuring one cell: its experts, its coreset, its scores."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pseudocoreset.coreset import Pseudocoreset, whole_data
from pseudocoreset.data import Data
from pseudocoreset.distillation import distill
from pseudocoreset.engine.device import DeviceLike, choose_device, device_name
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.progress import SILENT, Progress
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import Evaluation, evaluate
from pseudocoreset.experts import ExpertStore, train_experts
from pseudocoreset.posterior import Sampler, named_sampler
from pseudocoreset.recipes import NAMES as RECIPES
from pseudocoreset.reproduce.cells import FULL, Cell, Scope
from pseudocoreset.reproduce.settings import CellSettings
from pseudocoreset.reproduce.stored import SCORE_KEYS, Measured
from pseudocoreset.reproduce.time_spent import TimeSpent
from pseudocoreset.run_folder import OtherRunError
from pseudocoreset.scale import Executor, SerialExecutor

NET = "convnet"
SAMPLERS = tuple(map(named_sampler, ("tuned", "paper")))
"""Of every coreset, whatever the method: ours, and then what the paper itself did."""
FULL_SAMPLERS = tuple(replace(sampler, epochs=50, every=5) for sampler in SAMPLERS)
"""Of all training images: 1,000 epochs over them would take twenty times as long."""


@dataclass(frozen=True)
class ReproduceOptions(Options):
    """What cells are made with."""

    num: int = option(20, "number of experts", at_least=1)
    epochs: int = option(30, "epochs each expert is trained for", at_least=1)
    steps: int | None = option(None, "updates of every coreset; default: the recipe's", at_least=0)
    seeds: int = option(
        5, "posteriors sampled a cell; random images are drawn anew for each", at_least=1
    )
    coresets: int = option(
        3, "beyond: coresets of a cell, distilled or drawn with different seeds", at_least=1
    )
    trials: int = option(10, "exact: trials of each model", at_least=1)
    chains: int = option(10, "beyond: chains of each coreset, which are pooled", at_least=1)
    recipe: str = option(
        "paper", "the settings of the methods: paper, tuned or best", choices=RECIPES
    )


@dataclass(frozen=True)
class Work:
    """What all cells of one call share; what they make on the way is kept in `folder`."""

    data: Data
    scope: Scope
    folder: Path
    options: ReproduceOptions
    seed: int
    device: DeviceLike
    progress: Progress
    executor: Executor | None = None
    """What runs parts that are independent; None: this process."""
    other_versions: bool = False
    """Whether to go on with what another device or version began."""

    def in_a_task(self) -> "Work":
        """The same for a cell that is itself a task."""
        place = (self.executor or SerialExecutor()).device(self.device)
        return replace(self, device=place, executor=None, progress=SILENT)


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
        cell.name: CellSettings.of(cell, work.data.name).epochs_needed
        for cell in cells
        if cell.recipe is not None
    }
    late = {name: epoch for name, epoch in needed.items() if epoch > work.options.epochs}
    if late:
        named = ", ".join(f"{name} ({epoch})" for name, epoch in late.items())
        raise UserError(
            f"`epochs` {work.options.epochs} is too few for cells that need experts of a later "
            f"epoch, {named}: give {max(late.values())} or more, or other `cells`.",
            "epochs",
        )


def measure_cell(cell: Cell, work: Work) -> tuple[Measured, Pseudocoreset]:
    """Measure a cell: what is to be stored of it, and its (first) coreset, in half precision."""
    made = _made(cell, work)
    began = time.perf_counter()
    samplers = FULL_SAMPLERS if cell.method == FULL else SAMPLERS
    evaluation, by_paper = (_evaluated(made.coresets, work, sampler) for sampler in samplers)
    scores = by_paper.as_json()
    evaluate_s = time.perf_counter() - began
    content = evaluation.as_json()
    pooled = content.pop("pooled")
    if len(made.coresets) == 1:  # samples of different coresets are no one posterior
        content["pooled"] = {k: v for k, v in pooled.items() if isinstance(v, float)}
    for signs in content["samplers"]:  # a few hundred figures a seed: for a run's page, not here
        del signs["loss_trace"]
    content |= {
        "by_paper": {name: scores[name] for name in (*SCORE_KEYS, "seeds", "protocol")},
        "fingerprints": [coreset.fingerprint for coreset in made.coresets],
        "experts": None if made.experts is None else described(made.experts),
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
        seeds = range(work.seed, work.seed + work.options.seeds)
        return Made([_distilled(cell, work, seed=seed) for seed in seeds])
    experts, experts_watch = experts_for(cell, work)
    name = f"{cell.file_name}{'' if cell.dsa else '-no-dsa'}-{len(experts)}x{experts.last_epoch}"
    folder = work.folder / "runs" / f"{name}-seed{work.seed}"
    watch = TimeSpent(folder / "seconds.json")
    with watch:
        coreset = _distilled(cell, work, experts, folder, work.seed)
    return Made([coreset], experts, experts_watch, watch)


def experts_for(cell: Cell, work: Work) -> tuple[ExpertStore, TimeSpent]:
    """The experts that cells share, so many as were asked for; what is missing is trained."""
    folder = work.folder / _experts_name(cell, work)
    watch = TimeSpent(folder.with_name(f"{folder.name}.seconds.json"), folder)
    with watch:
        store = train_experts(
            work.data,
            NET,
            folder,
            num=work.options.num,
            epochs=work.options.epochs,
            dsa="on" if cell.dsa else "off",
            seed=work.seed,
            device=work.device,
            executor=work.executor,
            other_versions=work.other_versions,
            progress=work.progress,
        )
    return store.first(work.options.num), watch


def _experts_name(cell: Cell, work: Work) -> str:
    augmented = "" if cell.dsa else "-no-dsa"
    return f"experts-{work.options.epochs}-epochs{augmented}-seed{work.seed}"


def _distilled(
    cell: Cell,
    work: Work,
    experts: ExpertStore | None = None,
    folder: Path | None = None,
    seed: int = 0,
) -> Pseudocoreset:
    """The coreset of a cell, rounded to the half precision in which coresets are shipped."""
    assert cell.ipc is not None  # only the full data have none
    try:
        coreset = distill(
            work.data,
            () if experts is None else experts,
            cell.method,
            ipc=cell.ipc,
            recipe=cell.recipe or "paper",
            steps=None if cell.method == "random" else work.options.steps,
            net=NET if experts is None else None,
            out=folder,
            seed=seed,
            device=work.device,
            other_versions=work.other_versions,
            progress=work.progress,
        )
    except OtherRunError as error:
        raise UserError(
            f"{error.found}: delete that folder, which `work` kept for {cell.name}, or give the "
            "options it was begun with.",
            "work",
        ) from None
    return replace(coreset, inputs=coreset.inputs.half().float())


def _evaluated(coresets: list[Pseudocoreset], work: Work, sampler: Sampler) -> Evaluation:
    """The scores over seeds: chains on one coreset, or one chain on each of several."""
    first, seeds = work.seed, work.options.seeds
    each = 1 if len(coresets) > 1 else seeds
    found = [
        evaluate(
            coreset,
            work.data,
            sampler,
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


def described(experts: ExpertStore) -> dict[str, Any]:
    """What a cell stores of its experts."""
    accuracies = [experts.describe(path)["test_accuracy"] for path in experts.trajectories]
    return {
        **asdict(experts.identity),
        "num": len(experts),
        "fingerprint": experts.fingerprint,
        "store": experts.path.name,
        "test_accuracy": fmean(accuracies),
    }
