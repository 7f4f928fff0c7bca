"""How often each point of a coreset counts.

A coreset of m points stands for n training points. To count as much as they do, point i counts w_i
times, and Σ_i w_i = n:

    w_i = n / m             for regression, for balanced classes, and where n_c is not known
    w_i = n_c / m_c         for a point of class c
    w_i ∝ Σ_c p_ic n_c      for a soft label p_i

n_c are the training points of class c and m_c the coreset's. A soft label does not say for which
class its point was made; equally many are made for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.errors import UserError


@dataclass(frozen=True)
class PointWeights:
    """How often the points of a coreset count.

    Args:
        mean: how often on average (n/m)
        by_class: how often a point of each class counts (n_c/m_c); empty if all count the same
    """

    mean: float
    by_class: tuple[float, ...] = ()

    def shares(self, coreset: Pseudocoreset) -> Float[Tensor, " m"] | None:
        """w_i over the mean, for each point that networks see; None if all count the same.

        Args:
            coreset: the coreset
        """
        if not self.by_class:
            return None
        targets = coreset.seen_targets
        by_class = coreset.inputs.new_tensor([each / self.mean for each in self.by_class])
        found = targets @ by_class if targets.is_floating_point() else by_class[targets]
        if not bool(found.any()):
            raise UserError(
                "no point of the coreset is of a class that has training points: give `weight`.",
                "weight",
            )
        return found / found.mean()

    def as_json(self) -> dict[str, Any]:
        """What files say: `weight`, and `class_weights` if classes differ."""
        return {"weight": self.mean} | (
            {"class_weights": list(self.by_class)} if self.by_class else {}
        )


WeightLike = float | PointWeights
"""One number for all points, or what `full_weight` gives."""


def full_weight(coreset: Pseudocoreset) -> PointWeights:
    """With these, the coreset counts as much as the data it was made of.

    Args:
        coreset: the coreset
    """
    made = coreset.provenance
    if made.num_train is None:
        raise UserError(
            "the coreset does not store the number of training points: give `weight`, this "
            "number divided by the number of points that networks see.",
            "weight",
        )
    return weights_for(coreset, made.num_train, made.class_counts)


def weights_for(
    coreset: Pseudocoreset, num_train: int, class_counts: Sequence[int]
) -> PointWeights:
    """With these, the coreset counts as much as so many training points.

    Args:
        coreset: the coreset
        num_train: the number of training points (n)
        class_counts: those of each class (n_c); empty for regression, or if they are not known
    """
    targets, mean = coreset.seen_targets, num_train / coreset.num_seen
    if not class_counts:
        return PointWeights(mean)
    if targets.is_floating_point():
        seen = [coreset.num_seen / len(class_counts)] * len(class_counts)
    else:
        seen = targets.bincount(minlength=len(class_counts)).tolist()
    pairs = list(zip(class_counts, seen, strict=True))
    if len({n / m for n, m in pairs if m}) == 1:
        return PointWeights(mean)
    return PointWeights(mean, tuple(n / m if m else 0.0 for n, m in pairs))
