"""Training experts: many networks on the whole training set, a snapshot an epoch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import Data
from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.progress import ProgressLike, Task, progress_of
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.errors import UserError, require_type
from pseudocoreset.experts.store import Claims, ExpertStore, StoreIdentity
from pseudocoreset.likelihoods import Categorical, Gaussian, Likelihood
from pseudocoreset.nets import Net, NetLike, Weights, default_net, make_net
from pseudocoreset.predictor import Predictor
from pseudocoreset.training import SGD, RealPoints, Training

AT_ONCE = 2
"""Experts side by side on a GPU: while one is looked at and stored, the other keeps it busy."""


FOLDS = 10
"""For regression, each expert leaves out one point in so many: what it misses there is noise."""


@dataclass(frozen=True)
class ExpertOptions(Options):
    """How experts are trained and what is kept of them."""

    num: int = option(20, "number of experts", at_least=1)
    epochs: int = option(30, "epochs each is trained for", at_least=1)
    lr: float = option(0.01, "learning rate of plain SGD", above=0)
    batch: int = option(256, "points a step", at_least=1)
    dsa: str | None = option(
        None, "augmentation: on, off, or kinds separated by commas; default: on for images"
    )
    from_epoch: int = option(
        0, "keep snapshots of this epoch and later ones (0 keeps the init too)", at_least=0
    )
    half: bool = option(False, "store snapshots in half precision")

    def check(self) -> None:
        """Refuse values that do not fit each other."""
        if self.from_epoch > self.epochs:
            raise UserError(
                f"`from_epoch` {self.from_epoch} is not among the epochs 0 to {self.epochs}.",
                "from_epoch",
            )


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
    progress: ProgressLike = True,
) -> ExpertStore:
    """Train networks on `data` and store their trajectories in the folder `out`.

    Call it again to resume. Several processes may train into one folder and share the work.

    Args:
        data: the data set
        net: a spec such as `convnet:norm=group`, an `nn.Module` class, or a factory; default:
            convnet, mlp for tables
        out: folder of the expert store
        options: all options below in one object; those that are given here too count
        num: number of experts
        epochs: epochs each is trained for
        lr: learning rate of plain SGD
        batch: points a step
        dsa: augmentation: `on`, `off` or kinds separated by commas
        from_epoch: keep snapshots of this epoch and later ones
        half: store snapshots in half precision
        seed: seed of all randomness
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
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
    options = replace(options, **{k: v for k, v in named.items() if v is not None})  # type: ignore[arg-type]
    options.check()
    place = choose_device(device)
    network = make_net(net or default_net(data.input_shape), **data.shape)
    identity = identify(data, network, options, seed)
    store = ExpertStore.create(out, identity, network.source_digest)
    missing = [number for number in range(options.num) if not store.is_whole(number)]
    if not missing:
        return store
    on_device = data.to(place)
    predictor = Predictor(network, on_device.test.inputs, data.scaling)
    total, done = options.num * options.epochs, (options.num - len(missing)) * options.epochs
    bar = progress_of(progress).task("experts", total, done)
    with bar as task, store.claims(missing) as claims:
        lanes = _train_side_by_side(
            lambda: _Lane(network, on_device, predictor, store, place),
            experts_at_once(len(missing), network, place),
            claims,
            task,
        )
        for _ in lanes[0].train(claims.others(), task):
            pass
    return ExpertStore.open(out)


def experts_at_once(num: int, net: Net, device: torch.device) -> int:
    """How many of so many experts are trained side by side, if there is memory for them."""
    return min(num, AT_ONCE if device.type == "cuda" and not net.draws else 1)


def _train_side_by_side(
    make_lane: Callable[[], "_Lane"], most: int, claims: Claims, task: Task
) -> list["_Lane"]:
    """Train what no other process has in at most so many lanes; an epoch of each is begun in turn.

    An expert that diverges is told of when the others under way are stored.
    """
    lanes: list[_Lane] = []
    under_way: list[Iterator[bool]] = []
    failed: UserError | None = None
    try:
        while True:
            if len(lanes) < most and (not lanes or lanes[-1].leaves_room()):
                lanes.append(make_lane())
                under_way.append(lanes[-1].train(claims.free(), task))
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


def training_likelihood(data: Data) -> Likelihood:
    """What experts are trained by; for regression with unit noise, which is not known yet."""
    return Gaussian(data.outputs) if data.task == "regression" else Categorical(data.classes)


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
        batch=min(options.batch, len(data.train) - _left_out(data)),
        dsa=str(augmentation),
        half=options.half,
        seed=seed,
        task=data.task,
    )


class _Lane:
    """Where experts are trained one after another, beside other lanes; its step is captured once.

    An expert's random numbers follow from its number, whichever lane it is trained in.
    """

    def __init__(
        self,
        net: Net,
        data: Data,
        predictor: Predictor,
        store: ExpertStore,
        device: torch.device,
    ) -> None:
        identity = store.identity
        self._net = net
        self._data = data
        self._predictor = predictor
        self._store = store
        self._device = device
        self._likelihood = training_likelihood(data)
        self._reserved_before = _reserved(device)
        self._rng = Rng(device, identity.seed)
        self._side = SideStream(device)
        self._training = Training(
            net,
            SGD(identity.lr),
            RealPoints(data.train, data.scaling, data.target_scaling),
            Augmentation.parse(identity.dsa, data.mirror),
            self._likelihood,
            self._rng.device,
            batch=identity.batch,
        )

    def train(self, numbers: Iterator[int], task: Task) -> Iterator[bool]:
        """Train and store these experts; gives True whenever an epoch is begun and not yet done."""
        for number in numbers:
            if self._store.is_whole(number):  # since another process wrote it
                for _ in range(self._store.identity.epochs):
                    task.advance()
            else:
                yield from self._train_one(number, task)

    def leaves_room(self) -> bool:
        """Whether there is memory for another one, once this one has begun."""
        taken = _reserved(self._device) - self._reserved_before
        return self._device.type != "cuda" or torch.cuda.mem_get_info(self._device)[0] > 2 * taken

    def wait(self) -> None:
        """What is begun from now on waits for what this lane has begun."""
        self._side.wait()

    def _train_one(self, number: int, task: Task) -> Iterator[bool]:
        """One trajectory: its snapshots, and the mean training loss of each epoch.

        An epoch is as many whole batches as there are; the points left over differ from one epoch
        to the next.
        """
        identity, training, generator = self._store.identity, self._training, self._rng.device
        with self._side:
            self._rng.reseed(identity.seed, "expert", number)
            training.start(self._net.init(generator))
        snapshots: list[Weights] = []
        losses: list[float] = []
        members, left_out = self._members(number)
        steps = len(members) // identity.batch
        for epoch in range(identity.epochs + 1):
            if epoch:
                with self._side:
                    device = generator.device
                    order = torch.randperm(len(members), generator=generator, device=device)
                    training.set_order(order if left_out is None else members[order])
                    training.run(steps)
                yield True
            self._side.wait()
            if epoch:
                losses.append(training.take("loss_sum") / steps)
                figure = training.take("figure_sum") / steps
                _refuse_divergence(number, epoch, losses[-1], training.weights, identity)
                task.advance(loss=losses[-1], **{self._likelihood.figure_name: figure})
            if epoch >= identity.first_epoch:
                snapshots.append(Weights(*(part.to("cpu", copy=True) for part in training.weights)))
        data, likelihood = self._data, self._likelihood
        targets = data.test.targets
        if data.target_scaling is not None:
            targets = data.target_scaling.apply(targets)
        outputs = self._predictor.outputs(training.weights)
        score = float(likelihood.progress_figure(outputs, targets))
        figures: dict[str, Any] = {"train_loss": losses, f"test_{likelihood.figure_name}": score}
        if left_out is not None:
            figures["left_out_rmse"] = self._error_at(left_out, training.weights)
        self._store.write(number, snapshots, figures, self._net)

    def _members(self, number: int) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " k"] | None]:
        """The points that an expert is trained on, and for regression those that it leaves out.

        Expert i leaves out every tenth point of a random order that is the same for all.
        """
        everyone = torch.arange(len(self._data.train), device=self._device)
        if self._data.task != "regression":
            return everyone, None
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(len(everyone), generator=generator).to(self._device)
        place = torch.arange(len(order), device=self._device) % FOLDS
        same_number = len(order) - _left_out(self._data)  # folds may differ by one point
        members = order[place != number % FOLDS][:same_number]
        return members, order[place == number % FOLDS]

    def _error_at(self, index: Int64[Tensor, " k"], weights: Weights) -> float:
        """The RMSE at some training points, in scaled units."""
        data = self._data
        inputs, targets = RealPoints(data.train, data.scaling, data.target_scaling)({}, index)
        with torch.no_grad():
            return float(
                self._likelihood.progress_figure(self._net.apply(weights, inputs), targets)
            )


def _left_out(data: Data) -> int:
    """The most points that an expert leaves out."""
    return -(-len(data.train) // FOLDS) if data.task == "regression" else 0


def _reserved(device: torch.device) -> int:
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0


def _refuse_divergence(
    expert: int, epoch: int, loss: float, weights: Weights, identity: StoreIdentity
) -> None:
    """Stop an expert whose loss, or whose weights as they are stored, are not finite."""
    stored = weights.params.half() if identity.half else weights.params
    if not isfinite(loss) or not bool(stored.isfinite().all()):
        raise UserError(
            f"expert {expert} diverged in epoch {epoch} (loss {loss:.3g}): give a smaller `lr` "
            f"than {identity.lr}.",
            "lr",
        )
