"""Scores of a posterior on points it never saw, or of a coreset over several seeds."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import Data, Split
from pseudocoreset.engine.device import DeviceLike, choose_device, device_name
from pseudocoreset.engine.progress import ProgressLike, progress_of
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError, require_type
from pseudocoreset.evaluation.metrics import (
    METRICS,
    Predicted,
    PredictedNumbers,
    Scores,
    numbers,
    reliability,
    scores,
)
from pseudocoreset.likelihoods import Gaussian
from pseudocoreset.nets import NetLike
from pseudocoreset.posterior import Posterior, Sampler, sample_posteriors
from pseudocoreset.posterior.sample import chains_for
from pseudocoreset.predictor import TEST_BATCH, Predictor

DIAGNOSTICS = ("seed", "temperature", "kinetic_temperature", "loss_trace")
"""What an evaluation keeps of a posterior's details."""
SHOWN = ("accuracy", "rmse", "nll", "ece", "coverage")


@dataclass(frozen=True)
class Evaluation:
    """Scores over seeds; a seed is one posterior of the same coreset."""

    seeds: list[Scores]
    samplers: list[dict[str, Any]]
    """Diagnostics of the sampling, one a seed: temperature asked for and measured, loss trace."""
    reliability: dict[str, list[float]]
    """Per bin of confidence: share of the points, confidence, accuracy; of the first seed."""
    protocol: dict[str, Any]
    coreset: dict[str, Any]
    pooled: Scores = field(default_factory=lambda: Scores({}))
    """Of the samples of all seeds together."""

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
        """The scores that are single numbers."""
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
        """What `evaluate --json` writes."""
        summary: dict[str, Any] = {}
        for name in self.names:
            summary[name] = self.mean(name)
            summary[f"{name}_std"] = self.std(name)
        return {
            **summary,
            "seeds": [dict(found) for found in self.seeds],
            "pooled": dict(self.pooled),
            "protocol": self.protocol,
            "coreset": self.coreset,
            "samplers": self.samplers,
            "reliability": self.reliability,
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
    weight: float | None = None,
    split: str = "test",
    other_data: bool = False,
    device: DeviceLike = "auto",
    progress: ProgressLike = True,
) -> Evaluation:
    """Score a posterior; of a coreset, sample a posterior for each seed and score them all.

    Args:
        what: a posterior, or a coreset
        data: the data set it was made of
        sampler: for a coreset, a sampler or the name of a protocol
        net: for a coreset, the network; default: the one it was made with
        seeds: for a coreset, how many posteriors to sample
        first_seed: the first of the seeds
        chains: for a coreset, chains of each posterior
        weight: for a coreset, how often each point counts
        split: `test` or `holdout`
        other_data: score on data that the coreset was not made of
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        progress: whether to show a progress bar
    """
    require_type(what, (Pseudocoreset, Posterior), "what", "a coreset or a posterior")
    require_type(data, Data, "data", "a data set, such as load_data('digits')")
    points = points_to_score(what, data, split, other_data=other_data)
    if isinstance(what, Posterior):
        if sampler != "tuned" or net is not None or weight is not None:
            raise UserError(
                "a posterior is sampled already: leave `sampler`, `net` and `weight` out.",
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
            progress=progress,
        )
    return score_posteriors(posteriors, points, split, device=device, progress=progress)


def score_posteriors(
    posteriors: Sequence[Posterior],
    points: Split,
    split: str,
    *,
    device: DeviceLike = "auto",
    progress: ProgressLike = True,
) -> Evaluation:
    """Scores of several posteriors of one network on the same points.

    Args:
        posteriors: the posteriors
        points: the points and their true targets
        split: what the points are called
        device: where to predict
        progress: whether to show a progress bar
    """
    place = choose_device(device)
    on_device = points.to(place)
    first = posteriors[0]
    predictor = Predictor(first.make_net(), on_device.inputs, first.scaling)
    found: list[Scores] = []
    outputs: list[Tensor] = []
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
            if not bins and isinstance(predicted, Predicted):
                columns = reliability(predicted.probabilities, predicted.labels)
                names = ("share", "confidence", "accuracy")
                bins = {n: column.tolist() for n, column in zip(names, columns, strict=True)}
    pooled = scores(predictions(first, torch.cat(outputs), on_device.targets), all_of_them=True)
    details = first.details
    stated = {
        **details["protocol"],
        "temperature": details["temperature"],
        "weight_decay": details["decay"],
        "net": first.net,
        "split": split,
        "images": len(points),
        "test_batch": TEST_BATCH,
        "device": device_name(place),
        "versions": details["versions"],
    }
    diagnostics = [{k: one.details[k] for k in DIAGNOSTICS} for one in posteriors]
    sizes = details.get("coreset_points", {})
    described = {
        "fingerprint": details["coreset"],
        **sizes,
        **details.get("coreset_provenance", {}),
    }
    return Evaluation(found, diagnostics, bins, stated, described, pooled)


def predictions(
    posterior: Posterior, outputs: Tensor, targets: Shaped[Tensor, "n ..."]
) -> Predicted | PredictedNumbers:
    """A posterior's outputs at points with known targets, ready to be scored.

    Args:
        posterior: the posterior
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


def points_to_score(
    what: Pseudocoreset | Posterior, data: Data, split: str, *, other_data: bool = False
) -> Split:
    """The points of the `split`, once they are found to fit and to be those that are meant.

    Args:
        what: a posterior or a coreset
        data: the data set
        split: `test` or `holdout`
        other_data: accept data that the coreset was not made of
    """
    points = _split(data, split)
    _check_shape(what, data)
    if not other_data:
        _check_provenance(what, data, split)
    return points


def _split(data: Data, name: str) -> Split:
    if name == "test":
        return data.test
    if name != "holdout":
        raise UserError(f"`split` {name} is not known: give test or holdout.", "split")
    if data.holdout is None:
        raise UserError("`split` holdout needs points that were held out: give `holdout`.", "split")
    return data.holdout


def _check_shape(what: Pseudocoreset | Posterior, data: Data) -> None:
    here = (data.task, data.input_shape, data.class_names)
    made_for = (what.task, what.input_shape, what.class_names)
    names = ("task", "input shape", "classes")
    for name, ours, theirs in zip(names, here, made_for, strict=True):
        if ours != theirs:
            raise UserError(
                f"the data {data.name} have {name} {_short(ours)} and the coreset was made for "
                f"{_short(theirs)}.",
                "data",
            )


def _check_provenance(what: Pseudocoreset | Posterior, data: Data, split: str) -> None:
    """Refuse other data than the coreset was made of, and held-out points that it was made of."""
    made = provenance_of(what)
    if made is None or not (made.train_digest or made.data_fingerprint):
        warnings.warn(
            "of what data the coreset was made is not known: if these points were among them, the "
            "scores mean nothing.",
            RuntimeWarning,
            stacklevel=4,
        )
        return
    holdout = 0 if data.holdout is None else len(data.holdout)
    if made.train_digest:
        parts = [("training", made.train_digest, data.train_digest)]
        parts.append(("test", made.test_digest, data.test_digest))
        other = [name for name, theirs, ours in parts if theirs != ours]
    else:  # a file of the first edition, which has one digest of all
        same = made.data_fingerprint == data.fingerprint
        if not same and made.holdout != holdout:
            warnings.warn(
                f"the coreset is of the first edition and was made with `holdout` {made.holdout}, "
                f"so it can't be told whether it was made of these data.",
                RuntimeWarning,
                stacklevel=4,
            )
            same = split == "test"
        other = [] if same else ["training or test"]
    if other:
        raise UserError(
            f"the {' and '.join(other)} points of {data.name} are not those that the coreset was "
            f"made with ({printable(made.data)}): give the same data, or `other_data` if it is "
            "meant.",
            "data",
        )
    if split == "holdout" and made.holdout != holdout:
        raise UserError(
            f"the coreset was made with `holdout` {made.holdout}, so it may have been made of "
            "points that are held out here: give the same `holdout`.",
            "holdout",
        )
    if split == "holdout" and made.data_fingerprint != data.fingerprint:
        raise UserError(  # which are held out follows from their order
            f"other points of {data.name} are held out than when the coreset was made: give the "
            "data in the same order, as files under the same names are.",
            "holdout",
        )


def same_data(what: Pseudocoreset | Posterior, data: Data, split: str = "test") -> bool:
    """Whether the data are known to be those that a coreset was made of.

    Args:
        what: a posterior or a coreset
        data: the data set
        split: `holdout` where the same points must be held out, too
    """
    made = provenance_of(what)
    if made is None:
        return False
    if made.train_digest and split == "test":
        return (made.train_digest, made.test_digest) == (data.train_digest, data.test_digest)
    return made.data_fingerprint == data.fingerprint


def provenance_of(what: Pseudocoreset | Posterior) -> Provenance | None:
    """Where a coreset, or a posterior's coreset, comes from; None where a file does not say.

    Args:
        what: a posterior or a coreset
    """
    if isinstance(what, Pseudocoreset):
        return what.provenance
    stored = what.details.get("coreset_provenance")
    return None if stored is None else Provenance.from_json(stored)


def _short(value: object) -> str:
    text = printable("×".join(map(str, value)) if isinstance(value, tuple) else value)
    return text if len(text) < 60 else text[:57] + "..."
