"""Measure one cell: experts, coreset and scores."""

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
from pseudocoreset.engine.files import lock_file, locked
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.progress import SILENT, Progress
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import DivergedError, UserError
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.experts import ExpertStore, train_experts
from pseudocoreset.posterior import Sampler, named_sampler, sample
from pseudocoreset.recipes import NAMES as RECIPES
from pseudocoreset.report.run_report import finite
from pseudocoreset.reproduce.cells import (
    CONVNET,
    CORRUPTIONS,
    FULL,
    PROTOCOL,
    TABLES,
    Cell,
    Scope,
)
from pseudocoreset.reproduce.one_image import outputs_at_one_image
from pseudocoreset.reproduce.settings import EXPERT_BATCH, EXPERT_LR, CellSettings
from pseudocoreset.reproduce.shipped import shipped_coreset
from pseudocoreset.reproduce.stored import SCORE_KEYS, Measured
from pseudocoreset.reproduce.time_spent import TimeSpent
from pseudocoreset.run_folder import OtherRunError
from pseudocoreset.scale import Executor, SerialExecutor

NET = "convnet"
OTHER_NETS = {
    **{name: name for name in ("resnet18", "resnet34", "vgg11", "alexnet")},
    **{norm: f"convnet:norm={norm}" for norm in ("group", "layer", "batch")},
}
"""The networks beside the ConvNet, by the names that cells have for them."""
SAMPLERS = (named_sampler("tuned"), named_sampler("paper"))
"""Of every coreset, whatever the method: ours, and then what the paper itself did."""
FULL_SAMPLERS = (
    replace(SAMPLERS[0], epochs=50, every=5),
    replace(SAMPLERS[1], epochs=50, every=5),
)
"""Of all training images: 1,000 epochs over them would take twenty times as long."""
SMALL_STEP = {"alexnet": 0.003}
"""The step size where the protocols' 0.03 makes chains diverge."""
READING = named_sampler("paper-epochs")
"""The second reading of the paper's protocol, for random images."""


@dataclass(frozen=True)
class ReproduceOptions(Options):
    """What cells are made with."""

    num: int = option(20, "number of experts", at_least=1)
    epochs: int = option(30, "epochs per expert", at_least=1)
    lr: float = option(EXPERT_LR, "learning rate of the experts", above=0)
    from_epoch: int = option(0, "first epoch of the experts to store", at_least=0)
    half: bool = option(False, "store the experts in half precision")
    steps: int | None = option(
        None, "number of updates of every coreset; default: the recipe's", at_least=0
    )
    seeds: int = option(
        5, "posteriors per cell; random images are drawn again for each", at_least=1
    )
    coresets: int = option(
        3, "coresets of a cell, distilled or drawn with different seeds", at_least=1
    )
    trials: int = option(10, "trials of each model", at_least=1)
    chains: int = option(10, "chains of each posterior, which are pooled", at_least=1)
    recipe: str | None = option(
        None,
        "the settings of the methods: paper, tuned or best; default: paper, or tuned where "
        "table1's coresets are scored once more",
        choices=RECIPES,
    )
    keep_coresets: bool = option(False, "store all coresets, not only those of FBPC")


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
    """Whether to resume work that was started on another kind of device or with other versions."""
    results: Path | None = None
    """Where coresets are shipped that some cells score once more; None: nowhere."""

    def __post_init__(self) -> None:
        if not self.data.is_image or self.data.task != "classification":
            raise UserError(
                f"`data` {self.data.name} can't be reproduced: the tables are of images with "
                "classes.",
                "data",
            )

    def in_a_task(self) -> "Work":
        """The same for a cell that is itself a task."""
        place = (self.executor or SerialExecutor()).device(self.device)
        return replace(self, device=place, executor=None, progress=SILENT)

    def refuse_other_data(self, path: Path, fingerprint: object) -> None:
        """Refuse a stored cell that was measured on data with another fingerprint."""
        if fingerprint != self.data.fingerprint:
            raise UserError(
                f"{path} was measured on other `data`: give another `out`, or the data it was "
                "measured on.",
                "data",
            )


@dataclass(frozen=True)
class Made:
    """The coresets of a cell (several for random images) and what they were made with."""

    coresets: list[Pseudocoreset]
    experts: dict[str, Any] | None = None
    experts_s: float = 0.0
    experts_whole: bool = True
    watch: TimeSpent | None = None


def refuse_too_few_epochs(cells: Sequence[Cell], work: Work) -> None:
    """Refuse cells that need experts of a later epoch than these are trained to."""
    needed = {
        cell.name: CellSettings.of(cell, work.data.name).epochs_needed
        for cell in cells
        if cell.recipe is not None and shipped_for(cell, work) is None
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
    ours, papers = samplers_of(cell)
    content = _evaluated(cell, made.coresets, work, ours)
    try:
        by_paper = _evaluated(cell, made.coresets, work, papers)
    except DivergedError:
        by_paper = None
    if cell.keeps_outputs:
        content["outputs"] = _outputs(cell, made.coresets[0], work)
    evaluate_s = time.perf_counter() - began
    for signs in content["samplers"]:  # a few hundred figures a seed: for a run's page, not here
        del signs["loss_trace"]
    kept = {*SCORE_KEYS, "seeds", "protocol", "pooled", "corruptions"}
    content |= {
        "by_paper": by_paper and {k: v for k, v in by_paper.items() if k in kept},
        "fingerprints": [coreset.fingerprint for coreset in made.coresets],
        "experts": made.experts,
        "duration": {
            "experts_s": made.experts_s,
            "experts_whole": made.experts_whole,
            "distill_s": made.watch.seconds if made.watch else 0.0,
            "evaluate_s": evaluate_s,
            "whole": made.watch is None or made.watch.whole,
        },
        "device": device_name(choose_device(work.device)),
        "versions": versions(),
    }
    return Measured(cell, content), made.coresets[0]


def samplers_of(cell: Cell) -> Sequence[Sampler]:
    """What a cell is scored by: ours, or a reading that is tried, and then the paper's protocol."""
    if cell.method == FULL:
        return FULL_SAMPLERS
    if cell.on in SMALL_STEP:
        return [replace(sampler, step=SMALL_STEP[cell.on]) for sampler in SAMPLERS]
    return (READING, SAMPLERS[1]) if cell.table == PROTOCOL else SAMPLERS


def spec_of(net: str) -> str:
    """The network that a cell calls so."""
    return NET if net == CONVNET else OTHER_NETS[net]


def shipped_for(cell: Cell, work: Work) -> Pseudocoreset | None:
    """The coreset that a cell scores once more, where it is shipped: of its recipe, or none.

    One for other networks than the ConvNet is made in `work`, whose experts its cells describe; the
    shipped one is for cells that are measured without that folder, if it has as many updates.
    """
    if not TABLES[cell.table].again or cell.ipc is None:
        return None
    if work.results is None or work.scope.holdout:
        return None
    found = shipped_coreset(
        work.results, work.scope, cell.method, cell.ipc, cell.recipe, cell.made_for
    )
    if found is None or cell.made_for == (CONVNET,):
        return found
    made_here = f"{cell.coreset_name}-[0-9]*x*-seed{work.seed}"
    updates = work.options.steps
    if updates is None:
        updates = CellSettings.of(cell, work.data.name).options.steps
    same = found.provenance.config.get("steps") == updates
    return found if same and not any((work.folder / "runs").glob(made_here)) else None


def _made(cell: Cell, work: Work) -> Made:
    if cell.method == FULL:
        return Made([whole_data(work.data, NET)])
    if cell.method == "random":
        # Ten images drawn at random differ much from ten others, so each seed has its own.
        seeds = range(work.seed, work.seed + work.options.seeds)
        return Made([_distilled(cell, work, seed=seed) for seed in seeds])
    shipped = shipped_for(cell, work)
    if shipped is not None:
        return Made([shipped])
    found = [experts_for(cell, work, net) for net in cell.made_for]
    stores, watches = [store for store, _ in found], [watch for _, watch in found]
    first = stores[0]
    name = f"{cell.coreset_name}{'' if cell.dsa else '-no-dsa'}-{len(first)}x{first.last_epoch}"
    folder = work.folder / "runs" / f"{name}-seed{work.seed}"
    watch = TimeSpent(folder / "seconds.json")
    # Cells that score one coreset on different networks may be measured side by side.
    with (
        lock_file(folder.with_name(f"{folder.name}.lock")) as lock,
        locked(lock, 0, wait=True),
        watch,
    ):
        coreset = _distilled(cell, work, stores, folder, work.seed)
    experts = described(first)
    if len(stores) > 1:
        experts["others"] = [described(store) for store in stores[1:]]
    seconds, whole = sum(each.seconds for each in watches), all(each.whole for each in watches)
    return Made([coreset], experts, seconds, whole, watch)


def experts_for(cell: Cell, work: Work, net: str = CONVNET) -> tuple[ExpertStore, TimeSpent]:
    """The experts of the cells; missing ones are trained."""
    folder = work.folder / _experts_name(cell, work, net)
    watch = TimeSpent(folder.with_name(f"{folder.name}.seconds.json"), folder)
    with watch:
        store = train_experts(
            work.data,
            spec_of(net),
            folder,
            num=work.options.num,
            epochs=work.options.epochs,
            lr=work.options.lr,
            batch=EXPERT_BATCH,
            from_epoch=work.options.from_epoch,
            half=work.options.half,
            dsa="on" if cell.dsa else "off",
            seed=work.seed,
            device=work.device,
            executor=work.executor,
            other_versions=work.other_versions,
            progress=work.progress,
        )
    return store.first(work.options.num), watch


def _experts_name(cell: Cell, work: Work, net: str) -> str:
    options = work.options
    parts = ["experts", "" if net == CONVNET else net, f"{options.epochs}-epochs"]
    parts += [f"lr-{options.lr:g}" if options.lr != EXPERT_LR else ""]
    parts += [f"from-{options.from_epoch}" if options.from_epoch else ""]
    parts += ["half" if options.half else "", "" if cell.dsa else "no-dsa", f"seed{work.seed}"]
    return "-".join(part for part in parts if part)


def _distilled(
    cell: Cell,
    work: Work,
    experts: Sequence[ExpertStore] = (),
    folder: Path | None = None,
    seed: int = 0,
) -> Pseudocoreset:
    """The coreset of a cell, rounded to the half precision in which coresets are shipped."""
    assert cell.ipc is not None  # only the full data have none
    try:
        coreset = distill(
            work.data,
            experts,
            cell.method,
            ipc=cell.ipc,
            recipe=cell.recipe or "paper",
            steps=None if cell.method == "random" else work.options.steps,
            net=None if experts else NET,
            out=folder,
            seed=seed,
            device=work.device,
            other_versions=work.other_versions,
            progress=work.progress,
        )
    except OtherRunError as error:
        raise UserError(
            f"{error.found}: delete that folder, which `work` kept for {cell.name}, or give the "
            "options it was started with.",
            "work",
        ) from None
    return coreset.rounded("half")


def _evaluated(
    cell: Cell, coresets: list[Pseudocoreset], work: Work, sampler: Sampler
) -> dict[str, Any]:
    """The scores over seeds: chains on one coreset, or one chain on each of several."""
    first, seeds = work.seed, work.options.seeds
    each = 1 if len(coresets) > 1 else seeds
    found = [
        evaluate(
            coreset,
            work.data,
            sampler,
            net=spec_of(cell.on),
            seeds=each,
            first_seed=first + number,
            split=work.scope.split,
            corruptions="paper" if cell.table == CORRUPTIONS else None,
            device=work.device,
            progress=work.progress,
        )
        for number, coreset in enumerate(coresets)
    ]
    content = replace(
        found[0],
        seeds=[scores for evaluation in found for scores in evaluation.seeds],
        samplers=[signs for evaluation in found for signs in evaluation.samplers],
    ).as_json()
    pooled = content.pop("pooled")
    if len(coresets) == 1:  # samples of different coresets are no one posterior
        content["pooled"] = {k: v for k, v in pooled.items() if isinstance(v, float)}
    return content


def _outputs(cell: Cell, coreset: Pseudocoreset, work: Work) -> dict[str, Any]:
    """What one chain's networks put out at one image of the coreset."""
    posterior = sample(
        coreset,
        samplers_of(cell)[0],
        chains=1,
        net=spec_of(cell.on),
        seed=work.seed,
        device=work.device,
        progress=work.progress,
    )
    return outputs_at_one_image(coreset, posterior)


def described(experts: ExpertStore) -> dict[str, Any]:
    """What a cell stores of its experts."""
    accuracies = []
    for path in experts.trajectories:
        accuracy = finite(experts.describe(path).get("test_accuracy"))
        if accuracy is None:
            raise UserError(f"{path} is damaged: it has no test accuracy. Delete it.")
        accuracies.append(accuracy)
    return {
        **asdict(experts.identity),
        "num": len(experts),
        "fingerprint": experts.fingerprint,
        "store": experts.path.name,
        "test_accuracy": fmean(accuracies),
    }
