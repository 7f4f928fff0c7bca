"""Scores of a coreset: its posterior, sampled for several seeds, on images it never saw."""

from dataclasses import asdict, dataclass, fields
from statistics import fmean, stdev
from typing import Any

from jaxtyping import Float
from torch import Tensor

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import ImageData, Split
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.progress import SILENT, Progress
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.metrics import Scores, score
from pseudocoreset.evaluation.predictive import TEST_BATCH, log_samples_of
from pseudocoreset.posterior import PROTOCOLS, Posterior, Protocol, sample_posterior


@dataclass(frozen=True)
class Evaluation:
    """Scores over seeds; a seed is one posterior of the same coreset."""

    seeds: list[Scores]
    posteriors: list[dict[str, Any]]
    """The signs of how sampling went, one a seed."""
    protocol: dict[str, Any]
    coreset: dict[str, Any]
    log_samples: Float[Tensor, "s n k"]
    """The first seed's predictions, for pictures."""

    def mean(self, name: str) -> float:
        """The mean of a score over seeds."""
        return fmean(getattr(scores, name) for scores in self.seeds)

    def std(self, name: str) -> float:
        """The standard deviation of a score over seeds; 0 for one seed."""
        values = [getattr(scores, name) for scores in self.seeds]
        return stdev(values) if len(values) > 1 else 0.0

    def as_json(self) -> dict[str, Any]:
        """What `evaluate --json` writes."""
        names = [field.name for field in fields(Scores)]
        summary: dict[str, Any] = {}
        for name in names:
            summary[name] = self.mean(name)
            summary[f"{name}_std"] = self.std(name)
        signs = [
            {"kinetic_temperature": details["kinetic_temperature"], "seed": details["seed"]}
            for details in self.posteriors
        ]
        rows = [asdict(scores) | sign for scores, sign in zip(self.seeds, signs, strict=True)]
        return {**summary, "seeds": rows, "protocol": self.protocol, "coreset": self.coreset}


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
    if seeds < 1:
        raise UserError(f"--seeds {seeds} is too small: give 1 or more.")
    protocol = protocol or PROTOCOLS["paper"]
    images = _split(data, split)
    _check_match(coreset, data)
    place = choose_device(device)
    on_device = images.to(place)
    scores, details, first, spec = [], [], None, ""
    for seed in range(first_seed, first_seed + seeds):
        posterior = sample_posterior(
            coreset, net, protocol, seed=seed, device=device, progress=progress
        )
        log_samples = log_samples_of(posterior, on_device.images)
        first = log_samples.cpu() if first is None else first
        scores.append(score(log_samples, on_device.labels))
        details.append(posterior.details)
        spec = posterior.net
    assert first is not None
    stated = {
        **asdict(protocol),
        "temperature": details[0]["temperature"],
        "weight_decay": details[0]["decay"],
        "net": spec,
        "split": split,
        "images": len(images),
        "test_batch": TEST_BATCH,
        "device": device_name(place),
        "versions": details[0]["versions"],
    }
    described = {"fingerprint": coreset.fingerprint, "images": len(coreset)}
    described |= asdict(coreset.provenance)
    return Evaluation(scores, details, stated, described, first)


def score_posterior(posterior: Posterior, data: ImageData, split: str = "test") -> Scores:
    """The scores of one posterior that was sampled before."""
    images = _split(data, split)
    return score(log_samples_of(posterior, images.images), images.labels)


def _split(data: ImageData, name: str) -> Split:
    if name == "test":
        return data.test
    if name != "holdout":
        raise UserError(f"--split {name} is not known: give test or holdout.")
    if data.holdout is None:
        raise UserError("--split holdout needs images that were kept out: give --holdout N.")
    return data.holdout


def _check_match(coreset: Pseudocoreset, data: ImageData) -> None:
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
    held_out = 0 if data.holdout is None else len(data.holdout)
    if held_out and coreset.provenance.holdout != held_out:
        raise UserError(
            f"--holdout {held_out} was given and the coreset was made with --holdout "
            f"{coreset.provenance.holdout}, so it may have seen these images: give the same number."
        )


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) < 60 else text[:57] + "..."
