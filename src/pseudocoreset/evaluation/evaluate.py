"""Score a posterior, or a coreset over several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from types import NoneType
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data, Split
from pseudocoreset.engine.device import DeviceLike, choose_device, device_name
from pseudocoreset.engine.progress import ProgressLike, progress_of
from pseudocoreset.errors import UserError, require_type
from pseudocoreset.evaluation.calibration import calibrated
from pseudocoreset.evaluation.convergence import convergence
from pseudocoreset.evaluation.corruption_scores import CorruptionScores
from pseudocoreset.evaluation.corruptions import SEVERITIES
from pseudocoreset.evaluation.examples import examples
from pseudocoreset.evaluation.metrics import (
    METRICS,
    Predicted,
    PredictedNumbers,
    Scores,
    numbers,
    reliability,
    risk_and_coverage,
    scores,
)
from pseudocoreset.evaluation.ood import OodScores
from pseudocoreset.evaluation.points import points_to_score
from pseudocoreset.evaluation.shifts import (
    Shifts,
    asked_shifts,
    score_corruptions,
    score_other_data,
)
from pseudocoreset.likelihoods import Gaussian
from pseudocoreset.nets import NetLike
from pseudocoreset.posterior import Posterior, Sampler, sample_posteriors
from pseudocoreset.posterior.sample import chains_for
from pseudocoreset.posterior.weight import WeightLike
from pseudocoreset.predictor import TEST_BATCH, Predictor
from pseudocoreset.scale import Executor

DIAGNOSTICS = ("seed", "temperature", "kinetic_temperature", "loss_trace")
"""What an evaluation keeps of a posterior's details."""
SHOWN = ("accuracy", "rmse", "nll", "ece", "coverage")


@dataclass(frozen=True)
class Evaluation:
    """Scores over seeds; each seed is one posterior of the same coreset."""

    seeds: list[Scores]
    samplers: list[dict[str, Any]]
    """Diagnostics of the sampling for each seed: temperatures set and measured, loss trace."""
    reliability: dict[str, list[float]]
    """Share of points, confidence and accuracy in each bin of confidence, for the first seed."""
    protocol: dict[str, Any]
    coreset: dict[str, Any]
    pooled: Scores = field(default_factory=lambda: Scores({}))
    """Scores of the samples of all seeds together."""
    single: Scores = field(default_factory=lambda: Scores({}))
    """Scores of a single network, the last sample of a chain; means over all chains."""
    pooled_temperature: float | None = None
    """The predictive temperature with the lowest NLL of the pooled samples on these points. Find it
    on held-out points and use it for the test points."""
    pooled_calibrated: Scores = field(default_factory=lambda: Scores({}))
    """Scores of the pooled samples at the given predictive temperature; empty without one."""
    corruptions: CorruptionScores | None = None
    """Scores on corrupted images, if requested."""
    ood: OodScores | None = None
    """How well uncertainty detects other data, if requested."""
    convergence: dict[str, Any] | None = None
    """Whether the chains agree; None if they are too short."""
    selective: dict[str, list[float]] = field(default_factory=dict)
    """Accuracy of the pooled samples on the most certain points, by the share of points kept."""
    examples: dict[str, Any] = field(default_factory=dict)
    """Points with the largest uncertainty or error."""

    def __getattr__(self, name: str) -> float:
        """The mean of a score over seeds: `.accuracy`, `.nll`, `.rmse`, …"""
        if name.startswith("_") or name not in {metric.name for metric in METRICS}:
            raise AttributeError(f"an evaluation has no {name}")
        if name not in self.seeds[0]:
            raise AttributeError(f"{name} is not a score of this task")
        return self.mean(name)

    def __repr__(self) -> str:
        shown = [name for name in SHOWN if name in self.seeds[0]]
        parts = []
        for name in shown:
            spread = f" ± {self.std(name):.4f}" if len(self.seeds) > 1 else ""
            parts.append(f"{name} {self.mean(name):.4f}{spread}")
        return ", ".join(parts)

    @property
    def names(self) -> list[str]:
        """The names of all scores that are single numbers."""
        return [name for name, value in self.seeds[0].items() if isinstance(value, float)]

    def mean(self, name: str) -> float:
        """The mean of a score over seeds.

        Args:
            name: the score
        """
        return fmean(found[name] for found in self.seeds)

    def std(self, name: str) -> float:
        """The standard deviation of a score over seeds; 0 for one seed.

        Args:
            name: the score
        """
        values = [found[name] for found in self.seeds]
        return stdev(values) if len(values) > 1 else 0.0

    def as_json(self) -> dict[str, Any]:
        """The content of the file that `evaluate --json` writes."""
        summary: dict[str, Any] = {}
        for name in self.names:
            summary[name] = self.mean(name)
            summary[f"{name}_std"] = self.std(name)
        shifts = {"corruptions": self.corruptions, "ood": self.ood}
        return {
            **summary,
            "seeds": [dict(found) for found in self.seeds],
            "single": dict(self.single),
            "pooled": dict(self.pooled),
            "pooled_temperature": self.pooled_temperature,
            "pooled_calibrated": dict(self.pooled_calibrated),
            "protocol": self.protocol,
            "coreset": self.coreset,
            "samplers": self.samplers,
            "reliability": self.reliability,
            "convergence": self.convergence,
            "selective": self.selective,
            "examples": self.examples,
            **{name: found.as_json() for name, found in shifts.items() if found is not None},
        }


def evaluate(
    what: Pseudocoreset | Posterior,
    data: Data,
    sampler: Sampler | str = "tuned",
    *,
    net: NetLike | None = None,
    seeds: int = 5,
    first_seed: int = 0,
    chains: int = 1,
    weight: WeightLike | None = None,
    split: str = "test",
    predictive_temperature: float | None = None,
    other_data: bool = False,
    corruptions: str | Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    corruptions_dir: Path | str | None = None,
    ood: Data | None = None,
    device: DeviceLike = "auto",
    executor: Executor | None = None,
    progress: ProgressLike = True,
) -> Evaluation:
    """Score a posterior, or a coreset by sampling one posterior for each seed.

    Args:
        what: a posterior, or a coreset
        data: the data set it was made from
        sampler: for a coreset, a sampler or the name of a protocol
        net: for a coreset, the network; default: the one it was made for
        seeds: for a coreset, how many posteriors to sample
        first_seed: the first of the seeds
        chains: for a coreset, chains of each posterior
        weight: for a coreset, how many times each point counts
        split: `test` or `holdout`
        predictive_temperature: also score the pooled samples at this temperature of the predictive
            distribution, such as `pooled_temperature` of an evaluation on held-out points
        other_data: allow data that the coreset was not made from
        corruptions: also score corrupted images with the same samples: `all` of CIFAR-10-C, the
            ten of the `paper`, or names such as `fog`
        severities: severities of the corruptions, 1 to 5
        corruptions_dir: folder of the official arrays, to be used instead of our corruptions
        ood: other data, to be detected by the uncertainty of the predictions
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        executor: for a coreset, where chains run, such as `pc.ProcessExecutor(4)`; default: this
            process
        progress: whether to show a progress bar
    """
    require_type(what, (Pseudocoreset, Posterior), "what", "a coreset or a posterior")
    require_type(data, Data, "data", "a data set, such as load_data('digits')")
    require_type(ood, (Data, NoneType), "ood", "a data set, such as load_data('digits')")
    points = points_to_score(what, data, split, other_data=other_data)
    _check_temperature(predictive_temperature, data)
    choose_device(device)  # where predictions are made, wherever chains run
    shifts = asked_shifts(data, points, split, corruptions, severities, corruptions_dir, ood)
    if isinstance(what, Posterior):
        if sampler != "tuned" or net is not None or weight is not None:
            raise UserError(
                "a posterior is already sampled: leave `sampler`, `net` and `weight` out.",
                "sampler",
            )
        posteriors = [what]
    else:
        if seeds < 1:
            raise UserError(f"`seeds` is {seeds}: give 1 or more.", "seeds")
        posteriors = sample_posteriors(
            what,
            chains_for(what, sampler, chains, weight),
            net=net,
            seeds=range(first_seed, first_seed + seeds),
            device=device,
            executor=executor,
            progress=progress,
        )
    return score_posteriors(
        posteriors,
        points,
        split,
        predictive_temperature=predictive_temperature,
        shifts=shifts,
        device=device,
        progress=progress,
    )


def _check_temperature(temperature: float | None, data: Data) -> None:
    if temperature is None:
        return
    if data.task != "classification":
        raise UserError(
            "`predictive_temperature` is for classes: leave it out.", "predictive_temperature"
        )
    if not 0 < temperature < float("inf"):
        raise UserError(
            f"`predictive_temperature` is {temperature}: give a number above 0.",
            "predictive_temperature",
        )


def score_posteriors(
    posteriors: Sequence[Posterior],
    points: Split,
    split: str,
    *,
    predictive_temperature: float | None = None,
    shifts: Shifts | None = None,
    device: DeviceLike = "auto",
    progress: ProgressLike = True,
) -> Evaluation:
    """Scores of several posteriors of one network on the same points.

    Args:
        posteriors: the posteriors
        points: the points and their true targets
        split: what the points are called
        predictive_temperature: of the predictive distribution; None: scored as it is
        shifts: corruptions and other data to be scored, too
        device: where to predict
        progress: whether to show a progress bar
    """
    place = choose_device(device)
    on_device = points.to(place)
    first = posteriors[0]
    predictor = Predictor(first.make_net(), on_device.inputs, first.scaling)
    found: list[Scores] = []
    outputs: list[Tensor] = []
    alone: list[Scores] = []
    bins: dict[str, list[float]] = {}
    with progress_of(progress).task("predict", sum(map(len, posteriors))) as task:
        for posterior in posteriors:
            outputs.append(
                posterior.outputs(
                    on_device.inputs, scaling=posterior.scaling, predictor=predictor, task=task
                )
            )
            predicted = predictions(posterior, outputs[-1], on_device.targets)
            found.append(scores(predicted))
            for last in _last_of_chains(posterior):
                one = outputs[-1][last : last + 1]
                alone.append(scores(predictions(posterior, one, on_device.targets)))
            if not bins and isinstance(predicted, Predicted):
                columns = reliability(predicted.probabilities, predicted.labels)
                names = ("share", "confidence", "accuracy")
                bins = {n: column.tolist() for n, column in zip(names, columns, strict=True)}
    together = predictions(first, torch.cat(outputs), on_device.targets)
    pooled = scores(together, all_of_them=True)
    corrupted, other = None, None
    if shifts is not None:
        clean = (fmean(one["accuracy"] for one in found), pooled["accuracy"])
        corrupted = score_corruptions(shifts, posteriors, predictor, on_device, clean, progress)
        other = score_other_data(shifts, posteriors, predictor, outputs)
    diagnostics = [{k: one.details[k] for k in DIAGNOSTICS} for one in posteriors]
    return Evaluation(
        found,
        diagnostics,
        bins,
        _stated(first, points, split, place),
        {
            "fingerprint": first.details["coreset"],
            **first.details.get("coreset_points", {}),
            **first.details.get("coreset_provenance", {}),
        },
        pooled,
        _mean_scores(alone),
        *calibrated(together, predictive_temperature),
        corrupted,
        other,
        convergence(posteriors, together),
        risk_and_coverage(together.probabilities, together.labels)
        if isinstance(together, Predicted)
        else {},
        examples(together),
    )


def _stated(posterior: Posterior, points: Split, split: str, place: torch.device) -> dict[str, Any]:
    """How it was sampled and on what it is scored."""
    details = posterior.details
    return {
        **details["protocol"],
        "temperature": details["temperature"],
        "weight_decay": details["decay"],
        "net": posterior.net,
        "split": split,
        "images": len(points),
        "test_batch": TEST_BATCH,
        "device": device_name(place),
        "versions": details["versions"],
    }


def _last_of_chains(posterior: Posterior) -> range:
    """The places of the last sample of each chain; each network of an ensemble is one."""
    each = len(posterior) // posterior.chains
    return range(each - 1, len(posterior), each)


def _mean_scores(found: Sequence[Scores]) -> Scores:
    """The mean of each score."""
    return Scores({name: fmean(scores[name] for scores in found) for name in found[0]})


def predictions(
    posterior: Posterior | Pseudocoreset, outputs: Tensor, targets: Shaped[Tensor, "n ..."]
) -> Predicted | PredictedNumbers:
    """A posterior's outputs at points with known targets, ready to be scored.

    Args:
        posterior: the posterior, or its coreset
        outputs: what each sample's network puts out
        targets: the true targets, in raw units
    """
    likelihood = posterior.likelihood
    if isinstance(likelihood, Gaussian):
        scaling = posterior.target_scaling
        width = outputs.shape[2]
        mean = outputs.new_tensor((0.0,) * width if scaling is None else scaling.mean)
        std = outputs.new_tensor((1.0,) * width if scaling is None else scaling.std)
        return numbers(outputs, targets, likelihood, std, mean)
    return Predicted(outputs.log_softmax(2), targets)
