"""Random numbers for each image, which depend only on the seed and its index."""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from pseudocoreset.engine.random import seed_for


def generator_for(seed: int, name: str, severity: int, place: int) -> np.random.Generator:
    """The generator of one image.

    Args:
        seed: of the corrupted data set
        name: the corruption
        severity: its strength, 1 to 5
        place: of the image in its data set
    """
    key = seed_for(seed, "corruption", name, severity, place)
    return np.random.Generator(np.random.Philox(key=key))


class Draws:
    """A generator for each of n images; every draw has one row per image.

    Args:
        seed: of the corrupted data set
        name: the corruption
        severity: its strength, 1 to 5
        places: of the images in their data set
    """

    def __init__(self, seed: int, name: str, severity: int, places: Iterable[int]) -> None:
        self._each = [generator_for(seed, name, severity, place) for place in places]

    def normal(self, *shape: int) -> Float64[Tensor, "n ..."]:
        """Standard normal numbers."""
        return _stacked(rng.standard_normal(shape) for rng in self._each)

    def uniform(self, low: float, high: float, *shape: int) -> Float64[Tensor, "n ..."]:
        """Uniform numbers in [low, high)."""
        return _stacked(rng.uniform(low, high, shape) for rng in self._each)

    def integers(self, low: int, high: int, *shape: int) -> Int64[Tensor, "n ..."]:
        """Whole numbers, low ≤ k < high."""
        return _stacked(rng.integers(low, high, shape) for rng in self._each)

    def poisson(self, rates: Float64[Tensor, "n ..."]) -> Float64[Tensor, "n ..."]:
        """Poisson counts of these rates."""
        pairs = zip(self._each, rates.numpy(), strict=True)
        return _stacked(rng.poisson(rate) for rng, rate in pairs).double()


def _stacked(rows: Iterable[object]) -> Tensor:
    return torch.from_numpy(np.stack([np.asarray(row) for row in rows]))
