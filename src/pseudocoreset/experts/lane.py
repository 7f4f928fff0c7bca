"""Train experts one after another and record their snapshots."""

from collections.abc import Generator
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import Data
from pseudocoreset.engine.progress import Task
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.engine.versions import made_on
from pseudocoreset.errors import UserError
from pseudocoreset.experts.store import StoreIdentity
from pseudocoreset.likelihoods import Categorical, Gaussian, Likelihood
from pseudocoreset.nets import Net, Weights
from pseudocoreset.predictor import Predictor
from pseudocoreset.training import SGD, RealPoints, Training

FOLDS = 10
"""For regression, each expert leaves out a fraction 1/FOLDS of the points to estimate the noise."""


@dataclass(frozen=True)
class Trained:
    """The result of training an expert."""

    snapshots: list[Weights]
    figures: dict[str, Any]
    made: dict[str, Any]
    """The device and versions it was trained with."""


def training_likelihood(data: Data) -> Likelihood:
    """What experts are trained by; for regression with unit noise, which is not known yet."""
    return Gaussian(data.outputs) if data.task == "regression" else Categorical(data.classes)


def left_out(data: Data) -> int:
    """The most points that an expert leaves out."""
    return -(-len(data.train) // FOLDS) if data.task == "regression" else 0


class Lane:
    """Where experts are trained one after another, beside other lanes; its step is captured once.

    An expert's random numbers follow from its number, whichever lane it is trained in.
    """

    def __init__(
        self,
        net: Net,
        data: Data,
        predictor: Predictor,
        identity: StoreIdentity,
        device: torch.device,
    ) -> None:
        self._net = net
        self._data = data
        self._predictor = predictor
        self._identity = identity
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

    def leaves_room(self) -> bool:
        """Whether there is memory for another one, once this one has begun."""
        taken = _reserved(self._device) - self._reserved_before
        return self._device.type != "cuda" or torch.cuda.mem_get_info(self._device)[0] > 2 * taken

    def wait(self) -> None:
        """What is begun from now on waits for what this lane has begun."""
        self._side.wait()

    def train(self, number: int, task: Task) -> Generator[bool, None, Trained]:
        """Train the expert of this number; gives True when an epoch is begun and not yet done.

        An epoch is as many whole batches as there are; the points left over differ from one epoch
        to the next.
        """
        identity, training, generator = self._identity, self._training, self._rng.device
        with self._side:
            self._rng.reseed(identity.seed, "expert", number)
            training.start(self._net.init(generator))
        snapshots: list[Weights] = []
        losses: list[float] = []
        members, absent = self._members(number)
        steps = len(members) // identity.batch
        stored = torch.float16 if identity.half else torch.float32
        for epoch in range(identity.epochs + 1):
            if epoch:
                with self._side:
                    device = generator.device
                    order = torch.randperm(len(members), generator=generator, device=device)
                    training.set_order(order if absent is None else members[order])
                    training.run(steps)
                yield True
            self._side.wait()
            if epoch:
                losses.append(training.take("loss_sum") / steps)
                figure = training.take("figure_sum") / steps
                _refuse_divergence(number, epoch, losses[-1], training.weights, identity)
                task.advance(loss=losses[-1], **{self._likelihood.figure_name: figure})
            if epoch >= identity.first_epoch:
                params = training.weights.params.to("cpu", stored, copy=True)
                snapshots.append(Weights(params, training.weights.buffers.to("cpu", copy=True)))
        data, likelihood = self._data, self._likelihood
        targets = data.test.targets
        if data.target_scaling is not None:
            targets = data.target_scaling.apply(targets)
        outputs = self._predictor.outputs(training.weights)
        score = float(likelihood.progress_figure(outputs, targets))
        figures: dict[str, Any] = {"train_loss": losses, f"test_{likelihood.figure_name}": score}
        if absent is not None:
            figures["left_out_rmse"] = self._error_at(absent, training.weights)
        return Trained(snapshots, figures, made_on(self._device))

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
        same_number = len(order) - left_out(self._data)  # folds may differ by one point
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
