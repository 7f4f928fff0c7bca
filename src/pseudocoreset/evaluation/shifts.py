"""Scores on corrupted images and other data."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from pseudocoreset.data import Data, Split
from pseudocoreset.engine.progress import ProgressLike, progress_of
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.corruption_scores import SCORES, CorruptionRow, CorruptionScores
from pseudocoreset.evaluation.corruptions import SEVERITIES, chosen_corruptions
from pseudocoreset.evaluation.corruptions.images import GROUPS
from pseudocoreset.evaluation.corruptions.stored import Made, Official
from pseudocoreset.evaluation.metrics import Predicted, Scores, scores
from pseudocoreset.evaluation.ood import OodScores, fitting_images, score_ood
from pseudocoreset.posterior import Posterior
from pseudocoreset.predictor import Predictor


@dataclass(frozen=True)
class Shifts:
    """What was asked for, looked at before any work.

    Args:
        names: the corruptions
        severities: 1 to 5
        source: where corrupted images come from
        ood_name: what the other data are called
        ood_images: their images, as networks take them
    """

    names: list[str]
    severities: list[int]
    source: Made | Official | None
    ood_name: str
    ood_images: UInt8[Tensor, "n c h w"] | None


def asked_shifts(
    data: Data,
    points: Split,
    split: str,
    corruptions: str | Sequence[str] | None,
    severities: Sequence[int],
    corruptions_dir: Path | str | None,
    ood: Data | None,
) -> Shifts | None:
    """What is to be scored, or None; what can't be is refused.

    Args:
        data: the data set
        points: the points of it that are scored
        split: what they are called
        corruptions: `all`, `paper`, or names
        severities: 1 to 5
        corruptions_dir: folder of the official arrays
        ood: other data
    """
    if corruptions is None and corruptions_dir is not None:
        raise UserError("`corruptions_dir` has no effect without `corruptions`.", "corruptions_dir")
    if corruptions is None and ood is None:
        return None
    for name, value in (("corruptions", corruptions), ("ood", ood)):
        if value is not None and (not data.is_image or data.task != "classification"):
            raise UserError(f"`{name}` is for images with classes: leave it out.", name)
    wrong = [each for each in severities if each not in SEVERITIES]
    if wrong or not severities:
        raise UserError(f"`severities` is {list(severities)}: give some of 1 to 5.", "severities")
    names: list[str] = []
    source: Made | Official | None = None
    if corruptions is not None and corruptions_dir is not None:
        if split != "test":
            raise UserError("`corruptions_dir` is for `split` test.", "corruptions_dir")
        source = Official(Path(corruptions_dir), points)
        names = _official_names(source, corruptions, data.input_shape)
    elif corruptions is not None:
        names = chosen_corruptions(corruptions, data.input_shape)
        source = Made(points)
    images = None if ood is None else fitting_images(ood, data.input_shape)
    ordered = sorted(set(severities))
    return Shifts(names, ordered, source, "" if ood is None else ood.name, images)


def _official_names(
    source: Official, corruptions: str | Sequence[str], shape: tuple[int, ...]
) -> list[str]:
    """The corruptions that are meant; of a group, those that there are files for."""
    given = corruptions.split(",") if isinstance(corruptions, str) else list(corruptions)
    grouped = {name for group in given for name in GROUPS.get(group, ())}
    names = chosen_corruptions(given, shape, made=False)
    missing = [name for name in names if name in grouped - {*given} and not source.has(name)]
    if missing:
        warnings.warn(
            f"left out, as `corruptions_dir` has no file of it: {', '.join(missing)}.",
            RuntimeWarning,
            stacklevel=4,
        )
    names = [name for name in names if name not in missing]
    if not names:
        raise UserError("`corruptions_dir` holds no array of these corruptions.", "corruptions_dir")
    for name in names:
        source.check(name)
    return names


def score_corruptions(
    shifts: Shifts,
    posteriors: Sequence[Posterior],
    predictor: Predictor,
    points: Split,
    clean: tuple[float, float],
    progress: ProgressLike = True,
) -> CorruptionScores | None:
    """Scores of the posteriors' samples on corrupted points.

    Args:
        shifts: what was asked for
        posteriors: the posteriors
        predictor: of their network at the clean points
        points: the clean points, on the device
        clean: accuracy on them: mean over posteriors, and of all samples together
        progress: whether to show a progress bar
    """
    if shifts.source is None:
        return None
    rows, device = [], points.inputs.device
    number = len(shifts.names) * len(shifts.severities) * len(posteriors)
    with progress_of(progress).task("corruptions", number) as task:
        for name in shifts.names:
            for severity in shifts.severities:
                images = shifts.source.images(name, severity).to(device)
                outputs = []
                for posterior in posteriors:
                    outputs.append(_outputs(posterior, predictor, images))
                    task.advance()
                seeds = [_scores(found, points) for found in outputs]
                pooled = _scores(torch.cat(outputs), points)
                rows.append(CorruptionRow(name, severity, seeds, pooled))
    return CorruptionScores(rows, *clean, shifts.source.source)


def score_other_data(
    shifts: Shifts,
    posteriors: Sequence[Posterior],
    predictor: Predictor,
    inside: Sequence[Float[Tensor, "s n k"]],
) -> OodScores | None:
    """How well the posteriors' uncertainty tells other data's images.

    Args:
        shifts: what was asked for
        posteriors: the posteriors
        predictor: of their network at the points that are scored
        inside: outputs of each posterior's samples at these points
    """
    if shifts.ood_images is None:
        return None
    images = shifts.ood_images.to(inside[0].device)
    outside = [_outputs(posterior, predictor, images) for posterior in posteriors]
    return score_ood(shifts.ood_name, inside, outside)


def _outputs(posterior: Posterior, predictor: Predictor, images: Tensor) -> Tensor:
    return posterior.outputs(images, scaling=posterior.scaling, predictor=predictor.at(images))


def _scores(outputs: Float[Tensor, "s n k"], points: Split) -> Scores:
    found = scores(Predicted(outputs.log_softmax(2), points.targets))
    return Scores({name: found[name] for name in SCORES})
