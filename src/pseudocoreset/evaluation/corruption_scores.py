"""Scores for each corruption and severity."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from pseudocoreset.evaluation.metrics import Scores

SCORES = ("accuracy", "nll", "ece")


def degradation(clean: float, corrupted: float) -> float:
    """(clean − corrupted) / clean, the share of the accuracy that is lost; 0 where there is none.

    Args:
        clean: accuracy on clean points
        corrupted: accuracy on corrupted ones
    """
    return (clean - corrupted) / clean if clean > 0 else 0.0


@dataclass(frozen=True)
class CorruptionRow:
    """One corruption at one severity.

    Args:
        corruption: its name
        severity: 1 to 5
        seeds: scores, one a seed
        pooled: of all seeds' samples together
    """

    corruption: str
    severity: int
    seeds: list[Scores]
    pooled: Scores


@dataclass(frozen=True)
class CorruptionScores:
    """Scores of corrupted points.

    Args:
        rows: one a corruption and severity
        clean: accuracy on the clean points, mean over seeds
        pooled_clean: accuracy of all seeds' samples together on the clean points
        source: `made`, or `official` for arrays that were read
    """

    rows: list[CorruptionRow]
    clean: float
    pooled_clean: float
    source: str

    @property
    def names(self) -> list[str]:
        """The corruptions."""
        return list(dict.fromkeys(row.corruption for row in self.rows))

    @property
    def severities(self) -> list[int]:
        """The severities."""
        return sorted({row.severity for row in self.rows})

    def mean(
        self, corruption: str | None = None, severity: int | None = None, *, pooled: bool = False
    ) -> Scores:
        """Accuracy, NLL, ECE and degradation, in the mean over seeds and over what is left out.

        Args:
            corruption: its name; default: all
            severity: 1 to 5; default: all
            pooled: of all seeds' samples together, instead of the mean over seeds
        """
        rows = [
            row
            for row in self.rows
            if corruption in (None, row.corruption) and severity in (None, row.severity)
        ]
        found = [one for row in rows for one in ([row.pooled] if pooled else row.seeds)]
        values = {name: fmean(one[name] for one in found) for name in SCORES}
        clean = self.pooled_clean if pooled else self.clean
        return Scores({**values, "degradation": degradation(clean, values["accuracy"])})

    def as_json(self) -> dict[str, Any]:
        """What the JSON of an evaluation holds."""
        return {
            "source": self.source,
            "severities": self.severities,
            "mean": self._part(),
            "by_corruption": {name: self._part(name) for name in self.names},
            "each": [
                {
                    "corruption": row.corruption,
                    "severity": row.severity,
                    **self._part(row.corruption, row.severity),
                    **{f"{name}_std": _std(row.seeds, name) for name in SCORES},
                }
                for row in self.rows
            ],
        }

    def _part(self, corruption: str | None = None, severity: int | None = None) -> dict[str, Any]:
        pooled = self.mean(corruption, severity, pooled=True)
        return {**self.mean(corruption, severity), "pooled": dict(pooled)}


def _std(seeds: Sequence[Scores], name: str) -> float:
    values = [one[name] for one in seeds]
    return stdev(values) if len(values) > 1 else 0.0
