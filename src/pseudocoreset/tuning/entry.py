"""`tune`: search settings for data and a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pseudocoreset.data import Data
from pseudocoreset.distillation import DistillOptions
from pseudocoreset.engine.device import DeviceLike
from pseudocoreset.engine.progress import ProgressLike
from pseudocoreset.errors import UserError, require_type
from pseudocoreset.experts import ExpertStore
from pseudocoreset.methods import Method, method_class
from pseudocoreset.nets import NetLike
from pseudocoreset.scale import Executor
from pseudocoreset.tuning.driver import Tuned, search
from pseudocoreset.tuning.first_trial import TuneOptions

MOST_HELD_OUT = 5000
SHARE_HELD_OUT = 10
"""One training point in so many is held out."""


def tune(
    data: Data,
    experts: ExpertStore | Sequence[ExpertStore] = (),
    method: Method | str = "fbpc",
    *,
    out: Path | str,
    ipc: int = 10,
    trials: int | None = None,
    recipe: str = "best",
    net: NetLike | None = None,
    holdout: int | None = None,
    seconds: float | None = None,
    seeds: int | None = None,
    chain_epochs: int | None = None,
    num: int | None = None,
    epochs: int | None = None,
    executor: Executor | None = None,
    seed: int = 0,
    device: DeviceLike = "auto",
    other_versions: bool = False,
    progress: ProgressLike = True,
    **fixed: Any,
) -> Tuned:
    """Search settings for `data` on held-out training points; the test points are never looked at.

    The first trial has the settings that `distill` would take. Call it again to resume.

    Args:
        data: the data set
        experts: experts that were trained with points held out; default: they are trained, in `out`
        method: a method, whose options that are given are not searched, or its name
        out: folder of the search; its `recipe.yaml` is what was found
        ipc: images per class; for regression, the number of points
        trials: settings to try
        recipe: what to begin with: `best`, `tuned`, `paper`, or a YAML file
        net: the network, where no experts are given
        holdout: training points to hold out; default: the experts' own, or a tenth, at most 5000
        seconds: begin no trial after so many seconds
        seeds: chains of a trial, whose mean NLL counts
        chain_epochs: epochs of such a chain
        num: experts to train, where none are given
        epochs: epochs each of them is trained for
        executor: where trials run, such as `pc.ProcessExecutor(4)`; default: here
        seed: seed of all randomness
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        other_versions: go on with a search that another device or version began
        progress: whether to show a progress bar
        fixed: settings of `distill` that are not searched, such as `form="pixels"`; `steps` are the
            updates of a trial, by default the recipe's, at most 200
    """
    require_type(data, Data, "data", "a data set, such as load_data('digits')")
    named = {"trials": trials, "seconds": seconds, "seeds": seeds, "chain_epochs": chain_epochs}
    named |= {"num": num, "epochs": epochs}
    how = TuneOptions(**{k: v for k, v in named.items() if v is not None})  # type: ignore[arg-type]
    method = method_class(method)() if isinstance(method, str) else method
    unknown = next((name for name in fixed if name not in DistillOptions().as_dict()), None)
    if unknown is not None:
        raise UserError(f"`{unknown}` is not an option of distill.", unknown)
    stores = [experts] if isinstance(experts, ExpertStore) else list(experts)
    return search(
        held_out(data, stores, holdout),
        stores,
        method,
        DistillOptions(ipc=ipc, **fixed),
        how,
        recipe=recipe,
        nets=[] if net is None else [net],
        out=Path(out),
        executor=executor,
        seed=seed,
        device=device,
        other_versions=other_versions,
        progress=progress,
    )


def held_out(data: Data, stores: Sequence[ExpertStore], number: int | None = None) -> Data:
    """The data with points held out: as many as were asked for, as the experts', or a tenth.

    Args:
        data: the data set
        stores: the experts
        number: how many; None: not said
    """
    if data.holdout is None:
        data = data.hold_out(_number_held_out(data, stores) if number is None else number)
    if data.holdout is None:
        raise UserError(
            "settings are chosen on held-out points: give `holdout`, and experts that were "
            "trained with the same `holdout`.",
            "holdout",
        )
    return data


def _number_held_out(data: Data, stores: Sequence[ExpertStore]) -> int:
    if stores:
        return stores[0].identity.holdout
    most = min(MOST_HELD_OUT, len(data.train) // SHARE_HELD_OUT)
    if data.task == "regression":
        return most
    smallest = min(data.train.class_counts(data.classes))
    return min(most // data.classes, smallest // 2) * data.classes
