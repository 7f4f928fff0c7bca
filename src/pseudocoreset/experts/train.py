"""Training experts: many networks on the whole training set, a snapshot an epoch."""

from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path

import torch

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import ImageData
from pseudocoreset.engine.device import choose_device
from pseudocoreset.engine.progress import SILENT, Progress, Task
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.predictive import accuracy
from pseudocoreset.experts.store import ExpertStore, StoreIdentity
from pseudocoreset.nets import Net, Weights, make_net
from pseudocoreset.training import SGD, RealImages, Training


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
    network = make_net(
        net, channels=data.channels, image_size=data.image_size, classes=data.classes
    )
    identity = identify(data, network, settings, seed)
    store = ExpertStore.create(out, identity)
    missing = [number for number in range(settings.num) if not store.is_whole(number)]
    if not missing:
        return store
    rng = Rng(place, seed)
    on_device = data.to(place)
    source = RealImages(on_device.train, data.normalisation)
    augmentation = Augmentation.parse(identity.dsa, data.mirror)
    training = Training(
        network, SGD(settings.lr), source, augmentation, rng.device, batch=identity.batch
    )
    total, done = settings.num * settings.epochs, (settings.num - len(missing)) * settings.epochs
    with progress.task("experts", total, done) as task:
        for number in store.claimed(missing):
            if store.is_whole(number):  # since another process wrote it
                for _ in range(settings.epochs):
                    task.advance()
                continue
            rng.reseed(seed, "expert", number)
            snapshots, losses = _train_one(
                number, network, training, len(data.train), rng, identity, task
            )
            score = accuracy(network, training.weights, on_device.test, data.normalisation)
            figures = {"train_loss": losses, "test_accuracy": score}
            store.write(number, snapshots, figures, network)
    return ExpertStore.open(out)


def identify(data: ImageData, net: Net, settings: ExpertSettings, seed: int) -> StoreIdentity:
    """What a store of such experts says of itself."""
    return StoreIdentity(
        data=data.name,
        fingerprint=data.fingerprint,
        holdout=0 if data.holdout is None else len(data.holdout),
        net=net.spec,
        channels=data.channels,
        image_size=data.image_size,
        classes=data.classes,
        epochs=settings.epochs,
        first_epoch=settings.from_epoch,
        lr=settings.lr,
        batch=min(settings.batch, len(data.train)),
        dsa=str(Augmentation.parse(settings.dsa, data.mirror)),
        half=settings.half,
        seed=seed,
    )


def _train_one(
    expert: int,
    net: Net,
    training: Training,
    images: int,
    rng: Rng,
    identity: StoreIdentity,
    task: Task,
) -> tuple[list[Weights], list[float]]:
    """One trajectory: the snapshots to keep, and the mean training loss of each epoch.

    An epoch is as many whole batches as there are; the images left over differ from one epoch to
    the next.
    """
    training.start(net.init(rng.device))
    snapshots, losses = [], []
    steps = images // identity.batch
    for epoch in range(identity.epochs + 1):
        if epoch:
            order = torch.randperm(images, generator=rng.device, device=rng.device.device)
            training.set_order(order)
            training.run(steps)
            losses.append(training.take("loss_sum") / steps)
            share_correct = training.take("correct_sum") / steps
            _refuse_divergence(expert, epoch, losses[-1], training.weights, identity)
            task.advance(loss=losses[-1], accuracy=share_correct)
        if epoch >= identity.first_epoch:
            snapshots.append(Weights(*(part.to("cpu", copy=True) for part in training.weights)))
    return snapshots, losses


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
