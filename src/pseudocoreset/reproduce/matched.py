"""Real points that give the same accuracy as a coreset: the control of its distances."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

MATCHED = ("agreement", "total_variation", "kl")
"""The distances that are also given for real points of the same accuracy."""


def at_accuracy(
    accuracy: float, real: Sequence[tuple[float, Mapping[str, Any]]]
) -> dict[str, float] | None:
    """Distances of real points with this accuracy, interpolated between the two nearest sizes.

    None if the accuracy is not between those of two sizes.

    Args:
        accuracy: of a coreset's posterior
        real: accuracy and distances of real points, by their number
    """
    for (low, near), (high, far) in pairwise(real):
        if low <= accuracy <= high and low < high:
            share = (accuracy - low) / (high - low)
            return {name: (1 - share) * near[name] + share * far[name] for name in MATCHED}
    return None
