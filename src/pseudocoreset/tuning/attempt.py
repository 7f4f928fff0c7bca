"""One trial: make a coreset with few updates and score it on held-out points."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.distillation import Job, run
from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.engine.versions import made_on
from pseudocoreset.errors import DivergedError
from pseudocoreset.evaluation.evaluate import SHOWN, Evaluation, evaluate
from pseudocoreset.experts import ExpertStore
from pseudocoreset.posterior import SGHMC, Sampler, named_sampler

SAMPLES = 10
"""Samples per chain."""
EARLY, SHORTER = 4, 2
"""A trial is looked at after one part in this many of its updates, by chains so much shorter."""


@dataclass(frozen=True)
class Scoring:
    """How each trial is made and scored."""

    chain_epochs: int
    seeds: int
    seed: int
    device: DeviceLike

    def sampler(self, part: int = 1) -> Sampler:
        """The protocol `tuned`, by chains of one part in this many of the epochs.

        Args:
            part: how much shorter
        """
        every = max(1, self.chain_epochs // part // SAMPLES)
        return named_sampler("tuned", SGHMC(epochs=every * SAMPLES, every=every))

    def score(self, coreset: Pseudocoreset, data: Data, part: int = 1) -> Evaluation:
        """The scores on held-out points.

        Args:
            coreset: the coreset
            data: the data set
            part: how much shorter chains are
        """
        return evaluate(
            coreset,
            data,
            self.sampler(part),
            seeds=self.seeds,
            split="holdout",
            device=self.device,
            progress=False,
        )


def attempt(
    job: Job,
    data: Data,
    stores: Sequence[ExpertStore],
    nets: Sequence[str],
    scoring: Scoring,
    stop_above: float | None,
) -> dict[str, Any]:
    """Make a coreset and score it; stop early if its NLL is above a bound then.

    Gives what `Trial` keeps of it.

    Args:
        job: what to do
        data: the data set, with held-out points
        stores: the experts
        nets: the networks, if there are no experts
        scoring: how it is scored
        stop_above: the bound
    """
    begun = time.perf_counter()
    found: dict[str, Any]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that γ was missed: the score tells
            found = _scores(job, data, stores, nets, scoring, stop_above)
    except DivergedError as error:
        found = {"state": "failed", "failed": str(error)}
    except (torch.OutOfMemoryError, MemoryError):
        found = {"state": "failed", "failed": "there was not enough memory"}
    found["made_with"] = made_on(choose_device(scoring.device))
    return {**found, "seconds": round(time.perf_counter() - begun, 1)}


def _scores(
    job: Job,
    data: Data,
    stores: Sequence[ExpertStore],
    nets: Sequence[str],
    scoring: Scoring,
    stop_above: float | None,
) -> dict[str, Any]:
    found: dict[str, Any] = {}

    with TemporaryDirectory() as folder:

        def make(steps: int) -> Pseudocoreset:
            return run(
                replace(job, options=replace(job.options, steps=steps)),
                data,
                stores,
                nets=nets,
                out=Path(folder, "run"),
                seed=scoring.seed,
                device=scoring.device,
                progress=False,
            )

        early = job.options.steps // EARLY
        if early:
            nll = scoring.score(make(early), data, SHORTER).mean("nll")
            if isfinite(nll):
                found["early_nll"] = nll
            if stop_above is not None and nll > stop_above:
                return {**found, "state": "pruned"}
        scores = scoring.score(make(job.options.steps), data)
    shown = {name: scores.mean(name) for name in SHOWN if name in scores.names}
    if not all(map(isfinite, shown.values())):
        raise DivergedError("its scores are not finite")
    return {**found, "state": "finished", "nll": shown["nll"], "scores": shown}
