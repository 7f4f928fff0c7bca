"""Ours beside the paper's: better, within noise, or missed."""

from math import hypot

from pseudocoreset.reproduce.paper import Figure
from pseudocoreset.reproduce.stored import Measured

BETTER, NOISE, MISSED = "better", "within noise", "missed"
_WORST_FIRST = (MISSED, NOISE, BETTER)


def verdict(ours: Figure, theirs: Figure, higher_is_better: bool) -> str:
    """Whether our mean is better than theirs by more than the noise, worse by more, or neither.

    The noise is √(s² + s'²) of the two standard deviations: for five seeds each, about twice the
    standard error of the difference of the means.
    """
    gain = ours.mean - theirs.mean if higher_is_better else theirs.mean - ours.mean
    noise = hypot(ours.std, theirs.std)
    if abs(gain) <= noise:
        return NOISE
    return BETTER if gain > 0 else MISSED


def nll_verdict(measured: Measured, theirs: Figure) -> str:
    """The worse of the verdicts on both definitions of the NLL; says so where only one is met."""
    ours, kim = (
        verdict(measured.score(name), theirs, higher_is_better=False) for name in ("nll", "nll_kim")
    )
    worse = min(ours, kim, key=_WORST_FIRST.index)
    if worse == MISSED and ours != kim:
        return f"{MISSED} (only {'our' if kim == MISSED else 'Kim et al.’s'} NLL meets it)"
    return worse


def signed(difference: float, digits: int) -> str:
    """A difference with its sign."""
    return f"{difference:+.{digits}f}".replace("-", "−")


def accuracy_difference(measured: Measured, theirs: Figure) -> str:
    """By how many points of accuracy we differ, and what to think of it."""
    ours = measured.score("accuracy")
    return f"{signed(ours.mean - theirs.mean, 2)} {verdict(ours, theirs, higher_is_better=True)}"


def nll_difference(measured: Measured, theirs: Figure) -> str:
    """By how much both our NLLs differ from theirs, and what to think of it."""
    differences = (measured.score(name).mean - theirs.mean for name in ("nll", "nll_kim"))
    return f"{' / '.join(signed(d, 2) for d in differences)} {nll_verdict(measured, theirs)}"
