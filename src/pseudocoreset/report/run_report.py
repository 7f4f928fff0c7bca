"""One run, as a report sees it: its coreset, its metrics, its scores."""

import json
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.errors import UserError
from pseudocoreset.run_folder import LOUD_SHARE, missed_gamma, read_config, read_metrics

METHOD_NAMES = {
    "random": "Random images",
    "fbpc": "FBPC",
    "fbpc-isotropic": "FBPC (isotropic)",
    "bpc-rkl": "BPC (reverse KL)",
    "bpc-fkl": "BPC (forward KL)",
    "bpc-w": "BPC (Wasserstein)",
}


@dataclass(frozen=True)
class RunReport:
    """One coreset and what is known of it.

    Args:
        name: what to call it, e.g. "FBPC, 10 images per class"
        coreset: the images; None for the full data
        metrics: the figures of each update, as in metrics.jsonl
        config: the settings it was made with
        evaluation: what `Evaluation.as_json` gives, where it was evaluated
    """

    name: str
    coreset: Pseudocoreset | None
    metrics: list[dict[str, Any]]
    config: dict[str, Any]
    evaluation: dict[str, Any] | None

    @property
    def images(self) -> int | None:
        """How many images the posterior was given."""
        if self.coreset is not None:
            return len(self.coreset)
        return self._evaluated("coreset").get("images")

    @property
    def protocol(self) -> dict[str, Any]:
        """How its posterior was sampled; empty where it was not."""
        return self._evaluated("protocol")

    @property
    def samplers(self) -> list[dict[str, Any]]:
        """The signs of how sampling went, one a seed."""
        return list((self.evaluation or {}).get("samplers") or [])

    def score(self, name: str) -> float | None:
        """A score, if it is known and finite."""
        return finite((self.evaluation or {}).get(name))

    def _evaluated(self, name: str) -> dict[str, Any]:
        return dict((self.evaluation or {}).get(name) or {})


def read_run(path: Path) -> RunReport:
    """What a run folder holds: configuration, metrics, coreset, and scores where there are any."""
    config = read_config(path)
    stored = path / "coreset.safetensors"
    method = str(config.get("method", "coreset"))
    coreset = Pseudocoreset.load(stored) if stored.exists() else None
    evaluation = _read_evaluation(path / "evaluation.json")
    if evaluation is not None and coreset is not None:
        scored = (evaluation.get("coreset") or {}).get("fingerprint")
        if scored != coreset.fingerprint:  # the run went on since: these are no longer its scores
            evaluation = None
    name = run_name(method, config.get("ipc"))
    return RunReport(name, coreset, read_metrics(path), config, evaluation)


def run_name(method: str, ipc: int | None) -> str:
    """What a person calls a run: the method and the size of its coreset."""
    name = METHOD_NAMES.get(method, method)
    return name if ipc is None else f"{name}, {ipc} {'image' if ipc == 1 else 'images'} per class"


def _read_evaluation(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        evaluation = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        evaluation = None
    if not isinstance(evaluation, dict):
        raise UserError(f"{path} can't be read as scores: run `pseudocoreset evaluate` again.")
    return evaluation


def finite(value: object) -> float | None:
    """The number, or None for all that can't be drawn or printed as one."""
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return float(value)
    return None


def kinetic_temperature(run: RunReport) -> float | None:
    """The mean over seeds and chains; None for samplers without momentum."""
    found = [finite(t) for signs in run.samplers for t in signs.get("kinetic_temperature") or []]
    known = [value for value in found if value is not None]
    return fmean(known) if known else None


def missed_note(run: RunReport) -> str:
    """What a reader should know of updates that missed γ; empty where none did."""
    missed = sum(map(missed_gamma, run.metrics))
    if not missed:
        return ""
    share = missed / len(run.metrics)
    what = (
        f"In {missed} of {len(run.metrics)} updates ({share:.1%}) training on the coreset did not "
        f"reach the loss γ = {run.config.get('gamma', '?')} within "
        f"{run.config.get('max_map_steps', '?')} steps"
    )
    if share > LOUD_SHARE:
        return (
            f"{what}, so what these updates took for the coreset's posterior was not one: "
            "raise --gamma or --max-map-steps."
        )
    return f"{what}; so few do no harm."


def significant(value: float) -> str:
    """A number with two or three significant digits, without an exponent where it can be read."""
    if value == 0 or 1e-2 <= abs(value) < 1e4:
        digits = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        return digits.replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa.replace('-', '−')} × 10{raised}"
