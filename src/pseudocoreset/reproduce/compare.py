"""Compare our figures with the paper's: better, within noise, or missed."""

from math import hypot

from pseudocoreset.reproduce.paper import Figure
from pseudocoreset.reproduce.stored import Measured

BETTER, NOISE, MISSED = "better", "within noise", "missed"
ONE_SEED = "one seed"
"""Instead of a verdict: the noise of one seed is not known."""
_WORST_FIRST = (MISSED, NOISE, BETTER, ONE_SEED)


def verdict(ours: Figure, theirs: Figure, higher_is_better: bool) -> str:
    """Whether our mean is better than theirs by more than the noise, worse by more, or neither.

    The noise is √(s² + s'²) of the two standard deviations: for five seeds each, about twice the
    standard error of the difference of the means.
    """
    if ours.std is None or theirs.std is None:
        return ONE_SEED
    gain = ours.mean - theirs.mean if higher_is_better else theirs.mean - ours.mean
    noise = hypot(ours.std, theirs.std)
    if abs(gain) <= noise:
        return NOISE
    return BETTER if gain > 0 else MISSED


def nll_verdict(measured: Measured, theirs: Figure) -> str:
    """The worse of the verdicts on both definitions of the NLL; says so where only one is met."""
    worse = min(
        (
            verdict(measured.score(name), theirs, higher_is_better=False)
            for name in ("nll", "nll_kim")
        ),
        key=_WORST_FIRST.index,
    )
    only_one = only_one_meets(measured, theirs.mean)
    return f"{worse} ({only_one})" if only_one else worse


def only_one_meets(measured: Measured, nll: float) -> str:
    """Which definition's NLL is so small where the other's is not, in words; else nothing."""
    ours, kim = (measured.score(name).mean <= nll for name in ("nll", "nll_kim"))
    return "" if ours == kim else f"only {'our' if ours else 'Kim et al.’s'} NLL meets it"


def signed(difference: float, digits: int) -> str:
    """A difference with its sign."""
    return f"{difference:+.{digits}f}".replace("-", "−")


def accuracy_difference(measured: Measured, theirs: Figure) -> str:
    """The difference of accuracies in points, with a verdict."""
    ours = measured.score("accuracy")
    return f"{signed(ours.mean - theirs.mean, 2)} {verdict(ours, theirs, higher_is_better=True)}"


def nll_difference(measured: Measured, theirs: Figure) -> str:
    """The differences of both NLLs, with a verdict."""
    differences = (measured.score(name).mean - theirs.mean for name in ("nll", "nll_kim"))
    return f"{' / '.join(signed(d, 2) for d in differences)} {nll_verdict(measured, theirs)}"
