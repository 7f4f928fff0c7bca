"""A data set that a small network learns in a second, experts of it, and what methods need."""

from copy import copy
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import ImageData, Normalisation, Split
from pseudocoreset.divergences import Context, MethodSettings, Points
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertSettings, ExpertStore, train_experts
from pseudocoreset.nets import Weights
from pseudocoreset.recipes import recipe_for
from pseudocoreset.training import RealImages

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


def make_data(name: str = "bands", seed: int = 0) -> ImageData:
    train = make_split(20, seed)
    return ImageData(
        name,
        train,
        make_split(10, seed + 1),
        tuple(f"class {c}" for c in range(CLASSES)),
        Normalisation.measured(train.images),
        mirror=False,
    )


def make_store(folder: Path, data: ImageData, net: str = NET, epochs: int = 3) -> ExpertStore:
    """Two experts of a few epochs."""
    settings = ExpertSettings(num=2, epochs=epochs, lr=0.1, batch=20, dsa="crop,color")
    return train_experts(data, net, folder, settings, device="cpu")


def make_settings(**changes: object) -> MethodSettings:
    """Few and large steps, so that variances are not lost in rounding."""
    recipe = recipe_for("cifar10", 10)
    usual = {field.name: getattr(recipe, field.name) for field in fields(MethodSettings)} | {
        "from_epoch": 1,
        "gamma": 0.3,
        "lr_map": 0.01,
        "lr_x": 0.1,
        "lr_u": 0.04,
        "batch": 100,
        "max_map_steps": 200,
        "covariance_steps": 4,
        "samples": 5,
        "real_batch": 16,
        "start_epochs": 3,
        "student_steps": 4,
        "lr_student": 0.1,
    }
    return MethodSettings(**{**usual, **changes})


def make_context(store: ExpertStore, data: ImageData, **changes: object) -> Context:
    return Context(
        store.identity.make_net(),
        store,
        RealImages(data.train, data.normalisation),
        Augmentation.parse("crop,color", mirror=False),
        make_settings(**changes),
    )


@dataclass(frozen=True)
class DoubleImages(RealImages):
    """Real images in float64."""

    def __call__(self, state, index):
        images, labels = super().__call__(state, index)
        return images.double(), labels


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
    real = DoubleImages(context.real.split, context.real.normalisation)
    return replace(context, net=net, experts=experts, real=real)


def in_double_points(coreset: Points) -> Points:
    """The coreset in float64, classes as they are."""
    images, labels = coreset
    return Points(images.double(), labels.double() if labels.is_floating_point() else labels)


def _longer(weights: Weights) -> Weights:
    return Weights(*(part.double() for part in weights))


def make_points(data: ImageData, each: int = 2, soft: bool = False) -> Points:
    """The first images of each class; `soft` labels have 0.8 on their class."""
    images = data.normalisation.apply(data.train.images[: each * CLASSES])
    labels = data.train.labels[: each * CLASSES]
    if soft:
        one_hot = torch.nn.functional.one_hot(labels, CLASSES)
        labels = 0.7 * one_hot + torch.full((CLASSES,), 0.1)
    return Points(images, labels)


def make_rng(seed: int = 0) -> Rng:
    return Rng(torch.device("cpu"), seed, "test")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two states are equal bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
