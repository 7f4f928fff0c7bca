"""Scores of a coreset: its posterior, sampled for several seeds, on images it never saw."""

import warnings
from dataclasses import asdict, dataclass, fields
from statistics import fmean, stdev
from typing import Any

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import ImageData, Split
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.progress import SILENT, Progress
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.metrics import Scores, predictive, reliability, score
from pseudocoreset.evaluation.predictive import TEST_BATCH, log_samples_of, predictor_of
from pseudocoreset.posterior import Protocol, sample_posteriors

SIGNS = ("seed", "temperature", "kinetic_temperature", "loss_trace")
"""What an evaluation keeps of a posterior's details."""


@dataclass(frozen=True)
class Evaluation:
    """Scores over seeds; a seed is one posterior of the same coreset."""

    seeds: list[Scores]
    samplers: list[dict[str, Any]]
    """Signs of how sampling went, one a seed: temperature told and kinetic, loss trace."""
    reliability: dict[str, list[float]]
    """Per bin of confidence: share of the images, confidence, accuracy; of the first seed."""
    protocol: dict[str, Any]
    coreset: dict[str, Any]

    def mean(self, name: str) -> float:
        """The mean of a score over seeds."""
        return fmean(getattr(scores, name) for scores in self.seeds)

    def std(self, name: str) -> float:
        """The standard deviation of a score over seeds; 0 for one seed."""
        values = [getattr(scores, name) for scores in self.seeds]
        return stdev(values) if len(values) > 1 else 0.0

    def as_json(self) -> dict[str, Any]:
        """What `evaluate --json` writes."""
        summary: dict[str, Any] = {}
        for field in fields(Scores):
            summary[field.name] = self.mean(field.name)
            summary[f"{field.name}_std"] = self.std(field.name)
        return {
            **summary,
            "seeds": [asdict(scores) for scores in self.seeds],
            "protocol": self.protocol,
            "coreset": self.coreset,
            "samplers": self.samplers,
            "reliability": self.reliability,
        }


def evaluate(
    coreset: Pseudocoreset,
    data: ImageData,
    net: str | None = None,
    protocol: Protocol | None = None,
    *,
    seeds: int = 5,
    first_seed: int = 0,
    split: str = "test",
    device: str = "auto",
    progress: Progress = SILENT,
) -> Evaluation:
    """Sample the coreset's posterior for `seeds` seeds and score each on the `split` of `data`."""
    protocol = protocol or Protocol()
    images = images_to_score(coreset, data, split, seeds)
    place = choose_device(device)
    on_device = images.to(place)
    posteriors = sample_posteriors(
        coreset,
        net,
        protocol,
        seeds=range(first_seed, first_seed + seeds),
        device=device,
        progress=progress,
    )
    predictor = predictor_of(posteriors[0], on_device.images)
    scores, samplers = [], []
    bins: dict[str, list[float]] = {}
    with progress.task("predict", sum(map(len, posteriors))) as task:
        for posterior in posteriors:
            log_samples = log_samples_of(posterior, predictor, task)
            scores.append(score(log_samples, on_device.labels))
            samplers.append({name: posterior.details[name] for name in SIGNS})
            if not bins:
                columns = reliability(predictive(log_samples).exp(), on_device.labels)
                names = ("share", "confidence", "accuracy")
                bins = {n: column.tolist() for n, column in zip(names, columns, strict=True)}
    stated = {
        **asdict(protocol),
        "temperature": posterior.details["temperature"],
        "weight_decay": posterior.details["decay"],
        "net": posterior.net,
        "split": split,
        "images": len(images),
        "test_batch": TEST_BATCH,
        "device": device_name(place),
        "versions": posterior.details["versions"],
    }
    described = {"fingerprint": coreset.fingerprint, "images": len(coreset), "ipc": coreset.ipc}
    return Evaluation(scores, samplers, bins, stated, described | asdict(coreset.provenance))


def images_to_score(coreset: Pseudocoreset, data: ImageData, split: str, seeds: int) -> Split:
    """The images of the `split`, once all that `evaluate` is given is found to make sense."""
    if seeds < 1:
        raise UserError(f"--seeds {seeds} is too small: give 1 or more.")
    images = _split(data, split)
    _check_match(coreset, data, split)
    return images


def _split(data: ImageData, name: str) -> Split:
    if name == "test":
        return data.test
    if name != "holdout":
        raise UserError(f"--split {name} is not known: give test or holdout.")
    if data.holdout is None:
        raise UserError("--split holdout needs images that were kept out: give --holdout N.")
    return data.holdout


def _check_match(coreset: Pseudocoreset, data: ImageData, split: str) -> None:
    """Refuse data of another shape, and scores on images that a coreset was trained on."""
    here = (data.channels, data.image_size, data.class_names)
    made_for = (coreset.images.shape[1], coreset.images.shape[-1], coreset.class_names)
    for what, ours, theirs in zip(
        ("channels", "image size", "classes"), here, made_for, strict=True
    ):
        if ours != theirs:
            raise UserError(
                f"the data {data.name} have {what} {_short(ours)} and the coreset was made for "
                f"{_short(theirs)}: give the data it was made of."
            )
    made_of = coreset.provenance
    if split == "holdout" and not made_of.data_fingerprint:
        warnings.warn(
            f"of what images {made_of.method} was made is not known: if these were among them, the "
            "scores say nothing.",
            stacklevel=3,
        )
    elif split == "holdout" and made_of.data_fingerprint != data.fingerprint:
        raise UserError(
            f"the coreset was made of {made_of.data} with --holdout {made_of.holdout}, so it may "
            f"have seen the images that are held out here: give the same data and --holdout."
        )


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) < 60 else text[:57] + "..."
