"""Examples of test points: the most uncertain and the worst predicted."""

from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from pseudocoreset.evaluation.metrics import Predicted, PredictedNumbers

MOST = 12
"""Examples of each kind."""
MOST_FITTED = 300
"""Points of a regression whose predictions are kept."""
TOP = 3
"""Classes named for each example."""


def examples(predicted: Predicted | PredictedNumbers, most: int = MOST) -> dict[str, Any]:
    """The examples by kind, each with its index among the points, the truth and the prediction.

    Args:
        predicted: what a posterior predicts, and the truth
        most: examples of each kind
    """
    if isinstance(predicted, PredictedNumbers):
        return _numbers(predicted, most)
    probabilities, labels = predicted.probabilities, predicted.labels
    entropy = -(probabilities * predicted.log_mean.clamp(min=-100)).sum(1)
    confidence, chosen = probabilities.max(1)
    wrong = (chosen != labels).nonzero().squeeze(1)
    uncertain = entropy.argsort(descending=True, stable=True)
    confident = wrong[confidence[wrong].argsort(descending=True, stable=True)]
    return {
        "uncertain": _classes(predicted, uncertain[:most], entropy),
        "wrong": _classes(predicted, confident[:most], entropy),
    }


def _classes(
    predicted: Predicted, places: Int64[Tensor, " m"], entropy: Tensor
) -> list[dict[str, Any]]:
    found = []
    for place in places.tolist():
        row = predicted.probabilities[place]
        top = row.topk(min(TOP, len(row)))
        found.append(
            {
                "index": place,
                "truth": int(predicted.labels[place]),
                "truth_probability": float(row[predicted.labels[place]]),
                "predicted": top.indices.tolist(),
                "probabilities": top.values.tolist(),
                "entropy": float(entropy[place]),
            }
        )
    return found


def _numbers(predicted: PredictedNumbers, most: int) -> dict[str, Any]:
    """The worst predicted points, by error in standard deviations, and a share of all points."""
    away = ((predicted.mean - predicted.targets).abs() / predicted.std).amax(1)
    worst = away.argsort(descending=True, stable=True)[:most]
    total = len(predicted.targets)
    every = torch.linspace(0, total - 1, min(total, MOST_FITTED)).round().long()
    fitted = every.to(predicted.targets.device)
    return {"worst": _rows(predicted, worst), "fitted": _rows(predicted, fitted)}


def _rows(predicted: PredictedNumbers, places: Int64[Tensor, " m"]) -> list[dict[str, Any]]:
    return [
        {
            "index": place,
            "target": predicted.targets[place].tolist(),
            "mean": predicted.mean[place].tolist(),
            "std": predicted.std[place].tolist(),
        }
        for place in places.tolist()
    ]
