"""How good averaged predictions are.

`log_samples` are log p(class | image, sample): samples × images × classes. The predictive
distribution of a posterior is the mean of the probabilities over samples.
"""

from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Float, Int64
from torch import Tensor

ECE_BINS = 15
KIM_BATCH = 128


@dataclass(frozen=True)
class Scores:
    """One posterior's scores; accuracy is in [0, 1]."""

    accuracy: float
    nll: float
    nll_kim: float
    ece: float
    brier: float
    disagreement: float


def predictive(log_samples: Float[Tensor, "s n k"]) -> Float[Tensor, "n k"]:
    """The log of the probabilities averaged over samples."""
    return torch.logsumexp(log_samples, 0) - log(len(log_samples))


def score(log_samples: Float[Tensor, "s n k"], labels: Int64[Tensor, " n"]) -> Scores:
    """All scores of one posterior."""
    log_mean = predictive(log_samples.double())
    return Scores(
        accuracy=float((log_mean.argmax(1) == labels).double().mean()),
        nll=negative_log_likelihood(log_mean, labels),
        nll_kim=negative_log_likelihood_kim(log_samples.double(), labels),
        ece=calibration_error(log_mean.exp(), labels),
        brier=brier(log_mean.exp(), labels),
        disagreement=disagreement(log_samples),
    )


def negative_log_likelihood(log_mean: Float[Tensor, "n k"], labels: Int64[Tensor, " n"]) -> float:
    """−log of the averaged predictive at the true class, mean over images."""
    return float(-log_mean.gather(1, labels[:, None]).mean())


def negative_log_likelihood_kim(
    log_samples: Float[Tensor, "s n k"], labels: Int64[Tensor, " n"]
) -> float:
    """The NLL as Kim et al. (2022) average it.

    Per test batch of 128: −log mean_s exp(−mean cross-entropy of sample s); then the mean over
    batches. It is never smaller than ours within a batch, nor over equal batches; the last batch
    may have fewer images, and counts as much as any.
    """
    own = log_samples.gather(2, labels[None, :, None].expand(len(log_samples), -1, 1)).squeeze(2)
    starts = range(0, len(labels), KIM_BATCH)
    per_batch = [own[:, start : start + KIM_BATCH].mean(1) for start in starts]
    losses = [log(len(own)) - torch.logsumexp(mean, 0) for mean in per_batch]
    return float(torch.stack(losses).mean())


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
