"""The function `distill`."""

from collections.abc import Sequence
from pathlib import Path

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.distillation.job import FROM_CORESET, DistillOptions, resolve
from pseudocoreset.distillation.loop import run
from pseudocoreset.engine.device import DeviceLike
from pseudocoreset.engine.progress import ProgressLike
from pseudocoreset.errors import require_type
from pseudocoreset.experts import ExpertStore
from pseudocoreset.forms import Form
from pseudocoreset.methods import (
    Method,
)
from pseudocoreset.nets import NetLike


def distill(
    data: Data,
    experts: ExpertStore | Sequence[ExpertStore] = (),
    method: Method | str = "fbpc",
    *,
    ipc: int = 10,
    form: Form | str | None = None,
    labels: str | None = None,
    label_start: str | None = None,
    label_temperature: float | None = None,
    recipe: str = "best",
    steps: int | None = None,
    lr_images: float | None = None,
    lr_labels: float | None = None,
    optimizer: str | None = None,
    momentum: float | None = None,
    average: float | None = None,
    batch: int | None = None,
    init: Pseudocoreset | Path | str | None = None,
    target_noise: float | None = None,
    dsa: str | None = None,
    net: NetLike | Sequence[NetLike] | None = None,
    out: Path | str | None = None,
    checkpoint_every: int | None = None,
    seed: int = 0,
    device: DeviceLike = "auto",
    other_versions: bool = False,
    progress: ProgressLike = True,
) -> Pseudocoreset:
    """Make a pseudocoreset of `data`. Settings that are not given are taken from the recipe.

    Args:
        data: the data set
        experts: the trained experts; several stores with different networks give one coreset for
            all these networks
        method: a method, such as `pc.FBPC(gamma=0.2)`, or its name
        ipc: images per class; for regression, the number of points
        form: how images are stored: `pc.Pixels()`, `pc.Mosaic(2)`, or `"mosaic:2"`
        labels: `hard`, `learned` or `experts`
        label_start: initial values of learned labels: `classes` or `experts`
        label_temperature: below 1, soft labels are made sharper at the end
        recipe: `best`, `tuned`, `paper`, or a YAML file
        steps: number of updates
        lr_images: learning rate of the inputs
        lr_labels: learning rate of learned labels
        optimizer: `sgd` or `adam`
        momentum: momentum of the updates
        average: the coreset is the mean over about this share of the last updates
        batch: coreset points per step and update
        init: `real`, `noise`, or a coreset to improve, or its path
        target_noise: for regression, the noise of the likelihood, in standard deviations of the
            targets; default: the RMSE of the experts on points they were not trained on
        dsa: augmentation: `on`, `off` or kinds separated by commas
        net: the network or networks, for methods without experts
        out: folder of the run; call again with the same folder to resume
        checkpoint_every: updates between two checkpoints
        seed: seed of all randomness
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        other_versions: resume a run that was started on another device or with another version
        progress: whether to show a progress bar
    """
    start = init if isinstance(init, Pseudocoreset) else None
    named = {
        "ipc": ipc,
        "form": None if form is None else str(form),
        "labels": labels,
        "label_start": label_start,
        "label_temperature": label_temperature,
        "steps": steps,
        "lr_images": lr_images,
        "lr_labels": lr_labels,
        "optimizer": optimizer,
        "momentum": momentum,
        "average": average,
        "batch": batch,
        "init": FROM_CORESET if start else None if init is None else str(init),
        "target_noise": target_noise,
        "dsa": dsa,
        "checkpoint_every": checkpoint_every,
    }
    options = DistillOptions(**{k: v for k, v in named.items() if v is not None})  # type: ignore[arg-type]
    require_type(data, Data, "data", "a data set, such as load_data('digits')")
    advice = "what train_experts or ExpertStore.open gives"
    stores: list[ExpertStore] = [experts]  # type: ignore[list-item]
    if isinstance(experts, (list, tuple)):
        stores = list(experts)
    for each in stores:
        require_type(each, ExpertStore, "experts", advice)
    job = resolve(data, stores, method, options, recipe, start=start)
    nets: list[NetLike] = []
    if isinstance(net, str) or callable(net):
        nets = [net]
    elif net is not None:
        nets = list(net)
    return run(
        job,
        data,
        stores,
        nets=nets,
        out=out,
        seed=seed,
        device=device,
        other_versions=other_versions,
        progress=progress,
    )
