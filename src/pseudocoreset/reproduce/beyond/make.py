"""Make coresets by experts and methods, or by compression."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.distillation import DistillOptions, resolve
from pseudocoreset.distillation import run as run_job
from pseudocoreset.engine.device import choose_device
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.experts.targets import expert_targets
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.methods import method_class
from pseudocoreset.recipes import Recipe, recipe_for
from pseudocoreset.reproduce import measure_cell
from pseudocoreset.reproduce.beyond.jpeg import compressed_images
from pseudocoreset.reproduce.beyond.kinds import JPEG_QUALITY, Kind, budget, images_that_fill
from pseudocoreset.reproduce.measure_cell import Work
from pseudocoreset.reproduce.time_spent import TimeSpent
from pseudocoreset.run_folder import OtherRunError


@dataclass(frozen=True)
class Made:
    """A coreset, rounded as it is to be scored, and what it takes to store and took to make."""

    coreset: Pseudocoreset
    numbers: int | None
    """Stored numbers; None for JPEG files, which hold no numbers."""
    bytes: int
    seconds: float
    whole: bool
    """Whether these are all seconds."""


def make(kind: Kind, ipc: int, work: Work, experts: ExpertStore | None, seed: int) -> Made:
    """Make a coreset, or resume.

    Args:
        kind: what to make
        ipc: stored images per class
        work: data, options, folder
        experts: the experts, for kinds that need them
        seed: of the whole distillation
    """
    if kind.jpeg:
        assert experts is not None
        return _compressed(kind, ipc, work, experts, seed)
    images = ipc
    if kind.fills:
        images = images_that_fill(work.data, ipc, "labels" in kind.changes)
    start: tuple[Pseudocoreset, Path] | None = None
    seconds, whole = 0.0, True
    for stage in range(len(kind.methods)):
        store = "" if experts is None else f"-{len(experts)}x{experts.last_epoch}"
        steps = "" if work.options.steps is None else f"-{work.options.steps}-updates"
        name = f"{kind.made_as(stage)}-ipc{images}{store}{steps}-seed{seed}"
        folder = work.folder / "runs" / f"beyond-{name}"
        watch = TimeSpent(folder / "seconds.json")
        with watch:
            coreset = _stage(kind, stage, images, work, experts, folder, seed, start)
        start = coreset, folder
        seconds, whole = seconds + watch.seconds, whole and watch.whole
    rounded = coreset.rounded(kind.precision)
    return Made(rounded, rounded.stored_numbers, rounded.stored_bytes, seconds, whole)


def _stage(
    kind: Kind,
    stage: int,
    ipc: int,
    work: Work,
    experts: ExpertStore | None,
    folder: Path,
    seed: int,
    start: tuple[Pseudocoreset, Path] | None,
) -> Pseudocoreset:
    """The coreset after one of the methods, which starts with that of the one before it."""
    name = kind.methods[stage]
    method = method_class(name)
    own = {each.name for each in fields(method)}
    changes: dict[str, Any] = dict(kind.changes)
    if start is not None:
        changes = _later_changes(*start, recipe_for(work.data.name, ipc, name, kind.recipe))
    if work.options.steps is not None and method.makes_updates and start is None:
        changes["steps"] = work.options.steps  # a finish has its own
    stores = () if experts is None else (experts,)
    options = DistillOptions(ipc=ipc, **{k: v for k, v in changes.items() if k not in own})
    chosen = method(**{k: v for k, v in changes.items() if k in own})
    if experts is not None:  # a recipe's epochs, as far as the experts go
        shorter = chosen.within(experts.last_epoch, frozenset())
        chosen = method(**{name: getattr(shorter, name) for name in chosen.given})
    job = resolve(work.data, stores, chosen, options, kind.recipe)
    try:
        return run_job(
            job,
            work.data,
            stores,
            nets=() if stores else (measure_cell.NET,),
            out=folder,
            seed=seed,
            device=work.device,
            other_versions=work.other_versions,
            progress=work.progress,
        )
    except OtherRunError as error:
        raise UserError(
            f"{error.found}: delete that folder, which `work` kept, or give the options it was "
            "started with.",
            "work",
        ) from None


def shipped_again(coreset: Pseudocoreset, precision: str) -> Made:
    """A coreset that comes with the results, rounded, and not made again."""
    rounded = coreset.rounded(precision)
    return Made(rounded, rounded.stored_numbers, rounded.stored_bytes, 0.0, whole=False)


def _later_changes(before: Pseudocoreset, folder: Path, recipe: Recipe) -> dict[str, Any]:
    """The options of a method that begins with the coreset of another: soft labels stay soft."""
    changes: dict[str, Any] = {"init": str(folder), "form": str(before.form)}
    if before.targets.is_floating_point() and "labels" not in recipe.values:
        changes["labels"] = "learned"
    return changes


def _compressed(kind: Kind, ipc: int, work: Work, experts: ExpertStore, seed: int) -> Made:
    """Real images as JPEG files, with the experts' labels in half precision."""
    data, device = work.data, choose_device(work.device)
    rng = Rng(device, seed, "jpeg")
    found = compressed_images(
        data, budget(data, ipc).bytes, JPEG_QUALITY, 2 * data.classes, rng.host
    )
    augmentation = Augmentation.parse(experts.identity.dsa, data.mirror)
    likelihood = Categorical(data.classes)
    inputs = data.scaling.apply(found.images.to(device))
    targets = expert_targets([experts], inputs, augmentation, likelihood, rng)
    net = experts.make_net()
    provenance = Provenance(
        method=kind.methods[0],
        net=net.spec,
        data=data.name,
        data_fingerprint=data.fingerprint,
        holdout=0 if data.holdout is None else len(data.holdout),
        seed=seed,
        config={"method": kind.methods[0], "jpeg_quality": JPEG_QUALITY, "ipc": found.each},
        experts=[experts.fingerprint],
        train_digest=data.train_digest,
        test_digest=data.test_digest,
        num_train=data.num_train,
        class_counts=data.class_counts,
        net_source=net.source_digest,
    )
    coreset = Pseudocoreset(
        inputs.cpu(),
        targets.cpu(),
        data.class_names,
        data.scaling,
        str(augmentation),
        provenance,
    )
    soft = coreset.rounded("half").targets
    return Made(replace(coreset, targets=soft), None, found.bytes, 0.0, whole=True)
