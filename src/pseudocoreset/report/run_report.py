"""The coreset, metrics and scores of a run for its page.

What a file says may be of any type: `finite`, `mapping` and `listed` give what can be used of it.
"""

import json
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy
from jaxtyping import UInt8

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.report.kept import read_data_options, read_images
from pseudocoreset.run_folder import LOUD_SHARE, START, missed_gamma, read_config, read_metrics

METHOD_NAMES = {
    "fbpc": "FBPC",
    "fbpc-isotropic": "FBPC (isotropic)",
    "bpc-rkl": "BPC (reverse KL)",
    "bpc-fkl": "BPC (forward KL)",
    "bpc-w": "BPC (Wasserstein)",
    "bpc-cd": "BPC (contrastive divergence)",
    "vbpc": "VBPC",
    "unrolled": "Unrolled",
}


@dataclass(frozen=True)
class RunReport:
    """A coreset with its metrics and scores.

    Args:
        name: what to call it, e.g. "FBPC, 10 images per class"
        coreset: the points; None for the full data
        metrics: the figures of each update, as in metrics.jsonl
        config: the settings it was made with
        evaluation: what `Evaluation.as_json` gives, where it was evaluated
        folder: where the run is
        start: the points before the first update, where they are known
        images: test images by index, as bytes, of those that the evaluation names
        data_options: how the command line named the data
        of_images: whether the points are images, for scores without a coreset
        of_classes: whether they have classes, for scores without a coreset
    """

    name: str
    coreset: Pseudocoreset | None
    metrics: list[dict[str, Any]]
    config: dict[str, Any]
    evaluation: dict[str, Any] | None
    folder: Path | None = None
    start: Pseudocoreset | None = None
    images: dict[int, UInt8[numpy.ndarray, "c h w"]] = field(default_factory=dict)
    data_options: dict[str, Any] = field(default_factory=dict)
    of_images: bool = True
    of_classes: bool = True

    @property
    def points(self) -> int | None:
        """How many points are stored."""
        if self.coreset is not None:
            return len(self.coreset)
        return count(self._evaluated("coreset").get("images"))

    @property
    def is_image(self) -> bool:
        """Whether the points are images, as far as is known."""
        return self.of_images if self.coreset is None else self.coreset.is_image

    @property
    def has_classes(self) -> bool:
        """Whether the points have classes, as far as is known; those of a regression have none."""
        return self.of_classes if self.coreset is None else bool(self.coreset.class_names)

    @property
    def is_baseline(self) -> bool:
        """Whether it is there to compare with: random points, or all of them."""
        return self.coreset is None or self.config.get("method") == "random"

    @property
    def protocol(self) -> dict[str, Any]:
        """How its posterior was sampled; empty where it was not."""
        return self._evaluated("protocol")

    @property
    def pooled(self) -> dict[str, Any]:
        """The scores of all seeds' samples together; empty in files of version 0.1."""
        return self._evaluated("pooled")

    @property
    def samplers(self) -> list[dict[str, Any]]:
        """Diagnostics of the sampling for each seed."""
        found = listed((self.evaluation or {}).get("samplers"))
        return [signs for signs in found if isinstance(signs, dict)]

    @property
    def convergence(self) -> dict[str, Any]:
        """Whether chains agree; empty where it is not known."""
        return self._evaluated("convergence")

    @property
    def seeds(self) -> int:
        """How many posteriors were sampled."""
        return len(listed((self.evaluation or {}).get("seeds")))

    @property
    def examples(self) -> dict[str, Any]:
        """Examples of test points by kind."""
        return self._evaluated("examples")

    @property
    def random(self) -> "RunReport | None":
        """Scores of random training points, if known."""
        found = self._evaluated("random")
        if not found or self.coreset is None:
            return None
        name = run_name("random", self.coreset.ipc, self.coreset)
        return RunReport(
            name,
            None,
            [],
            {},
            found,
            self.folder,
            of_images=self.is_image,
            of_classes=self.has_classes,
        )

    def score(self, name: str) -> float | None:
        """A score, if it is known and finite.

        Args:
            name: as the evaluation calls it
        """
        return finite((self.evaluation or {}).get(name))

    def _evaluated(self, name: str) -> dict[str, Any]:
        return mapping((self.evaluation or {}).get(name))


def read_run(path: Path) -> RunReport:
    """What a run folder holds: configuration, metrics, coreset, and scores if there are any.

    Args:
        path: the folder
    """
    config = read_config(path)
    stored = path / "coreset.safetensors"
    coreset = Pseudocoreset.load(stored) if stored.exists() else None
    evaluation = _read_evaluation(path / "evaluation.json")
    if evaluation is not None and coreset is not None:
        scored = mapping(evaluation.get("coreset")).get("fingerprint")
        if scored != coreset.fingerprint:  # the run went on since: these are no longer its scores
            evaluation = None
    name = run_name(config.get("method", "coreset"), config.get("ipc"), coreset)
    return RunReport(
        name,
        coreset,
        read_metrics(path),
        config,
        evaluation,
        path,
        _read_start(path, coreset),
        read_images(path, coreset),
        read_data_options(path),
    )


def _read_start(path: Path, coreset: Pseudocoreset | None) -> Pseudocoreset | None:
    """The points before the first update; None where they are not known."""
    if coreset is None or not (path / START).exists():
        return None
    try:
        start = Pseudocoreset.load(path / START)
    except UserError:  # it is only shown: a page without it is better than none
        return None
    same = start.inputs.shape == coreset.inputs.shape and start.form == coreset.form
    return start if same else None


def run_name(method: object, ipc: object, coreset: Pseudocoreset | None = None) -> str:
    """The name of a run: its method and the size of its coreset.

    Args:
        method: as the configuration has it
        ipc: stored points per class, as the configuration has it
        coreset: what was made; images if it is not known
    """
    images = coreset is None or coreset.is_image
    name = printable(method, 60)
    name = f"Random {noun(2, images)}" if name == "random" else METHOD_NAMES.get(name, name)
    number = count(ipc)
    if number is None:
        return name
    things = noun(number, images)
    each = "" if coreset is not None and not coreset.class_names else " per class"
    return f"{name}, {number} {things}{each}"


def noun(number: int, images: bool) -> str:
    """The word for this many points.

    Args:
        number: how many
        images: whether they are images
    """
    return ("image" if images else "point") + ("" if number == 1 else "s")


def _read_evaluation(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        evaluation = json.loads(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError):
        evaluation = None
    if not isinstance(evaluation, dict):
        raise UserError(f"{path} can't be read as scores: run `pseudocoreset evaluate` again.")
    return evaluation


def finite(value: object) -> float | None:
    """The number, or None for all that can't be drawn or printed as one.

    Args:
        value: anything
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:
        return None


def count(value: object) -> int | None:
    """The number of something; None for all that is none.

    Args:
        value: anything
    """
    return value if type(value) is int and 0 <= value < 10**15 else None


def mapping(value: object) -> dict[str, Any]:
    """The JSON object, or an empty one in the place of anything else.

    Args:
        value: anything
    """
    return dict(value) if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """The list, or an empty one in the place of anything else.

    Args:
        value: anything
    """
    return list(value) if isinstance(value, list | tuple) else []


def kinetic_temperature(run: RunReport) -> float | None:
    """The mean over seeds and chains; None for samplers without momentum.

    Args:
        run: the run
    """
    found = [finite(t) for signs in run.samplers for t in listed(signs.get("kinetic_temperature"))]
    known = [value for value in found if value is not None]
    try:
        return fmean(known) if known else None
    except OverflowError:
        return None


def missed_note(run: RunReport) -> str:
    """What a reader should know of updates that missed γ; empty where none did.

    Args:
        run: the run
    """
    missed = sum(map(missed_gamma, run.metrics))
    if not missed:
        return ""
    share = missed / len(run.metrics)
    gamma, steps = (printable(run.config.get(name, "?")) for name in ("gamma", "max_map_steps"))
    what = (
        f"In {missed} of {len(run.metrics)} updates ({share:.1%}) training on the coreset did not "
        f"reach the loss γ = {gamma} within {steps} steps"
    )
    if share > LOUD_SHARE:
        return (
            f"{what}. These updates used a bad approximation of the coreset's posterior: "
            "raise --gamma or --max-map-steps."
        )
    return f"{what}. So few have no noticeable effect."
