"""Metadata of inputs and targets in files of coresets and posteriors."""

from dataclasses import asdict
from typing import Any, NamedTuple

from pseudocoreset.data import Column, Scaling
from pseudocoreset.likelihoods import Likelihood


class Units(NamedTuple):
    """What inputs and targets mean."""

    class_names: tuple[str, ...]
    scaling: Scaling
    likelihood: Likelihood | None
    """None in files of version 0.1, which have classes."""
    target_scaling: Scaling | None
    columns: tuple[Column, ...]

    def as_json(self) -> dict[str, Any]:
        """Entries of a file's metadata."""
        found: dict[str, Any] = {
            "class_names": self.class_names,
            "normalisation": asdict(self.scaling),
            "likelihood": None if self.likelihood is None else self.likelihood.as_json(),
        }
        if self.target_scaling is not None:
            found["target_scaling"] = asdict(self.target_scaling)
        if self.columns:
            found["columns"] = [column.as_json() for column in self.columns]
        return found

    @staticmethod
    def from_json(metadata: dict[str, Any]) -> "Units":
        """Read the result of `as_json`; raises ValueError, TypeError or KeyError on anything else.

        Args:
            metadata: a file's metadata
        """
        names, targets = metadata["class_names"], metadata.get("target_scaling")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("its class names are damaged")
        likelihood = metadata.get("likelihood")
        return Units(
            tuple(names),
            Scaling.from_json(metadata["normalisation"]),
            None if likelihood is None else Likelihood.from_json(likelihood),
            None if targets is None else Scaling.from_json(targets),
            tuple(map(Column.from_json, metadata.get("columns", ()))),
        )
