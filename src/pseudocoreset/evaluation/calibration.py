"""The temperature T of the predictive distribution: p_k^(1/T) / Σ_j p_j^(1/T).

T > 1 makes predictions less sure, T < 1 more; which class is most probable stays the same. Fit it
on held-out points, and score the test points with it.
"""

from math import exp, log

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pseudocoreset.evaluation.metrics import Predicted, PredictedNumbers, Scores, scores

CALIBRATED = ("accuracy", "nll", "ece", "brier")
"""Scores of the predictive distribution alone, which a temperature can be given to."""
LOWEST, HIGHEST = 0.05, 20.0
"""Temperatures are searched for between these."""
HALVINGS = 50


def tempered(log_mean: Float[Tensor, "n k"], temperature: float) -> Float[Tensor, "n k"]:
    """log of p^(1/T), made to sum to 1.

    Args:
        log_mean: log of the averaged probabilities
        temperature: T
    """
    return (log_mean / temperature).log_softmax(1)


def fitted_temperature(log_mean: Float[Tensor, "n k"], labels: Int64[Tensor, " n"]) -> float:
    """The T with the lowest NLL, from `LOWEST` to `HIGHEST`.

    With β = 1/T the NLL of a point is −β log p_y + log Σ_k p_k^β, a convex function. Its slope is
    the mean of Σ_k q_k log p_k − log p_y under the tempered q; where that changes its sign is found
    by halving on log β.

    Args:
        log_mean: log of the averaged probabilities
        labels: the true classes
    """
    own = log_mean.gather(1, labels[:, None]).mean()
    low, high = -log(HIGHEST), -log(LOWEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        shares = tempered(log_mean, exp(-middle)).exp()
        # A probability that is 0 in floats has a share of 0: their product is 0, not NaN.
        expected = torch.where(shares > 0, shares * log_mean, 0).sum(1).mean()
        if expected < own:  # the NLL still falls as β grows
            low = middle
        else:
            high = middle
    return exp(-(low + high) / 2)


def calibrated(
    predicted: Predicted | PredictedNumbers, temperature: float | None
) -> tuple[float | None, Scores]:
    """The best temperature for these points, and their scores at the one that was given.

    Args:
        predicted: what is predicted, and the truth
        temperature: the one that was given, if one was
    """
    if not isinstance(predicted, Predicted):
        return None, Scores({})
    best = fitted_temperature(predicted.log_mean, predicted.labels)
    if temperature is None:
        return best, Scores({})
    at = Predicted(tempered(predicted.log_mean, temperature)[None], predicted.labels)
    found = scores(at)
    named = {name: found[name] for name in CALIBRATED}
    return best, Scores({"temperature": float(temperature), **named})
