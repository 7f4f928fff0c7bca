"""Metrics of predictions.

`log_samples` are log p(class | input, sample): samples × points × classes. The predictive
distribution of a posterior is the mean of the probabilities over samples. To add a metric, write a
function of a `Predicted` or a `PredictedNumbers` and add one entry to `METRICS`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log
from statistics import NormalDist
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pseudocoreset.likelihoods import Gaussian

ECE_BINS = 15
KIM_BATCH = 128
COVERAGE = 0.9


class Scores(Mapping[str, Any]):
    """Scores by name, as attributes too; accuracy is in [0, 1]."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"no score is called {name}")
        return self._values[name]

    def __repr__(self) -> str:
        numbers = {k: v for k, v in self._values.items() if isinstance(v, float)}
        return f"Scores({', '.join(f'{name}={value:.4f}' for name, value in numbers.items())})"


@dataclass(frozen=True)
class Predicted:
    """What a posterior predicts for points of known class."""

    log_samples: Float[Tensor, "s n k"]
    labels: Int64[Tensor, " n"]

    @cached_property
    def log_mean(self) -> Float[Tensor, "n k"]:
        """The log of the averaged probabilities."""
        return predictive(self.log_samples.double())

    @cached_property
    def probabilities(self) -> Float[Tensor, "n k"]:
        """The averaged probabilities."""
        return self.log_mean.exp()

    @cached_property
    def confusion(self) -> Int64[Tensor, "k k"]:
        """Points by class (row) and predicted class (column)."""
        classes = self.log_mean.shape[1]
        place = self.labels * classes + self.log_mean.argmax(1)
        return place.bincount(minlength=classes * classes).view(classes, classes)


@dataclass(frozen=True)
class PredictedNumbers:
    """What a posterior predicts for points of known targets, all in raw units."""

    samples: Float[Tensor, "s n k"]
    noise: Float[Tensor, " k"]
    """Standard deviation of the likelihood."""
    targets: Float[Tensor, "n k"]

    @cached_property
    def mean(self) -> Float[Tensor, "n k"]:
        """The mean prediction."""
        return self.samples.mean(0)

    @cached_property
    def std(self) -> Float[Tensor, "n k"]:
        """All uncertainty: the noise, and the spread of the samples."""
        return (self.samples.var(0, correction=0) + self.noise.square()).sqrt()


@dataclass(frozen=True)
class Metric:
    """A score: its name, its function, and how it is shown."""

    name: str
    title: str
    compute: Callable[[Any], Any]
    task: str = "classification"
    higher_is_better: bool = False
    scalar: bool = True
    """Metrics that are no single number are given for pooled samples alone."""


def scores(predicted: Predicted | PredictedNumbers, *, all_of_them: bool = False) -> Scores:
    """All scores of one posterior.

    Args:
        predicted: what it predicts, and the truth
        all_of_them: those that are no single number, too
    """
    task = "classification" if isinstance(predicted, Predicted) else "regression"
    chosen = [m for m in METRICS if m.task == task and (m.scalar or all_of_them)]
    return Scores({metric.name: metric.compute(predicted) for metric in chosen})


def predictive(log_samples: Float[Tensor, "s n k"]) -> Float[Tensor, "n k"]:
    """The log of the probabilities averaged over samples."""
    return torch.logsumexp(log_samples, 0) - log(len(log_samples))


def negative_log_likelihood(log_mean: Float[Tensor, "n k"], labels: Int64[Tensor, " n"]) -> float:
    """−log of the averaged predictive at the true class, mean over images."""
    return float(-log_mean.gather(1, labels[:, None]).mean())


def negative_log_likelihood_kim(
    log_samples: Float[Tensor, "s n k"], labels: Int64[Tensor, " n"]
) -> float:
    """The NLL as Kim et al. (2022) average it.

    Per test batch of 128: −log mean_s exp(−mean cross-entropy of sample s); then the mean over
    batches, each counting by its images, as their code does. It is never smaller than ours.
    """
    own = log_samples.gather(2, labels[None, :, None].expand(len(log_samples), -1, 1)).squeeze(2)
    losses = [
        len(batch[0]) * (log(len(own)) - torch.logsumexp(batch.mean(1), 0))
        for batch in torch.split(own, KIM_BATCH, 1)
    ]
    return float(torch.stack(losses).sum() / len(labels))


def calibration_error(probabilities: Float[Tensor, "n k"], labels: Int64[Tensor, " n"]) -> float:
    """ECE: |confidence − accuracy| in 15 equal bins of confidence, weighted by their images."""
    share, confidence, accuracy = reliability(probabilities, labels)
    return float((share * (confidence - accuracy).abs()).sum())


def reliability(
    probabilities: Float[Tensor, "n k"], labels: Int64[Tensor, " n"], bins: int = ECE_BINS
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Per bin of confidence: share of the images, mean confidence, accuracy (0 where empty)."""
    confidence, predicted = probabilities.max(1)
    # A confidence on the edge of two bins belongs to the lower one: (a, b].
    place = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    zeros = probabilities.new_zeros(bins)
    count = zeros.index_add(0, place, torch.ones_like(confidence))
    seen = count.clamp(min=1)
    mean_confidence = zeros.index_add(0, place, confidence) / seen
    correct = (predicted == labels).to(confidence.dtype)
    return count / len(labels), mean_confidence, zeros.index_add(0, place, correct) / seen


def risk_and_coverage(
    probabilities: Float[Tensor, "n k"], labels: Int64[Tensor, " n"], steps: int = 20
) -> dict[str, list[float]]:
    """Accuracy on the most confident points alone, for shares 1/steps, 2/steps, …, 1 of them.

    Args:
        probabilities: the averaged probabilities
        labels: the true classes
        steps: how many shares
    """
    confidence, predicted = probabilities.max(1)
    order = confidence.argsort(descending=True, stable=True)
    right = (predicted == labels)[order].double().cumsum(0)
    kept = [max(round(len(labels) * step / steps), 1) for step in range(1, steps + 1)]
    return {
        "kept": [number / len(labels) for number in kept],
        "accuracy": [float(right[number - 1]) / number for number in kept],
    }


def brier(probabilities: Float[Tensor, "n k"], labels: Int64[Tensor, " n"]) -> float:
    """Σ_k (p_k − 1[k is the class])², mean over images; between 0 and 2."""
    truth = torch.nn.functional.one_hot(labels, probabilities.shape[1])
    return float((probabilities - truth).square().sum(1).mean())


def disagreement(log_samples: Float[Tensor, "s n k"]) -> float:
    """The share of images for which two samples predict different classes, mean over pairs."""
    samples, _, classes = log_samples.shape
    if samples == 1:
        return 0.0
    votes = torch.nn.functional.one_hot(log_samples.argmax(2), classes).sum(0).double()
    agreeing_pairs = (votes * (votes - 1)).sum(1) / (samples * (samples - 1))
    return float(1 - agreeing_pairs.mean())


def class_accuracies(predicted: Predicted) -> list[float]:
    """The share of each class's points that is predicted correctly; 0 for a class without any."""
    found, counts = predicted.confusion.diagonal().double(), predicted.confusion.sum(1)
    return [float(share) for share in found / counts.clamp(min=1)]


def balanced_accuracy(predicted: Predicted) -> float:
    """The mean over classes of the share that is predicted correctly."""
    shares = torch.tensor(class_accuracies(predicted), dtype=torch.float64)
    there = predicted.confusion.sum(1).cpu() > 0
    return float(shares[there].mean())


def largest_class(predicted: Predicted) -> float:
    """The share of the largest class: the accuracy of always naming it."""
    counts = predicted.labels.bincount()
    return float(counts.max() / counts.sum())


def root_mean_square_error(predicted: PredictedNumbers) -> float:
    """RMSE of the mean prediction, over points and targets."""
    return float((predicted.mean - predicted.targets).double().square().mean().sqrt())


def root_mean_square_error_of_the_mean(predicted: PredictedNumbers) -> float:
    """RMSE of always predicting the mean of these targets."""
    targets = predicted.targets.double()
    return float((targets - targets.mean(0)).square().mean().sqrt())


def regression_nll(predicted: PredictedNumbers) -> float:
    """−log of the averaged predictive density, mean over points, in raw units."""
    noise = predicted.noise.double()
    away = (predicted.samples - predicted.targets).double() / noise
    log_density = -0.5 * away.square() - noise.log() - 0.5 * log(2 * torch.pi)
    return float(-predictive(log_density.sum(2, keepdim=True)).mean())


def coverage(predicted: PredictedNumbers) -> float:
    """The share of targets inside the 90 % intervals, mean ± 1.645 standard deviations."""
    reach = NormalDist().inv_cdf((1 + COVERAGE) / 2)
    inside = (predicted.mean - predicted.targets).abs() <= reach * predicted.std
    return float(inside.double().mean())


METRICS: tuple[Metric, ...] = (
    Metric(
        "accuracy",
        "Accuracy",
        lambda p: float((p.log_mean.argmax(1) == p.labels).double().mean()),
        higher_is_better=True,
    ),
    Metric("nll", "NLL", lambda p: negative_log_likelihood(p.log_mean, p.labels)),
    Metric(
        "nll_kim",
        "NLL of Kim et al.",
        lambda p: negative_log_likelihood_kim(p.log_samples.double(), p.labels),
    ),
    Metric("ece", "ECE", lambda p: calibration_error(p.probabilities, p.labels)),
    Metric("brier", "Brier", lambda p: brier(p.probabilities, p.labels)),
    Metric("disagreement", "Disagreement", lambda p: disagreement(p.log_samples)),
    Metric("balanced_accuracy", "Balanced accuracy", balanced_accuracy, higher_is_better=True),
    Metric("largest_class", "Largest class", largest_class, higher_is_better=True),
    Metric("class_accuracy", "Accuracy by class", class_accuracies, scalar=False),
    Metric("confusion", "Confusion matrix", lambda p: p.confusion.tolist(), scalar=False),
    Metric("rmse", "RMSE", root_mean_square_error, "regression"),
    Metric("nll", "NLL", regression_nll, "regression"),
    Metric("coverage", "Coverage of 90 % intervals", coverage, "regression", True),
    Metric(
        "mean_rmse", "RMSE of the mean target", root_mean_square_error_of_the_mean, "regression"
    ),
)
"""All metrics; those of a task are computed for it."""


def numbers(
    outputs: Float[Tensor, "s n k"],
    targets: Float[Tensor, "n k"],
    likelihood: Gaussian,
    std: Float[Tensor, " k"],
    mean: Float[Tensor, " k"],
) -> PredictedNumbers:
    """Outputs in scaled units as predictions in raw ones.

    Args:
        outputs: what each sample's network puts out
        targets: the truth, in raw units
        likelihood: the likelihood, whose noise is in scaled units
        std: standard deviation of the targets
        mean: mean of the targets
    """
    return PredictedNumbers(outputs * std + mean, likelihood.noise * std, targets)
