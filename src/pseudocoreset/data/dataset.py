"""The class `Data`, which every reader returns."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import isfinite
from typing import Any, Literal, TypedDict

import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor

from pseudocoreset.data.columns import Column
from pseudocoreset.errors import UserError

Task = Literal["classification", "regression"]
TASKS: tuple[Task, ...] = ("classification", "regression")


class NetShape(TypedDict):
    """The input shape and number of outputs of a network."""

    input_shape: tuple[int, ...]
    outputs: int


@cache
def _column(
    values: tuple[float, ...], device: torch.device, trailing: int
) -> Float32[Tensor, "..."]:
    """Values by channel or column, shaped to go with inputs that have `trailing` axes after it.

    They are kept, since a CUDA graph may not copy from the host.
    """
    shape = (-1, *([1] * trailing))
    return torch.tensor(values, dtype=torch.float32, device=device).view(shape)


@dataclass(frozen=True)
class Scaling:
    """(x − mean) / std, by channel for images (of pixels in [0, 1]), by column for tables.

    Args:
        mean: a number for each channel or column
        std: a number for each channel or column
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(
        self, inputs: UInt8[Tensor, "n c h w"] | Float[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """Normalise raw inputs.

        Args:
            inputs: images as bytes or as floats in [0, 1], n×c×h×w; or numbers, n×f
        """
        if inputs.dtype == torch.uint8:
            # x / 255 / std − mean / std as one multiply and one add.
            scale = tuple(1 / (255 * s) for s in self.std)
            shift = tuple(-m / s for m, s in zip(self.mean, self.std, strict=True))
            return inputs * _column(scale, inputs.device, 2) + _column(shift, inputs.device, 2)
        trailing = _trailing(inputs)
        mean, std = (_column(v, inputs.device, trailing) for v in (self.mean, self.std))
        return (inputs - mean) / std

    def invert(
        self, inputs: Float[Tensor, "..."]
    ) -> UInt8[Tensor, "n c h w"] | Float[Tensor, "..."]:
        """Undo the normalisation.

        Args:
            inputs: images, n×c×h×w, which become bytes, clipped to what a pixel can show; or
                numbers, …×f, which stay floats
        """
        trailing = _trailing(inputs)
        mean, std = (_column(v, inputs.device, trailing) for v in (self.mean, self.std))
        raw = inputs * std + mean
        return (raw * 255).round().clamp(0, 255).to(torch.uint8) if trailing else raw

    @staticmethod
    def from_json(content: Any) -> "Scaling":
        """Read what a file holds; raises ValueError on anything else.

        Args:
            content: a dictionary with `mean` and `std`
        """
        mean, std = content["mean"], content["std"]
        good = isinstance(mean, list) and isinstance(std, list) and len(mean) == len(std) > 0
        if not good or not all(type(value) in (int, float) for value in [*mean, *std]):
            raise ValueError("its scaling is damaged")
        if not all(isfinite(value) for value in mean) or not all(value > 0 for value in std):
            raise ValueError("its scaling is damaged")
        return Scaling(tuple(map(float, mean)), tuple(map(float, std)))

    @staticmethod
    def measured(inputs: UInt8[Tensor, "n c h w"] | Float[Tensor, "n f"]) -> "Scaling":
        """The mean and standard deviation of these inputs.

        Args:
            inputs: images as bytes, or numbers; a constant column gets the standard deviation 1
        """
        return _measured_images(inputs) if inputs.dtype == torch.uint8 else _measured_table(inputs)


def _trailing(inputs: Tensor) -> int:
    """The axes after the one that is scaled: height and width of images."""
    return 2 if inputs.ndim == 4 else 0


def _measured_images(images: UInt8[Tensor, "n c h w"]) -> Scaling:
    """From exact counts of the 256 values."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for channel in range(images.shape[1]):
        counts = torch.bincount(images[:, channel].reshape(-1), minlength=256).double()
        share = counts / counts.sum()
        mean = (share * values).sum()
        std = (share * (values - mean) ** 2).sum().sqrt()
        means.append(round(float(mean), 4))
        stds.append(round(max(float(std), 0.01), 4))  # an all-grey channel must not divide by 0
    return Scaling(tuple(means), tuple(stds))


def _measured_table(numbers: Float[Tensor, "n f"]) -> Scaling:
    """In float64, rounded to 9 digits, so that machines which add in other orders agree."""
    wide = numbers.double()
    constant = (wide == wide[:1]).all(0)
    std = wide.std(0, correction=0).masked_fill(constant, 1)
    return Scaling(_nine_digits(wide.mean(0).tolist()), _nine_digits(std.tolist()))


def _nine_digits(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.9g}") for value in values)


@dataclass(frozen=True, repr=False, eq=False)
class Split:
    """Inputs and their targets.

    Args:
        inputs: images as bytes, n×c×h×w, or a table's numbers, n×f
        targets: the class of each point, or numbers in their original units, n×k
    """

    inputs: UInt8[Tensor, "n c h w"] | Float32[Tensor, "n f"]
    targets: Int64[Tensor, " n"] | Float32[Tensor, "n k"]

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        return f"Split({len(self):,} {_points(self.inputs)})"

    def to(self, device: torch.device) -> "Split":
        """A copy on another device."""
        return Split(self.inputs.to(device), self.targets.to(device))

    def take(self, index: Int64[Tensor, " k"]) -> "Split":
        """The points at these positions."""
        return Split(self.inputs[index], self.targets[index])

    def class_counts(self, classes: int) -> list[int]:
        """The number of points of each class; none for regression.

        Args:
            classes: the number of classes; 0 for regression
        """
        return self.targets.bincount(minlength=classes).tolist() if classes else []


@dataclass(frozen=True, repr=False, eq=False)
class Data:
    """A data set with a training and a test split.

    Args:
        name: its name
        train: the training points, not normalised
        test: the test points
        class_names: a name for each class; empty for regression
        scaling: how inputs are normalised
        mirror: whether an image flipped left to right still shows its class (digits do not)
        holdout: the points that `hold_out` removed from the training points
        task: "classification" or "regression"
        target_scaling: how the targets of a regression are normalised
        columns: how a table's columns became inputs; see `encode_rows`
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    scaling: Scaling
    mirror: bool = True
    holdout: Split | None = None
    task: Task = field(default="classification", kw_only=True)
    target_scaling: Scaling | None = field(default=None, kw_only=True)
    columns: tuple[Column, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        regression = check_task(self.task) == "regression"
        if regression != self.train.targets.is_floating_point():
            kind = "numbers (float32, n×k)" if regression else "classes (int64, n)"
            raise UserError(f"`task` is {self.task!r}: give targets that are {kind}.", "task")
        if regression != (self.target_scaling is not None):
            word = "needs" if regression else "has no use for"
            raise UserError(f"{self.task} {word} `target_scaling`.", "target_scaling")

    def __repr__(self) -> str:
        suffix = "" if self.holdout is None else f", {len(self.holdout):,} held out"
        if self.task == "regression":
            said = f"{self.outputs} target{'' if self.outputs == 1 else 's'}"
        else:
            said = f"{self.classes} classes"
        return (
            f"Data({self.name!r}: {len(self.train):,} training and {len(self.test):,} test "
            f"{_points(self.train.inputs)}, {said}{suffix})"
        )

    @property
    def is_image(self) -> bool:
        """Whether the inputs are images rather than rows of a table."""
        return self.train.inputs.ndim == 4

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(channels, height, width) of an image, or (features,) of a row."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def outputs(self) -> int:
        """The number of classes, or of regression targets."""
        return self.train.targets.shape[1] if self.task == "regression" else self.classes

    @property
    def shape(self) -> NetShape:
        """The arguments of `make_net` for these data: `make_net(spec, **data.shape)`."""
        return {"input_shape": self.input_shape, "outputs": self.outputs}

    @property
    def classes(self) -> int:
        """The number of classes; 0 for regression."""
        return len(self.class_names)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colour."""
        self._require_images("channels")
        return self.train.inputs.shape[1]

    @property
    def image_size(self) -> int:
        """The side of the (square) images."""
        self._require_images("image_size")
        return self.train.inputs.shape[-1]

    def _require_images(self, asked: str) -> None:
        if not self.is_image:
            raise UserError(f"{self.name} is a table, and has no `{asked}`.", "data")

    @property
    def num_train(self) -> int:
        """The number of training points, including held-out ones."""
        return len(self.train) + (0 if self.holdout is None else len(self.holdout))

    @property
    def class_counts(self) -> list[int]:
        """The same of each class; none for regression."""
        counts = self.train.class_counts(self.classes)
        if self.holdout is None:
            return counts
        held = self.holdout.class_counts(self.classes)
        return [sum(pair) for pair in zip(counts, held, strict=True)]

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all splits."""
        digest = hashlib.blake2b(digest_size=16)
        for split in (self.train, self.test, self.holdout):
            if split is not None:
                for tensor in (split.inputs, split.targets):
                    digest.update(repr(tuple(tensor.shape)).encode())
                    digest.update(tensor.cpu().contiguous().numpy().data)
        digest.update(
            repr((self.class_names, self.scaling)).replace("Scaling(", "Normalisation(").encode()
        )
        if not self.is_image or self.task == "regression":
            digest.update(repr((self.task, self.target_scaling, self.columns)).encode())
        return digest.hexdigest()

    @cached_property
    def train_digest(self) -> str:
        """A digest of all training points, held-out ones included, whatever their order."""
        return _digest([self.train] if self.holdout is None else [self.train, self.holdout])

    @cached_property
    def test_digest(self) -> str:
        """A digest of the test points, whatever their order."""
        return _digest([self.test])

    def to(self, device: torch.device) -> "Data":
        """A copy on another device.

        Args:
            device: the device
        """
        holdout = None if self.holdout is None else self.holdout.to(device)
        moved = replace(
            self, train=self.train.to(device), test=self.test.to(device), holdout=holdout
        )
        return self._pass_on(moved, "fingerprint", "train_digest", "test_digest")

    def _pass_on(self, other: "Data", *names: str) -> "Data":
        """Spare data that are the same in these respects from computing them again."""
        other.__dict__.update({name: self.__dict__[name] for name in names if name in vars(self)})
        return other

    def hold_out(self, number: int, seed: int = 0) -> "Data":
        """Set aside `number` training points for choosing settings.

        Each class gives a share in proportion to its size. The choice depends only on `seed`, so
        the same number always gives the same points.

        Args:
            number: how many; each class keeps at least one point
            seed: chooses the points
        """
        if number == 0:
            return self
        if self.holdout is not None:
            raise UserError(
                f"`holdout`: {len(self.holdout)} points of {self.name} are already held out; "
                "give the whole data set.",
                "holdout",
            )
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.train), generator=generator)
        kept_out = torch.zeros(len(self.train), dtype=torch.bool)
        for members, each in self._shares_held_out(order, number):
            kept_out[members[:each]] = True
        inside = kept_out.to(self.train.targets.device)
        without = replace(
            self,
            train=self.train.take((~inside).nonzero().squeeze(1)),
            holdout=self.train.take(inside.nonzero().squeeze(1)),
        )
        return self._pass_on(without, "train_digest", "test_digest")

    def _shares_held_out(
        self, order: Int64[Tensor, " n"], number: int
    ) -> list[tuple[Int64[Tensor, " _"], int]]:
        """Points, class by class, and how many of them are to be held out."""
        if self.task == "regression":
            most, parts = len(order) - 1, [order]
        else:
            labels = self.train.targets.cpu()[order]
            parts = [order[labels == label] for label in range(self.classes)]
            most = sum(max(len(members) - 1, 0) for members in parts)
        if not 0 < number <= most:
            raise UserError(
                f"`holdout` is {number}, and {self.name} has {len(order)} training points: "
                f"give 0 to {most}.",
                "holdout",
            )
        shares = _in_proportion(number, [len(members) for members in parts])
        return list(zip(parts, shares, strict=True))


def _in_proportion(number: int, sizes: Sequence[int]) -> list[int]:
    """Shares of the sizes that add up to a number and leave at least one of each.

    Shares are rounded down; the largest remainders are then rounded up.
    """
    whole = sum(sizes)
    shares = [number * size // whole for size in sizes]
    order = sorted(range(len(sizes)), key=lambda part: -(number * sizes[part] % whole))
    while sum(shares) < number:
        for part in order:
            if sum(shares) < number and shares[part] < sizes[part] - 1:
                shares[part] += 1
    return shares


def check_task(task: str) -> Task:
    """Refuse what is no task."""
    for known in TASKS:
        if task == known:
            return known
    raise UserError(f"`task` is {task!r}: give {' or '.join(TASKS)}.", "task")


def _points(inputs: Tensor) -> str:
    """What the inputs are, in words."""
    if inputs.ndim == 4:
        return f"images of {'×'.join(map(str, inputs.shape[1:]))}"
    return f"rows of {inputs.shape[1]} input{'' if inputs.shape[1] == 1 else 's'}"


def _digest(splits: Sequence[Split]) -> str:
    """Of a multiset of points: each point's own digest, added up."""
    total = sum(_sum_of_digests(split) for split in splits) % (1 << 128)
    kinds = [
        (str(tensor.dtype), tuple(tensor.shape[1:]))
        for tensor in (splits[0].inputs, splits[0].targets)
    ]
    whole = repr((kinds, sum(len(split) for split in splits), total))
    return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


def _sum_of_digests(split: Split) -> int:
    number = len(split)
    if number == 0:
        return 0
    inputs, targets = (
        tensor.cpu().contiguous().numpy().data.cast("B") for tensor in (split.inputs, split.targets)
    )
    wide, narrow = len(inputs) // number, len(targets) // number
    total = 0
    for place in range(number):
        digest = hashlib.blake2b(inputs[place * wide : (place + 1) * wide], digest_size=16)
        digest.update(targets[place * narrow : (place + 1) * narrow])
        total += int.from_bytes(digest.digest(), "little")
    return total
