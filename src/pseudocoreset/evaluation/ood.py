"""Detect points of other data by the uncertainty of predictions.

A score is higher where the posterior is less sure, so points of other data should score higher:
"out" is what is looked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from pseudocoreset.data import Data
from pseudocoreset.data.assemble import resize
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.corruptions.colour import luminance
from pseudocoreset.likelihoods import Categorical

MEASURES = ("entropy", "mutual_information")
RATES = ("auroc", "fpr95")


def auroc(inside: Float[Tensor, " n"], outside: Float[Tensor, " m"]) -> float:
    """The probability that a point of other data scores higher; an equal score counts half.

    It is ½ where scores tell nothing, and 1 where every point of other data scores higher than
    every one of the data's own.

    Args:
        inside: scores of the data's own points
        outside: scores of points of other data
    """
    ordered = inside.sort().values
    below = torch.searchsorted(ordered, outside, right=False)
    up_to = torch.searchsorted(ordered, outside, right=True)
    return float((below + up_to).double().mean() / (2 * len(inside)))


def fpr95(inside: Float[Tensor, " n"], outside: Float[Tensor, " m"]) -> float:
    """The share of other data's points that pass where 95 % of the data's own points pass.

    A point passes if its score is at most t, the lowest score that at least 95 % of the data's own
    points do not exceed. Lower is better.

    Args:
        inside: scores of the data's own points
        outside: scores of points of other data
    """
    count = -(-95 * len(inside) // 100)
    limit = inside.sort().values[count - 1]
    return float((outside <= limit).double().mean())


def fitting_images(other: Data, input_shape: tuple[int, ...]) -> UInt8[Tensor, "n c h w"]:
    """The other data's test images, resized, grey or in colour, as networks take them.

    Args:
        other: the other data
        input_shape: channels, height and width that networks take
    """
    if not other.is_image or len(input_shape) != 3:
        raise UserError(
            f"`ood` needs images, and {other.name} can't be converted to images.", "ood"
        )
    channels, side = input_shape[0], input_shape[-1]
    images = resize(other.test.inputs, side)
    if images.shape[1] == channels:
        return images
    if channels == 3:
        return images.expand(-1, 3, -1, -1)
    return luminance(images.double()).round().to(torch.uint8)


@dataclass(frozen=True)
class OodScores:
    """How well uncertainty tells other data's points: AUROC and FPR95 by measure.

    Args:
        data: what the other data are called
        images: how many there are
        seeds: by measure and rate, one a seed: `seeds[0]["entropy"]["auroc"]`
        pooled: of all seeds' samples together
    """

    data: str
    images: int
    seeds: list[dict[str, dict[str, float]]]
    pooled: dict[str, dict[str, float]]

    def mean(self, measure: str, rate: str) -> float:
        """The mean over seeds.

        Args:
            measure: `entropy` or `mutual_information`
            rate: `auroc` or `fpr95`
        """
        return fmean(found[measure][rate] for found in self.seeds)

    def as_json(self) -> dict[str, Any]:
        """What the JSON of an evaluation holds."""
        content: dict[str, Any] = {"data": self.data, "images": self.images}
        for measure in MEASURES:
            part = content[measure] = {}
            for rate in RATES:
                values = [found[measure][rate] for found in self.seeds]
                part[rate] = fmean(values)
                part[f"{rate}_std"] = stdev(values) if len(values) > 1 else 0.0
        return {**content, "pooled": self.pooled}


def told_apart(
    inside: Float[Tensor, "s n k"], outside: Float[Tensor, "s m k"]
) -> dict[str, dict[str, float]]:
    """AUROC and FPR95 of entropy and of mutual information.

    Args:
        inside: outputs of each sample at the data's own points
        outside: outputs of each sample at other data's points
    """
    likelihood = Categorical(inside.shape[2])
    own, other = (likelihood.predict(outputs.double()) for outputs in (inside, outside))
    rates = {"auroc": auroc, "fpr95": fpr95}
    return {
        measure: {
            name: rate(getattr(own, measure), getattr(other, measure))
            for name, rate in rates.items()
        }
        for measure in MEASURES
    }


def score_ood(
    data: str, inside: Sequence[Float[Tensor, "s n k"]], outside: Sequence[Float[Tensor, "s m k"]]
) -> OodScores:
    """Scores of several posteriors.

    Args:
        data: what the other data are called
        inside: outputs of each posterior's samples at the data's own points
        outside: the same at other data's points
    """
    seeds = [told_apart(own, other) for own, other in zip(inside, outside, strict=True)]
    pooled = told_apart(torch.cat([*inside]), torch.cat([*outside]))
    return OodScores(data, outside[0].shape[1], seeds, pooled)
