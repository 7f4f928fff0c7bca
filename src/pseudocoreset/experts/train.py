"""Training experts: many networks on the whole training set, a snapshot an epoch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path

import torch

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import ImageData
from pseudocoreset.engine.device import choose_device
from pseudocoreset.engine.progress import SILENT, Progress, Task
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.streams import Beside
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.predictive import Predictor
from pseudocoreset.experts.store import Claims, ExpertStore, StoreIdentity
from pseudocoreset.nets import Net, Weights, make_net
from pseudocoreset.training import SGD, RealImages, Training

AT_ONCE = 2
"""Experts side by side on a GPU: while one is looked at and stored, the other keeps it busy."""


@dataclass(frozen=True)
class ExpertSettings:
    """How experts are trained and what is kept of them.

    Args:
        num: number of experts
        epochs: epochs each is trained for
        lr: learning rate of plain SGD
        batch: images a step
        dsa: augmentation: on, off, or kinds separated by commas
        from_epoch: keep snapshots of this epoch and later ones (0 keeps the init too)
        half: store snapshots in half precision
    """

    num: int = 20
    epochs: int = 30
    lr: float = 0.01
    batch: int = 256
    dsa: str = "on"
    from_epoch: int = 0
    half: bool = False

    def check(self) -> None:
        """Refuse what makes no sense."""
        for name in ("num", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} {getattr(self, name)} is too small: give 1 or more.")
        if not 0 < self.lr < inf:
            raise UserError(
                f"--lr {self.lr} is not a positive number: give a learning rate such as 0.01."
            )
        if not 0 <= self.from_epoch <= self.epochs:
            raise UserError(
                f"--from-epoch {self.from_epoch} is not among the epochs 0 to {self.epochs}: "
                "give one of them."
            )


def train_experts(
    data: ImageData,
    net: str,
    out: Path | str,
    settings: ExpertSettings | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> ExpertStore:
    """Train `settings.num` networks on `data` and store their trajectories in the folder `out`.

    Trajectories that are there already, whole, are kept: what was interrupted goes on. Several
    processes may train into one folder at a time and share the work.
    """
    settings = settings or ExpertSettings()
    settings.check()
    place = choose_device(device)
    network = make_net(net, **data.shape)
    identity = identify(data, network, settings, seed)
    store = ExpertStore.create(out, identity)
    missing = [number for number in range(settings.num) if not store.is_whole(number)]
    if not missing:
        return store
    on_device = data.to(place)
    predictor = Predictor(network, on_device.test.images, data.normalisation)
    total, done = settings.num * settings.epochs, (settings.num - len(missing)) * settings.epochs
    with progress.task("experts", total, done) as task, store.claims(missing) as claims:
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


def identify(data: ImageData, net: Net, settings: ExpertSettings, seed: int) -> StoreIdentity:
    """What a store of such experts says of itself."""
    return StoreIdentity(
        data=data.name,
        fingerprint=data.fingerprint,
        holdout=0 if data.holdout is None else len(data.holdout),
        net=net.spec,
        **data.shape,
        epochs=settings.epochs,
        first_epoch=settings.from_epoch,
        lr=settings.lr,
        batch=min(settings.batch, len(data.train)),
        dsa=str(Augmentation.parse(settings.dsa, data.mirror)),
        half=settings.half,
        seed=seed,
    )


class _Lane:
    """Where experts are trained one after another, beside other lanes; its step is captured once.

    An expert's random numbers follow from its number, whichever lane it is trained in.
    """

    def __init__(
        self,
        net: Net,
        data: ImageData,
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
        self._reserved_before = _reserved(device)
        self._rng = Rng(device, identity.seed)
        self._beside = Beside(device)
        self._training = Training(
            net,
            SGD(identity.lr),
            RealImages(data.train, data.normalisation),
            Augmentation.parse(identity.dsa, data.mirror),
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
        self._beside.wait()

    def _train_one(self, number: int, task: Task) -> Iterator[bool]:
        """One trajectory: its snapshots, and the mean training loss of each epoch.

        An epoch is as many whole batches as there are; the images left over differ from one epoch
        to the next.
        """
        identity, training, generator = self._store.identity, self._training, self._rng.device
        with self._beside:
            self._rng.reseed(identity.seed, "expert", number)
            training.start(self._net.init(generator))
        snapshots: list[Weights] = []
        losses: list[float] = []
        images = len(self._data.train)
        steps = images // identity.batch
        for epoch in range(identity.epochs + 1):
            if epoch:
                with self._beside:
                    order = torch.randperm(images, generator=generator, device=generator.device)
                    training.set_order(order)
                    training.run(steps)
                yield True
            self._beside.wait()
            if epoch:
                losses.append(training.take("loss_sum") / steps)
                share_correct = training.take("correct_sum") / steps
                _refuse_divergence(number, epoch, losses[-1], training.weights, identity)
                task.advance(loss=losses[-1], accuracy=share_correct)
            if epoch >= identity.first_epoch:
                snapshots.append(Weights(*(part.to("cpu", copy=True) for part in training.weights)))
        score = self._predictor.accuracy(training.weights, self._data.test.labels)
        figures = {"train_loss": losses, "test_accuracy": score}
        self._store.write(number, snapshots, figures, self._net)


def _reserved(device: torch.device) -> int:
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0


def _refuse_divergence(
    expert: int, epoch: int, loss: float, weights: Weights, identity: StoreIdentity
) -> None:
    """Stop an expert whose loss, or whose weights as they are stored, are not finite."""
    stored = weights.params.half() if identity.half else weights.params
    if not isfinite(loss) or not bool(stored.isfinite().all()):
        raise UserError(
            f"expert {expert} diverged in epoch {epoch} (loss {loss:.3g}): give a smaller --lr "
            f"than {identity.lr}."
        )
