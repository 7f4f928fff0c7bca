"""The precision of numbers in a coreset's file.

    full    float32
    half    float16, probabilities among the targets too
    byte    inputs as 0 … 255, linear between the lowest and the highest value of their channel over
            the set; probabilities as float16

Probabilities in float16 do not sum to 1: what is read is divided by its sum.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor

from pseudocoreset.engine.text import did_you_mean, printable
from pseudocoreset.errors import UserError

BYTES = {"full": 4, "half": 2, "byte": 1}
"""Bytes of an input's number, by precision."""
LEVELS = 255


class Levels(NamedTuple):
    """What the bytes of each channel mean: offset + scale · byte."""

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    @staticmethod
    def of(inputs: Float[Tensor, "m c ..."]) -> "Levels":
        """From the lowest to the highest value of each channel."""
        channels = inputs.double().transpose(0, 1).flatten(1)
        lowest, highest = channels.amin(1), channels.amax(1)
        return Levels(tuple(lowest.tolist()), tuple(((highest - lowest) / LEVELS).tolist()))

    @staticmethod
    def from_json(content: Any, channels: int) -> "Levels":
        """Read what a file says; raises ValueError or TypeError on anything else."""
        if not isinstance(content, dict) or content.keys() != {"offset", "scale"}:
            raise TypeError("its levels are damaged")
        levels = Levels(*(tuple(map(float, content[name])) for name in Levels._fields))
        if {len(part) for part in levels} != {channels} or min(levels.scale) < 0:
            raise ValueError("its levels are damaged")
        return levels

    def encode(self, inputs: Float[Tensor, "m c ..."]) -> UInt8[Tensor, "m c ..."]:
        """The nearest bytes."""
        offset, scale = self._columns(inputs)
        steps = (inputs.double() - offset) / torch.where(scale > 0, scale, 1.0)
        return steps.round().clamp(0, LEVELS).to(torch.uint8)

    def decode(self, stored: UInt8[Tensor, "m c ..."]) -> Float[Tensor, "m c ..."]:
        """What the bytes mean."""
        offset, scale = self._columns(stored)
        return (offset + scale * stored.double()).float()

    def _columns(self, like: Shaped[Tensor, "m c ..."]) -> tuple[Tensor, Tensor]:
        shape = (-1, *[1] * (like.ndim - 2))
        offset, scale = (torch.tensor(part, dtype=torch.float64).view(shape) for part in self)
        return offset.to(like.device), scale.to(like.device)


class Packed(NamedTuple):
    """A coreset's tensors as a file has them, and what its bytes mean."""

    inputs: Shaped[Tensor, "m ..."]
    targets: Shaped[Tensor, "n ..."]
    levels: Levels | None = None

    @staticmethod
    def of(
        inputs: Float[Tensor, "m ..."], targets: Shaped[Tensor, "n ..."], soft: bool, precision: str
    ) -> "Packed":
        """Rounded to a precision; `soft` targets are probabilities."""
        if precision == "full":
            return Packed(inputs, targets)
        narrow = packed_probabilities(targets) if soft else targets
        if precision == "half":
            return Packed(inputs.half(), narrow)
        levels = Levels.of(inputs)
        return Packed(levels.encode(inputs), narrow, levels)

    @staticmethod
    def read(
        inputs: Shaped[Tensor, "m ..."], targets: Shaped[Tensor, "n ..."], metadata: dict[str, Any]
    ) -> "Packed":
        """From a file; raises KeyError, TypeError or ValueError for bytes of unknown meaning."""
        if inputs.dtype != torch.uint8:
            return Packed(inputs, targets)
        return Packed(inputs, targets, Levels.from_json(metadata["levels"], inputs.shape[1]))

    @property
    def precision(self) -> str:
        """full, half or byte."""
        return {torch.float16: "half", torch.uint8: "byte"}.get(self.inputs.dtype, "full")

    def unpacked(self, soft: bool) -> tuple[Float[Tensor, "m ..."], Shaped[Tensor, "n ..."]]:
        """Inputs and targets in float32, classes as they are; raises ValueError for damage."""
        inputs, targets = self.inputs, self.targets
        inputs = inputs.float() if self.levels is None else self.levels.decode(inputs)
        if soft and targets.dtype == torch.float16:
            if targets.ndim != 2 or not bool(((targets.float().sum(1) - 1).abs() < 1e-2).all()):
                raise ValueError("its targets are no probabilities")
            targets = normalised(targets)
        return inputs, targets.float() if targets.is_floating_point() else targets


def check_precision(precision: str) -> str:
    """Refuse what is no precision.

    Args:
        precision: full, half or byte
    """
    if precision not in BYTES:
        hint = did_you_mean(str(precision), BYTES)
        raise UserError(
            f"`precision` is {printable(precision)}{hint}: give {', '.join(BYTES)}.", "precision"
        )
    return precision


def packed_probabilities(targets: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Probabilities in float16 whose rows sum to 1 as nearly as float16 can say.

    What a sum lacks is added to the largest number that can hold it. So division by the sum moves
    no number to its neighbour, and what was read is packed to the same again.

    Args:
        targets: a row of probabilities a point
    """
    packed = targets.half()
    for place in targets.argsort(dim=1, descending=True, stable=True).unbind(1):
        column = place[:, None]
        lacking = 1 - packed.double().sum(1, keepdim=True)
        mended = (packed.double().gather(1, column) + lacking).clamp(min=0).half()
        packed = packed.scatter(1, column, mended)
    return packed


def normalised(shares: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Rows that sum to 1.

    Args:
        shares: numbers from 0, as float16 holds them
    """
    exact = shares.double()
    return (exact / exact.sum(1, keepdim=True)).float()
