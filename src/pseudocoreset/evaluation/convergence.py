"""Do chains agree? Rank-normalised split R̂ and bulk effective sample size (Vehtari et al. 2021).

R̂ near 1: chains, and halves of chains, predict alike. Above 1.1 they do not. The effective sample
size is the number of independent draws that would tell the mean as well.

R̂ of a few draws is large by chance: of 4 chains of 10 independent draws it is above 1.1 for 15 % of
the quantities. So the share above 1.1 is given beside the share of independent draws.
"""

from collections.abc import Sequence
from functools import cache
from math import ceil, isfinite, log10
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.evaluation.metrics import Predicted, PredictedNumbers
from pseudocoreset.posterior import Posterior

LIMIT = 1.1
"""R̂ above which chains are said to disagree."""
MOST_POINTS = 200
FEWEST_DRAWS = 4
"""Of a chain, so that each half has two."""
SIMULATED = 2000
MOST_SIMULATED = 100
"""Draws of all chains. With more of them, R̂ of independent draws is hardly ever above the limit."""
MORE, TIMES_CHANCE = 0.05, 1.5
"""There is a warning if R̂ is above the limit for a share of more than MORE + TIMES_CHANCE · the
share by chance. Predictions of the same networks go together, so the share by chance varies."""


def r_hat(draws: Float[Tensor, "c i q"]) -> Float[Tensor, " q"]:
    """The larger of R̂ of ranks and of ranks of the distance from the median; NaN where all draws
    are the same.

    Args:
        draws: chains × draws × quantities
    """
    halves = _halves(draws)
    ordered = halves.flatten(0, 1).sort(0).values
    # Two draws beside the median tie but for rounding: the mean of the two is ArviZ's rounding.
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return torch.maximum(_r_hat(_ranked(halves)), _r_hat(_ranked((halves - middle).abs())))


def effective_size(draws: Float[Tensor, "c i q"]) -> Float[Tensor, " q"]:
    """The bulk effective sample size; NaN where all draws are the same.

    Args:
        draws: chains × draws × quantities
    """
    ranked = _ranked(_halves(draws))
    chains, length, _ = ranked.shape
    away = ranked - ranked.mean(1, keepdim=True)
    shifted = [(away[:, : length - t] * away[:, t:]).sum(1) / length for t in range(length)]
    covariance = torch.stack(shifted).mean(1)  # mean over chains; lag × quantity
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + ranked.mean(1).var(0)
    correlation = 1 - (within - covariance) / total
    correlation[0] = torch.where(total > 0, 1.0, torch.nan)
    sizes = [chains * length / _time(lags, chains * length) for lags in correlation.T.tolist()]
    return draws.new_tensor(sizes)


@cache
def share_by_chance(chains: int, draws: int) -> float:
    """How often R̂ is above the limit although all draws are independent, by simulation.

    Args:
        chains: how many there are
        draws: of each
    """
    if chains * draws > MOST_SIMULATED:
        return 0.0
    generator = torch.Generator().manual_seed(0)
    made = torch.randn(chains, draws, SIMULATED, generator=generator, dtype=torch.float64)
    return float((r_hat(made) > LIMIT).double().mean())


def _halves(draws: Float[Tensor, "c i q"]) -> Float[Tensor, "d h q"]:
    half = draws.shape[1] // 2
    return torch.cat([draws[:, :half], draws[:, -half:]])


def _ranked(draws: Float[Tensor, "c i q"]) -> Float[Tensor, "c i q"]:
    """Normal scores of the ranks over all chains; the same values share their mean rank."""
    values = draws.flatten(0, 1).T.contiguous()
    ordered = values.sort(1).values
    below, up_to = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    ranks = (below + 1 + up_to).to(draws.dtype) / 2
    scores: Tensor = torch.special.ndtri((ranks - 0.375) / (values.shape[1] + 0.25))
    return scores.T.reshape(draws.shape)


def _r_hat(draws: Float[Tensor, "c i q"]) -> Float[Tensor, " q"]:
    length = draws.shape[1]
    within, between = draws.var(1).mean(0), draws.mean(1).var(0)
    return ((between / within) + (length - 1) / length).sqrt()


def _time(lags: list[float], number: int) -> float:
    """How many draws are worth one: Geyer's initial monotone sequence, as ArviZ sums it.

    Args:
        lags: autocorrelations
        number: of draws
    """
    last, sums = lags[0], lags[0] + lags[1]
    pairs = [(lags[0], lags[1])]
    for lag in range(2, len(lags) - 2, 2):
        if sums <= 0:
            break
        last, sums = lags[lag], lags[lag] + lags[lag + 1]
        pairs.append((last, lags[lag + 1]))
    kept, lowest = [], float("inf")
    for even, odd in pairs[:-1]:
        lowest = min(lowest, even + odd)
        kept.append(lowest)
    time = -1 + 2 * sum(kept) + (last if last > 0 or sums >= 0 else 0.0)
    return max(time, 1 / log10(number)) if isfinite(lags[0]) else float("nan")


def convergence(
    posteriors: Sequence[Posterior], found: Predicted | PredictedNumbers
) -> dict[str, Any] | None:
    """What chains of all posteriors together say of one another; None where chains are too short,
    as the single networks of an ensemble are.

    A prediction is the probability of the true class, or the predicted number, at the first points.

    Args:
        posteriors: of one coreset, chains of the same length
        found: what all samples predict, one posterior after another
    """
    chains = sum(each.chains for each in posteriors)
    lengths = {len(each) // each.chains for each in posteriors}
    length = lengths.pop()
    if lengths or length < FEWEST_DRAWS:
        return None
    values = _values(found)
    draws = values.reshape(chains, length, -1).double().cpu()
    hats, sizes = r_hat(draws), effective_size(draws)
    known = hats.isfinite()
    if not bool(known.any()):
        return None
    places = known.nonzero()[:, 0][hats[known].argsort()]
    shown = {"median": places[(len(places) - 1) // 2], "worst": places[-1]}
    share = float((hats[known] > LIMIT).double().mean())
    by_chance = share_by_chance(chains, length)
    return {
        "chains": chains,
        "draws": length,
        "points": values.shape[1],
        "quantities": int(known.sum()),
        "r_hat": {
            "median": median(hats[known].tolist()),
            "largest": float(hats[known].max()),
            "share_above_1.1": share,
            "share_by_chance": by_chance,
        },
        "effective_size": {
            "median": median(sizes[known].tolist()),
            "smallest": float(sizes[known].min()),
        },
        "loss": _of_losses(posteriors, length),
        "traces": {name: draws[:, :, place].tolist() for name, place in shown.items()},
        "warning": warning_of(share, by_chance, chains),
    }


def warning_of(share: float, by_chance: float, chains: int) -> str:
    """A warning where chains disagree; empty where they agree.

    Args:
        share: of predictions with an R̂ above the limit
        by_chance: the same of independent draws
        chains: how many there are
    """
    if share <= MORE + TIMES_CHANCE * by_chance:
        return ""
    who = f"The {chains} chains do not agree" if chains > 1 else "The chain has not settled"
    beside = f" (of independent draws, {by_chance:.0%})" if by_chance >= 0.005 else ""
    return (
        f"{who}: R̂ is above {LIMIT} for {share:.0%} of the predictions{beside}. The samples do "
        "not represent one posterior. Averaged predictions may still be good, but the spread of "
        "the samples does not measure the posterior's uncertainty."
    )


def _values(found: Predicted | PredictedNumbers) -> Float[Tensor, "s n k"]:
    if isinstance(found, PredictedNumbers):
        return found.samples[:, :MOST_POINTS]
    labels = found.labels[:MOST_POINTS]
    logs = found.log_samples[:, :MOST_POINTS]
    return logs.gather(2, labels[None, :, None].expand(len(logs), -1, 1)).exp()


def _of_losses(posteriors: Sequence[Posterior], length: int) -> dict[str, float | None] | None:
    """R̂ and effective size of the training loss after the first sample."""
    traces = [trace for each in posteriors for trace in each.details["loss_trace"]]
    try:
        losses = torch.tensor(traces, dtype=torch.float64)
    except (TypeError, ValueError):  # of other lengths, or no numbers: a file may say anything
        return None
    if losses.ndim != 2 or not bool(losses.isfinite().all()):
        return None
    losses = losses[:, ceil(losses.shape[1] / length) :, None]
    if losses.shape[1] < FEWEST_DRAWS:
        return None
    hat, size = float(r_hat(losses)), float(effective_size(losses))
    return {"r_hat": hat, "effective_size": size} if isfinite(hat) else None
