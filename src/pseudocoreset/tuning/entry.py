"""The function `tune`."""

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
"""The share 1/SHARE_HELD_OUT of the training points is held out."""


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
    """Search settings for `data` on held-out training points. The test points are not used.

    The first trial uses the default settings of `distill`. Call it again to resume.

    Args:
        data: the data set
        experts: experts that were trained with held-out points; default: train them in `out`
        method: a method or its name; options given in it are not searched
        out: folder of the search; the result is `recipe.yaml`
        ipc: images per class; for regression, the number of points
        trials: the number of settings to try
        recipe: the recipe to start from: `best`, `tuned`, `paper`, or a YAML file
        net: the network, if no experts are given
        holdout: training points to hold out; default: as for the experts, or a tenth, at most 5000
        seconds: start no trial after this many seconds
        seeds: chains per trial; their mean NLL is minimised
        chain_epochs: epochs of each chain
        num: the number of experts to train, if none are given
        epochs: epochs of each expert
        executor: where trials run, such as `pc.ProcessExecutor(4)`; default: this process
        seed: seed of all randomness
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        other_versions: resume a search of another device or version
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
    return min(MOST_HELD_OUT, len(data.train) // SHARE_HELD_OUT)
