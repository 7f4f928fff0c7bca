"""The options of `evaluate` for corrupted images and other data, and their output."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pseudocoreset.cli.arguments import Arguments
from pseudocoreset.data import load_data
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.corruption_scores import SCORES, CorruptionScores
from pseudocoreset.evaluation.evaluate import Evaluation
from pseudocoreset.evaluation.ood import MEASURES, RATES, OodScores


@dataclass(frozen=True)
class ShiftOptions(Options):
    """Options for corrupted images and other data."""

    corruptions: str | None = option(
        None,
        "also score corrupted images: all (the 19 of CIFAR-10-C), paper (the paper's ten), or "
        "names separated by commas, such as fog,snow",
    )
    severity: str = option("1-5", "severities of the corruptions, such as 3, 1,3,5 or 1-5")
    corruptions_dir: str | None = option(
        None, "read the official arrays (fog.npy, …, labels.npy) in this folder instead"
    )
    ood: str | None = option(
        None,
        "also measure how well uncertainty (entropy, mutual information) detects the test images "
        "of these data, a spec as for --data: AUROC (higher is better) and FPR95 (lower is better)",
    )


def shifts_of(arguments: Arguments) -> dict[str, Any]:
    """The options as arguments of `evaluate`.

    Args:
        arguments: what a user gave
    """
    options = arguments.pick(ShiftOptions)
    for name in ("severity", "corruptions_dir"):
        if arguments.has(name) and options.corruptions is None:
            raise UserError(f"`{name}` has no effect without `corruptions`.", name)
    return {
        "corruptions": options.corruptions,
        "severities": _severities(options.severity),
        "corruptions_dir": options.corruptions_dir,
        "ood": None if options.ood is None else _other_data(options.ood),
    }


def _other_data(spec: str) -> Any:
    try:
        return load_data(spec)
    except UserError as error:  # it speaks of `data`, which is another option here
        raise UserError(str(error).replace("`data`", "`ood`"), "ood") from None


def _severities(text: str) -> list[int]:
    """1-5, 3 or 1,3,5 as numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end in ("1", "2", "3", "4", "5") for end in ends) or ends[0] > ends[1]:
            raise UserError(
                f"`severity` is {printable(text)}: give numbers from 1 to 5, such as 3, 1,3,5 or "
                "1-5.",
                "severity",
            )
        found += range(int(ends[0]), int(ends[1]) + 1)
    return found


def shift_lines(evaluation: Evaluation) -> Iterator[str]:
    """The lines to print.

    Args:
        evaluation: the scores
    """
    if evaluation.corruptions is not None:
        yield from _corruption_lines(evaluation.corruptions, len(evaluation.seeds) > 1)
    if evaluation.ood is not None:
        yield from _ood_lines(evaluation.ood, len(evaluation.seeds) > 1)


def _corruption_lines(found: CorruptionScores, several: bool) -> Iterator[str]:
    columns = (*SCORES, "degradation")
    yield f"{'corruption':18}{'severity':>10}" + "".join(f"{name:>13}" for name in columns)
    for name in found.names:
        for severity in found.severities:
            yield _row(name, str(severity), found.mean(name, severity))
        if len(found.severities) > 1:
            yield _row(name, "mean", found.mean(name))
    yield _row("all in the mean", "", found.mean())
    if several:
        yield _row("pooled", "", found.mean(pooled=True))


def _row(name: str, severity: str, values: Any) -> str:
    return f"{name:18}{severity:>10}" + "".join(f"{value:13.4f}" for value in values.values())


def _ood_lines(found: OodScores, several: bool) -> Iterator[str]:
    yield f"against the {found.images:,} test images of {printable(found.data)}"
    for measure in MEASURES:
        parts = [f"{rate} {found.mean(measure, rate):.4f}" for rate in RATES]
        if several:
            parts += [f"pooled {rate} {found.pooled[measure][rate]:.4f}" for rate in RATES]
        yield f"{measure.replace('_', ' '):20}{', '.join(parts)}"
