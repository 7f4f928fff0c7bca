"""The trials of a search on disk, `trials.json`. A stopped search resumes from this file.

The file is written whole before a trial begins and after it has ended, so that a search that is
killed loses the trials under way, which run again with the same settings, and nothing else.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any

from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.options import has_type
from pseudocoreset.engine.parse import read_json
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

RUNNING, FINISHED, PRUNED, FAILED = "running", "finished", "pruned", "failed"
STATES = (RUNNING, FINISHED, PRUNED, FAILED)


@dataclass(frozen=True)
class Trial:
    """One trial: its settings, and its scores on held-out points."""

    number: int
    settings: dict[str, Any]
    """What was searched, by option."""
    state: str = RUNNING
    nll: float | None = None
    early_nll: float | None = None
    """After a part of the updates."""
    scores: dict[str, float] = field(default_factory=dict)
    failed: str | None = None
    """Why there are no scores."""
    seconds: float = 0.0
    made_with: dict[str, Any] = field(default_factory=dict)
    """Device and versions."""

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for what a file may say and no trial is."""
        for name in ("number", "nll", "early_nll", "failed", "seconds"):
            hint = Trial.__annotations__[name]
            if not has_type(getattr(self, name), hint):
                raise TypeError(f"{name} is {printable(repr(getattr(self, name)))}")
        if not isinstance(self.settings, dict):
            raise TypeError(f"settings is {printable(repr(self.settings))}")
        if self.state not in STATES or self.number < 0:
            raise ValueError(f"there is a trial {self.number} that is {printable(self.state)}")
        numbers = (self.nll, self.early_nll, self.seconds)
        if (self.state == FINISHED) != (self.nll is not None):
            raise ValueError(f"trial {self.number} is {self.state} and its NLL is {self.nll}")
        if not all(isfinite(number) for number in numbers if number is not None):
            raise ValueError(f"trial {self.number} has a score that is not finite")


class Trials:
    """All trials of a search, by number; each change is on disk before it counts.

    Args:
        path: the file
        facts: what the file says besides: seeds, versions, protocol
    """

    def __init__(self, path: Path, facts: dict[str, Any] | None = None) -> None:
        self._path = path
        self._facts = facts or {}
        self._trials = {trial.number: trial for trial in _read(path)}

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.all())

    def all(self) -> list[Trial]:
        """In the order of their numbers."""
        return [self._trials[number] for number in sorted(self._trials)]

    def in_state(self, state: str) -> list[Trial]:
        """Those in this state.

        Args:
            state: one of STATES
        """
        return [trial for trial in self.all() if trial.state == state]

    def put(self, trial: Trial) -> None:
        """Add a trial, or what is known of it now.

        Args:
            trial: the trial
        """
        self._trials[trial.number] = trial
        rows = [asdict(each) for each in self.all()]
        write_json(self._path, {**self._facts, "trials": rows})

    def best(self) -> Trial | None:
        """The finished one with the lowest NLL; the first of several."""
        done = self.in_state(FINISHED)
        return min(done, key=lambda trial: trial.nll or 0.0) if done else None


def _read(path: Path) -> list[Trial]:
    if not path.exists():
        return []
    names = {each.name for each in fields(Trial)}
    try:
        content = read_json(path)
        rows = [{k: v for k, v in row.items() if k in names} for row in content["trials"]]
        found = [Trial(**row) for row in rows]
        if sorted(trial.number for trial in found) != list(range(len(found))):
            raise ValueError("a trial is missing or there twice")
    except PermissionError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} can't be read as the trials of a search ({printable(error)}): give another "
            "`out`.",
            "out",
        ) from None
    return found
