"""A study of a small network: trials with the same rows, stored in one JSON file."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.parse import Shape, check_shape, read_json
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError

FORMAT = 1
REFERENCE = "reference"
"""The row of all points, which each trial has."""


@dataclass(frozen=True)
class Study:
    """What is measured of a data set.

    Args:
        name: what `reproduce` calls it
        data: the data set
        rows: names of the rows beside the reference
        shape: what a row of this name has
        trial: measures the reference and rows of a trial, by its seed and their names
        settings: what is stored beside the trials
    """

    name: str
    data: str
    rows: Callable[[], list[str]]
    shape: Callable[[str], Shape]
    trial: Callable[[int, Sequence[str]], Iterator[tuple[str, dict[str, Any]]]]
    settings: Callable[[], dict[str, Any]]

    def path(self, out: Path) -> Path:
        """Where the trials are."""
        return out / self.name / f"{self.data}.json"

    def stored(self, out: Path) -> dict[str, Any]:
        """What was measured; without trials if nothing was."""
        path = self.path(out)
        if not path.exists():
            return {"format": FORMAT, "trials": []}
        try:
            content = read_json(path)
            check_shape(content, {"format": int, "trials": [{"seed": int, "rows": dict}]})
            for trial in content["trials"]:
                self._check_rows(trial["rows"])
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']}, not {FORMAT}")
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}): delete it to measure again.") from None
        return dict(content)

    def complete(self, out: Path) -> list[dict[str, Any]]:
        """The rows of each trial that has all of them."""
        trials = [each["rows"] for each in self.stored(out)["trials"]]
        return [rows for rows in trials if rows.keys() >= {REFERENCE, *self.rows()}]

    def measure(self, out: Path, trials: int, first: int) -> Iterator[str]:
        """Measure missing trials and yield a line after each.

        Args:
            out: folder of the results
            trials: how many
            first: seed of the first
        """
        for seed in range(first, first + trials):
            measured = {each["seed"]: each for each in self.stored(out)["trials"]}
            known = measured.get(seed, {"rows": {}})
            missing = [name for name in self.rows() if name not in known["rows"]]
            if not missing:
                yield f"{self.name}, seed {seed}: measured before"
                continue
            began, before = time.perf_counter(), known.get("seconds", 0.0)
            for name, row in self.trial(seed, missing):
                known["rows"][name] = row
                known["seconds"] = before + time.perf_counter() - began
                self._store(out, {**known, "seed": seed}, f"--seed {first} --trials {trials}")
            yield f"{self.name}, seed {seed}: {known['seconds']:.0f} s"

    def _store(self, out: Path, trial: dict[str, Any], options: str) -> None:
        """Write a trial beside the others, which another process may have written meanwhile."""
        content = self.stored(out)
        others = [each for each in content["trials"] if each["seed"] != trial["seed"]]
        content |= {
            "trials": sorted([*others, trial], key=lambda each: int(each["seed"])),
            **self.settings(),
            "command": f"pseudocoreset reproduce {self.name} {options}",
            "device": "cpu",
            "versions": versions(),
        }
        write_json(self.path(out), content)

    def _check_rows(self, rows: dict[str, Any]) -> None:
        """Raise ValueError where rows are not known, lack something, or have no numbers."""
        if REFERENCE not in rows or not {REFERENCE, *self.rows()} >= rows.keys():
            raise ValueError("its rows are not known")
        for name, row in rows.items():
            check_shape({name: row}, {name: self.shape(name)})
