"""Train experts: many networks on the whole training set, with a snapshot after each epoch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import Data
from pseudocoreset.engine.device import DeviceLike
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.progress import ProgressLike, Task, progress_of
from pseudocoreset.engine.versions import refuse_other
from pseudocoreset.errors import UserError, require_type
from pseudocoreset.experts.elsewhere import train_elsewhere
from pseudocoreset.experts.lane import Lane, left_out
from pseudocoreset.experts.store import Claims, ExpertStore, StoreIdentity
from pseudocoreset.nets import Net, NetLike, default_net, make_net
from pseudocoreset.predictor import Predictor
from pseudocoreset.scale import Executor, SerialExecutor

AT_ONCE = 2
"""Experts trained at the same time on a GPU, to keep it busy while one is stored."""
FEW_POINTS = 20_000
FAST_LR = 0.1
"""The learning rate for fewer points, of which an epoch has few steps."""
STEPS_AN_EPOCH = 20
SMALLEST_BATCH = 8
"""The default batch is a twentieth of the points, within limits, so that small data get steps too.
"""


@dataclass(frozen=True)
class ExpertOptions(Options):
    """How experts are trained and stored."""

    num: int = option(20, "number of experts", at_least=1)
    epochs: int = option(30, "epochs per expert", at_least=1)
    lr: float = option(
        0.01,
        "learning rate of plain SGD; default: 0.1 for fewer than 20,000 training points, else 0.01",
        above=0,
    )
    batch: int = option(
        256,
        "points per step; default: a twentieth of the training points, but at least 8 and at most "
        "256",
        at_least=1,
    )
    dsa: str | None = option(
        None, "augmentation: on, off, or kinds separated by commas; default: on for images"
    )
    from_epoch: int = option(
        0, "first epoch to store (0 also stores the initial weights)", at_least=0
    )
    half: bool = option(False, "store snapshots in half precision")

    def check(self) -> None:
        """Raise an error for values that do not fit together."""
        if self.from_epoch > self.epochs:
            raise UserError(
                f"`from_epoch` {self.from_epoch} is not among the epochs 0 to {self.epochs}.",
                "from_epoch",
            )

    def suited_to(self, data: Data) -> Self:
        """A complete copy: what was not given follows from the number of training points.

        Args:
            data: the data set
        """
        points = len(data.train)
        lr = FAST_LR if points < FEW_POINTS else self.lr
        batch = max(SMALLEST_BATCH, min(points // STEPS_AN_EPOCH, self.batch))
        return self.resolved({"lr": lr, "batch": batch})


def train_experts(
    data: Data,
    net: NetLike | None = None,
    out: Path | str = "experts",
    options: ExpertOptions | None = None,
    *,
    num: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    batch: int | None = None,
    dsa: str | None = None,
    from_epoch: int | None = None,
    half: bool | None = None,
    seed: int = 0,
    device: DeviceLike = "auto",
    executor: Executor | None = None,
    other_versions: bool = False,
    progress: ProgressLike = True,
) -> ExpertStore:
    """Train networks on `data` and store snapshots of their weights in the folder `out`.

    Call it again to resume. Several processes can share the work by using the same folder.

    Args:
        data: the data set
        net: a spec such as `convnet:norm=group`, an `nn.Module` class, or a factory; default:
            convnet, mlp for tables
        out: folder of the expert store
        options: an object with the options below; those given directly have priority
        num: number of experts
        epochs: epochs each is trained for
        lr: learning rate of plain SGD; default: 0.1 for fewer than 20,000 training points, else
            0.01
        batch: points per step; default: a twentieth of the training points, from 8 to 256
        dsa: augmentation: `on`, `off` or kinds separated by commas
        from_epoch: keep snapshots of this epoch and later ones
        half: store snapshots in half precision
        seed: seed of all randomness
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        executor: where experts are trained, such as `pc.ProcessExecutor(4)`; default: this process
        other_versions: add to experts that another device or version trained
        progress: whether to show a progress bar
    """
    named = {
        "num": num,
        "epochs": epochs,
        "lr": lr,
        "batch": batch,
        "dsa": dsa,
        "from_epoch": from_epoch,
        "half": half,
    }
    require_type(data, Data, "data", "a data set, such as load_data('digits')")
    options = options or ExpertOptions()
    given = {name: getattr(options, name) for name in options.given}
    given |= {name: value for name, value in named.items() if value is not None}
    options = ExpertOptions(**given).suited_to(data)
    place = (executor or SerialExecutor()).device(device)
    network = make_net(net or default_net(data.input_shape), **data.shape)
    identity = identify(data, network, options, seed)
    store = ExpertStore.create(out, identity, network.source_digest)
    missing = [number for number in range(options.num) if not store.is_whole(number)]
    if not missing:
        return store
    if not other_versions:
        for made in store.makers():
            refuse_other(made, place, store.path)
    total, done = options.num * options.epochs, (options.num - len(missing)) * options.epochs
    bar = progress_of(progress).task("experts", total, done)
    with bar as task, store.claims(missing) as claims:
        if executor is None:
            at_once = experts_at_once(len(missing), network, place)
            _train_here(network, data.to(place), store, place, at_once, claims, task)
        else:
            share = 1 / experts_at_once(AT_ONCE, network, place)
            train_elsewhere(executor, share, network, data, store, place, claims, task)
    return ExpertStore.open(out)


def experts_at_once(num: int, net: Net, device: torch.device) -> int:
    """How many of this many experts are trained side by side, if there is memory for them."""
    return min(num, AT_ONCE if device.type == "cuda" and not net.draws else 1)


def _train_here(
    net: Net,
    data: Data,
    store: ExpertStore,
    device: torch.device,
    at_once: int,
    claims: Claims,
    task: Task,
) -> None:
    """Train the experts that no other process has; then those that others did not finish."""
    predictor = Predictor(net, data.test.inputs, data.scaling)

    def train(lane: Lane, numbers: Iterator[int]) -> Iterator[bool]:
        for number in numbers:
            if store.is_whole(number):  # since another process wrote it
                for _ in range(store.identity.epochs):
                    task.advance()
            else:
                trained = yield from lane.train(number, task)
                store.write(number, trained.snapshots, trained.figures, net, trained.made)

    lanes = _train_side_by_side(
        lambda: Lane(net, data, predictor, store.identity, device),
        train,
        at_once,
        claims,
    )
    for _ in train(lanes[0], claims.others()):
        pass


def _train_side_by_side(
    make_lane: Callable[[], Lane],
    train: Callable[[Lane, Iterator[int]], Iterator[bool]],
    most: int,
    claims: Claims,
) -> list[Lane]:
    """Train the experts that no other process has, several at a time, epoch by epoch in turn.

    If an expert diverges, the error is raised after the others are stored.
    """
    lanes: list[Lane] = []
    under_way: list[Iterator[bool]] = []
    failed: UserError | None = None
    try:
        while True:
            if len(lanes) < most and (not lanes or lanes[-1].leaves_room()):
                lanes.append(make_lane())
                under_way.append(train(lanes[-1], claims.free()))
            for training in list(under_way):
                try:
                    if not next(training, False):
                        under_way.remove(training)
                except UserError as error:
                    under_way.remove(training)
                    claims.give_no_more()
                    failed = failed or error
            if not under_way:
                break
    finally:  # it may have been stopped in the middle of an epoch
        for lane in lanes:
            lane.wait()
    if failed is not None:
        raise failed
    return lanes


def identify(data: Data, net: Net, options: ExpertOptions, seed: int) -> StoreIdentity:
    """What a store of such experts says of itself."""
    augmentation = Augmentation.parse(
        options.dsa or ("on" if data.is_image else "off"), data.mirror
    )
    if augmentation.kinds and not data.is_image:
        raise UserError(f"`dsa` {options.dsa} augments images, and {data.name} has none.", "dsa")
    return StoreIdentity(
        data=data.name,
        fingerprint=data.fingerprint,
        holdout=0 if data.holdout is None else len(data.holdout),
        net=net.spec,
        channels=data.input_shape[0],
        image_size=data.image_size if data.is_image else 0,
        classes=data.outputs,
        epochs=options.epochs,
        first_epoch=options.from_epoch,
        lr=options.lr,
        batch=min(options.batch, len(data.train) - left_out(data)),
        dsa=str(augmentation),
        half=options.half,
        seed=seed,
        task=data.task,
    )
