"""A data set that a small network learns in a second, experts of it, and what methods need."""

from copy import copy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import Data, Scaling, Split
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertOptions, ExpertStore, train_experts
from pseudocoreset.likelihoods import Categorical, Gaussian
from pseudocoreset.methods import Context, Method, Points, method_class
from pseudocoreset.nets import Weights
from pseudocoreset.training import RealPoints

CLASSES = 3
SIZE = 8
NET = "convnet:depth=2,width=8"


def make_split(each: int, seed: int) -> Split:
    """Class c shows a bright band of rows, the c-th of three, under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat(each)
    images = torch.randint(0, 120, (len(labels), 1, SIZE, SIZE), generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, 2 * label + 1 : 2 * label + 3] += 100
    return Split(images.to(torch.uint8), labels)


def make_data(name: str = "bands", seed: int = 0) -> Data:
    train = make_split(20, seed)
    return Data(
        name,
        train,
        make_split(10, seed + 1),
        tuple(f"class {c}" for c in range(CLASSES)),
        Scaling.measured(train.inputs),
        mirror=False,
    )


def make_table(each: int = 60, seed: int = 0) -> Data:
    """Two numbers a point that are smooth functions of three columns, under noise."""
    generator = torch.Generator().manual_seed(seed)

    def split(number: int) -> Split:
        inputs = torch.randn(number, 3, generator=generator) * torch.tensor([2.0, 1.0, 0.5]) + 1
        clean = torch.stack([inputs[:, 0] + inputs[:, 1], inputs[:, 1] * inputs[:, 2]], 1)
        noise = torch.randn(number, 2, generator=generator)
        return Split(inputs, 10 + 5 * clean + noise)

    train = split(each)
    return Data(
        "waves",
        train,
        split(each // 2),
        (),
        Scaling.measured(train.inputs),
        task="regression",
        target_scaling=Scaling.measured(train.targets),
    )


def make_store(folder: Path, data: Data, net: str = NET, epochs: int = 3) -> ExpertStore:
    """Two experts of a few epochs."""
    dsa = "crop,color" if data.is_image else "off"
    options = ExpertOptions(num=2, epochs=epochs, lr=0.1, batch=20, dsa=dsa)
    return train_experts(data, net, folder, options, device="cpu", progress=False)


SMALL = {
    "from_epoch": 1,
    "gamma": 0.3,
    "lr_map": 0.01,
    "lr_x": 0.1,
    "lr_u": 0.04,
    "max_map_steps": 200,
    "covariance_steps": 4,
    "samples": 5,
    "real_batch": 16,
    "start_epochs": 3,
    "student_steps": 4,
    "lr_student": 0.1,
    "window": 3,
    "networks": 2,
    "pool": 3,
    "longest": 9,
    "inner_step": 0.1,
    "lr_pool": 0.01,
    "chains": 2,
    "chain_steps": 3,
    "warm_up": 4,
    "lr_chains": 0.1,
}
"""Few and large steps, so that variances are not lost in rounding."""


def make_method(kind: str | type[Method], **changes: Any) -> Method:
    """A method with small values; names in `changes` that are no option of it raise."""
    kind = method_class(kind) if isinstance(kind, str) else kind
    own = {field.name for field in fields(kind)}
    return kind(**{**{name: SMALL[name] for name in SMALL if name in own}, **changes})


def make_context(store: ExpertStore, data: Data, batch: int = 100) -> Context:
    """What a method is prepared for: the store's network on these data."""
    classes = data.task == "classification"
    return Context(
        store.make_net(),
        store,
        RealPoints(data.train, data.scaling, data.target_scaling),
        Augmentation.parse("crop,color" if data.is_image else "off", mirror=False),
        Categorical(data.classes) if classes else Gaussian(data.outputs, noise=0.3),
        batch,
    )


@dataclass(frozen=True)
class DoublePoints(RealPoints):
    """Real points in float64, classes as they are."""

    def __call__(self, state, index):
        inputs, targets = super().__call__(state, index)
        return inputs.double(), _longer_targets(targets)


def in_double(context: Context) -> Context:
    """The same method in float64: what is drawn and read in float32 is made longer."""
    net = copy(context.net)
    experts = copy(context.experts)
    net._buffers = copy(net._buffers)
    net._buffers.dtypes = tuple(
        torch.float64 if dtype.is_floating_point else dtype for dtype in net._buffers.dtypes
    )
    net.init = lambda generator: _longer(context.net.init(generator))
    experts.draw = lambda *arguments: _longer(context.experts.draw(*arguments))
    experts.snapshot = lambda *arguments: _longer(context.experts.snapshot(*arguments))
    real = DoublePoints(context.real.split, context.real.scaling, context.real.target_scaling)
    return replace(context, net=net, experts=experts, real=real)


def in_double_points(coreset: Points) -> Points:
    """The coreset in float64, classes as they are."""
    return Points(coreset.inputs.double(), _longer_targets(coreset.targets))


def _longer_targets(targets: Tensor) -> Tensor:
    return targets.double() if targets.is_floating_point() else targets


def _longer(weights: Weights) -> Weights:
    return Weights(*(part.double() for part in weights))


def make_points(data: Data, each: int = 2, soft: bool = False) -> Points:
    """The first points of each class; `soft` labels have 0.8 on their class. Or `each` numbers."""
    if data.task == "regression":
        number = 3 * each
        targets = data.target_scaling.apply(data.train.targets[:number])
        return Points(data.scaling.apply(data.train.inputs[:number]), targets)
    images = data.scaling.apply(data.train.inputs[: each * CLASSES])
    labels = data.train.targets[: each * CLASSES]
    if soft:
        one_hot = torch.nn.functional.one_hot(labels, CLASSES)
        labels = 0.7 * one_hot + torch.full((CLASSES,), 0.1)
    return Points(images, labels)


def make_rng(seed: int = 0) -> Rng:
    return Rng(torch.device("cpu"), seed, "test")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two states are equal bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
