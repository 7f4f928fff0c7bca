"""Likelihoods: the loss, predictions and progress figures for classification and regression.

Only this module distinguishes classification and regression. f are the outputs of a network for
an input with target y:

    Categorical    p(y | f) = softmax(f)_y; for a row of probabilities t, Σ_k t_k log p(k | f)
    Gaussian       p(y | f) = N(y; f, σ²), independently for each of the targets

A loss is −log p(y | f), averaged over the points. Losses and the progress figure neither wait for
the device nor look at values, so they can be compiled and captured in a CUDA graph.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, log, pi
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

MOST_OUTPUTS = 1_000_000
"""The largest number of outputs that a file may ask for."""
LABEL_SHARE = 0.9
"""The probability of the class itself in a softened label; the rest is spread over all classes."""
LEAST_PROBABILITY = 1e-6
"""Smaller probabilities are replaced by this one before taking a logarithm."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """A prediction of classes for n points and k classes.

    Args:
        probs: the probabilities, averaged over samples
        entropy: the entropy of `probs` in nats, the total uncertainty
        mutual_information: the part of the entropy, in nats, that more data would remove
        samples: the log-probabilities of each sample, if requested
    """

    probs: Float[Tensor, "n k"]
    entropy: Float[Tensor, " n"]
    mutual_information: Float[Tensor, " n"]
    samples: Float[Tensor, "s n k"] | None = None

    @property
    def classes(self) -> Int64[Tensor, " n"]:
        """The most probable class of each point."""
        return self.probs.argmax(1)

    def to(self, device: torch.device) -> "Prediction":
        """A copy on another device.

        Args:
            device: the device
        """
        return replace(self, **_moved(self, device))

    def __len__(self) -> int:
        """The number of points."""
        return len(self.probs)

    def __repr__(self) -> str:
        return f"Prediction(points: {self.probs.shape[0]}, classes: {self.probs.shape[1]})"


def _moved(prediction: Any, device: torch.device) -> dict[str, Tensor]:
    return {k: v.to(device) for k, v in vars(prediction).items() if isinstance(v, Tensor)}


@runtime_checkable
class TargetScaling(Protocol):
    """How raw targets were scaled, column by column: (y − mean) / std."""

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each column."""

    @property
    def std(self) -> tuple[float, ...]:
        """The standard deviation of each column."""


@dataclass(frozen=True, eq=False)
class RegressionPrediction:
    """A prediction of numbers for n points and k targets.

    Args:
        mean: the mean over samples
        std: the standard deviation of a new target: noise and spread of the samples
        epistemic_std: the spread of the samples, which more data would reduce
        samples: the mean of each sample, if requested
    """

    mean: Float[Tensor, "n k"]
    std: Float[Tensor, "n k"]
    epistemic_std: Float[Tensor, "n k"]
    samples: Float[Tensor, "s n k"] | None = None

    def unscaled(self, scaling: TargetScaling | None) -> "RegressionPrediction":
        """The prediction in the targets' original units.

        Args:
            scaling: how the training targets were scaled; None if they were not
        """
        if scaling is None:
            return self
        mean, std = (self.mean.new_tensor(part) for part in (scaling.mean, scaling.std))
        return replace(
            self,
            mean=self.mean * std + mean,
            std=self.std * std,
            epistemic_std=self.epistemic_std * std,
            samples=None if self.samples is None else self.samples * std + mean,
        )

    def to(self, device: torch.device) -> "RegressionPrediction":
        """A copy on another device.

        Args:
            device: the device
        """
        return replace(self, **_moved(self, device))

    def __len__(self) -> int:
        """The number of points."""
        return len(self.mean)

    def __repr__(self) -> str:
        return f"RegressionPrediction(points: {self.mean.shape[0]}, targets: {self.mean.shape[1]})"


class Likelihood(ABC):
    """p(target | outputs of a network). Likelihoods with equal fields are equal."""

    kind: ClassVar[str]
    """Its name in files."""
    figure_name: ClassVar[str]
    """What `progress_figure` is called."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of outputs a network must have."""

    @property
    def step_scale(self) -> float:
        """A factor for step sizes; 1 for classification.

        The curvature of a Gaussian's loss is 1/noise² in the outputs: steps shrink as noise².
        """
        return 1.0

    @abstractmethod
    def losses(
        self, outputs: Float[Tensor, "n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, " n"]:
        """−log p(target | outputs), point by point.

        Args:
            outputs: of a network
            targets: classes or rows of probabilities; for regression, scaled numbers
        """

    @abstractmethod
    def loss(
        self, outputs: Float[Tensor, "n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, ""]:
        """The mean of `losses`.

        Args:
            outputs: of a network
            targets: as for `losses`
        """

    def weighted(
        self, targets: Shaped[Tensor, "n ..."], shares: Float[Tensor, " n"]
    ) -> Shaped[Tensor, "n ..."]:
        """Targets whose losses are those of `targets`, each times its share.

        Args:
            targets: as for `losses`
            shares: what the loss of each point is multiplied by
        """
        raise NotImplementedError  # only classes have points that count differently

    @abstractmethod
    def nll_of_mixture(
        self, outputs: Float[Tensor, "s n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, " n"]:
        """−log of p(target | outputs) averaged over samples, point by point.

        Args:
            outputs: of a network for each sample of its weights
            targets: as for `losses`
        """

    @abstractmethod
    def lowest(self, targets: Shaped[Tensor, "n ..."]) -> float:
        """The smallest possible `loss` for these targets.

        Args:
            targets: as for `losses`
        """

    @abstractmethod
    def progress_figure(
        self, outputs: Float[Tensor, "n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, ""]:
        """The figure that is shown during training, called `figure_name`.

        Args:
            outputs: of a network
            targets: as for `losses`
        """

    @abstractmethod
    def predict(
        self, outputs: Float[Tensor, "s n k"], *, keep_samples: bool = False
    ) -> Prediction | RegressionPrediction:
        """The prediction of all samples together.

        Args:
            outputs: of a network for each sample of its weights
            keep_samples: whether to keep the prediction of each sample
        """

    @abstractmethod
    def expected(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """The expected target according to one network: probabilities or numbers.

        Args:
            outputs: of a network
        """

    @abstractmethod
    def regression_targets(self, targets: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Targets for a regression on the outputs. Differentiable.

        Args:
            targets: as for `losses`
        """

    @abstractmethod
    def nll_of_gaussian(
        self,
        mean: Float[Tensor, "n k"],
        variance: Float[Tensor, " n"],
        targets: Shaped[Tensor, "n ..."],
    ) -> Float[Tensor, " n"]:
        """−log of p(target | outputs) averaged over normal outputs, point by point.

        Args:
            mean: of each output
            variance: of all outputs at a point, which are independent
            targets: as for `losses`
        """

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """The fields and the kind for a file; `from_json` reads them."""

    @staticmethod
    def from_json(fields: object) -> "Likelihood":
        """The likelihood described by a file.

        Args:
            fields: what `as_json` gave, read back
        """
        match fields:
            case {"kind": "categorical", "classes": int(classes), **rest} if not rest:
                return Categorical(classes)
            case {"kind": "gaussian", "targets": int(targets), "noise": float(noise), **rest} if (
                not rest
            ):
                return Gaussian(targets, noise)
        kind = fields.get("kind") if isinstance(fields, Mapping) else fields
        raise UserError(
            f"A likelihood of kind {printable(kind)}, or one of its fields, is not known."
        )


@dataclass(frozen=True)
class Categorical(Likelihood):
    """Classification by softmax.

    Args:
        classes: the number of classes
    """

    kind: ClassVar[str] = "categorical"
    figure_name: ClassVar[str] = "accuracy"

    classes: int

    def __post_init__(self) -> None:
        _check_count(self.classes, "classes")

    @property
    def outputs(self) -> int:
        """One logit per class."""
        return self.classes

    def losses(
        self, outputs: Float[Tensor, "n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, " n"]:
        """Cross-entropy, point by point."""
        return F.cross_entropy(outputs, targets, reduction="none")

    def loss(
        self, outputs: Float[Tensor, "n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, ""]:
        """Mean cross-entropy."""
        return F.cross_entropy(outputs, targets)

    def weighted(
        self, targets: Shaped[Tensor, "n ..."], shares: Float[Tensor, " n"]
    ) -> Float[Tensor, "n k"]:
        """Rows of probabilities times the shares: the loss is linear in the row."""
        if not targets.is_floating_point():
            targets = F.one_hot(targets, self.classes)
        return shares[:, None] * targets

    def nll_of_mixture(
        self, outputs: Float[Tensor, "s n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, " n"]:
        """−log of the mean probability of the class."""
        log_mean = _log_mean(outputs.log_softmax(2))
        if targets.ndim == 1:
            return -log_mean.gather(1, targets[:, None]).squeeze(1)
        return -(targets * log_mean).sum(1)

    def lowest(self, targets: Shaped[Tensor, "n ..."]) -> float:
        """0 for classes; for rows of probabilities their mean entropy."""
        if targets.ndim == 1:
            return 0.0
        rows = targets.detach()
        return float(-torch.xlogy(rows, rows).sum(1).mean())

    def progress_figure(
        self, outputs: Float[Tensor, "n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, ""]:
        """The share of points whose most probable class is right."""
        classes = targets if targets.ndim == 1 else targets.argmax(1)
        return (outputs.argmax(1) == classes).float().mean()

    def predict(self, outputs: Float[Tensor, "s n k"], *, keep_samples: bool = False) -> Prediction:
        """Mean probabilities, their entropy, and the mutual information of class and sample."""
        log_probs = outputs.log_softmax(2)
        log_mean = _log_mean(log_probs)
        entropy = _entropy(log_mean)
        information = (entropy - _entropy(log_probs).mean(0)).clamp(min=0)  # but for rounding
        return Prediction(log_mean.exp(), entropy, information, log_probs if keep_samples else None)

    def expected(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """Softmax."""
        return outputs.softmax(1)

    def softened(self, classes: Int64[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """Classes as rows of probabilities: LABEL_SHARE on the class, the rest spread over all.

        Args:
            classes: numbers of classes
        """
        hit = classes[:, None] == torch.arange(self.classes, device=classes.device)
        return (1 - LABEL_SHARE) / self.classes + LABEL_SHARE * hit.float()

    def regression_targets(self, targets: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Log-probabilities less their mean over the classes; classes are softened before."""
        rows = targets if targets.is_floating_point() else self.softened(targets)
        logs = rows.clamp(min=LEAST_PROBABILITY).log()
        return logs - logs.mean(1, keepdim=True)

    def nll_of_gaussian(
        self,
        mean: Float[Tensor, "n k"],
        variance: Float[Tensor, " n"],
        targets: Shaped[Tensor, "n ..."],
    ) -> Float[Tensor, " n"]:
        """By softmax(mean / √(1 + π/8 · variance)), which is about the mean softmax."""
        return self.losses(mean / (1 + pi / 8 * variance).sqrt()[:, None], targets)

    def as_json(self) -> dict[str, Any]:
        """Kind and number of classes."""
        return {"kind": self.kind, "classes": self.classes}


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Regression with Gaussian noise.

    Args:
        targets: the number of targets per point
        noise: standard deviation of the noise, in the units of the scaled targets
    """

    kind: ClassVar[str] = "gaussian"
    figure_name: ClassVar[str] = "rmse"

    targets: int = 1
    noise: float = 1.0

    def __post_init__(self) -> None:
        _check_count(self.targets, "targets")
        if not (isfinite(self.noise) and self.noise > 0):
            raise UserError(f"`noise` is {self.noise}, not above 0.", parameter="noise")

    @property
    def outputs(self) -> int:
        """One number per target."""
        return self.targets

    @property
    def _constant(self) -> float:
        return self.targets * (log(self.noise) + 0.5 * log(2 * pi))

    @property
    def step_scale(self) -> float:
        """noise², and no more than 1."""
        return min(1.0, self.noise**2)

    def losses(
        self, outputs: Float[Tensor, "n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, " n"]:
        """½((f − y)/σ)² + log σ + ½log 2π, summed over the targets, point by point."""
        # The shape is asked for, since n×1 minus n would be n×n.
        error = (outputs - targets.reshape(outputs.shape)) / self.noise
        return 0.5 * error.square().sum(1) + self._constant

    def loss(
        self, outputs: Float[Tensor, "n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, ""]:
        """The mean of `losses`."""
        return self.losses(outputs, targets).mean()

    def nll_of_mixture(
        self, outputs: Float[Tensor, "s n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, " n"]:
        """−log of the mean density at the targets."""
        error = (outputs - targets.reshape(outputs.shape[1:])) / self.noise
        return self._constant - _log_mean(-0.5 * error.square().sum(2))

    def lowest(self, targets: Shaped[Tensor, "n ..."]) -> float:  # noqa: ARG002
        """The loss of outputs that equal the targets; below 0 for little noise."""
        return self._constant

    def progress_figure(
        self, outputs: Float[Tensor, "n k"], targets: Shaped[Tensor, "n ..."]
    ) -> Float[Tensor, ""]:
        """The root of the mean squared error, in scaled units."""
        return (outputs - targets.reshape(outputs.shape)).square().mean().sqrt()

    def predict(
        self, outputs: Float[Tensor, "s n k"], *, keep_samples: bool = False
    ) -> RegressionPrediction:
        """Mean and standard deviation of the mixture of normal distributions, one a sample."""
        variance, mean = torch.var_mean(outputs, 0, correction=0)
        return RegressionPrediction(
            mean,
            (variance + self.noise**2).sqrt(),
            variance.sqrt(),
            outputs if keep_samples else None,
        )

    def expected(self, outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """The outputs themselves."""
        return outputs

    def regression_targets(self, targets: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """The targets themselves."""
        return targets.reshape(len(targets), self.targets)

    def nll_of_gaussian(
        self,
        mean: Float[Tensor, "n k"],
        variance: Float[Tensor, " n"],
        targets: Shaped[Tensor, "n ..."],
    ) -> Float[Tensor, " n"]:
        """−log N(y; mean, variance + σ²), exact."""
        total = (variance + self.noise**2)[:, None]
        error = (mean - targets.reshape(mean.shape)).square() / total
        return 0.5 * (error + (2 * pi * total).log()).sum(1)

    def as_json(self) -> dict[str, Any]:
        """Kind, number of targets and noise."""
        return {"kind": self.kind, "targets": self.targets, "noise": float(self.noise)}


def _check_count(number: int, name: str) -> None:
    if isinstance(number, bool) or not 1 <= number <= MOST_OUTPUTS:
        raise UserError(f"`{name}` is {number}, not from 1 to {MOST_OUTPUTS}.", parameter=name)


def _log_mean(logs: Float[Tensor, "s n *k"]) -> Float[Tensor, "n *k"]:
    """The log of the mean of the exponentials over samples."""
    return torch.logsumexp(logs, 0) - log(len(logs))


def _entropy(log_probs: Float[Tensor, "*n k"]) -> Float[Tensor, "*n"]:
    probs = log_probs.exp()
    return -torch.where(probs > 0, probs * log_probs, 0).sum(-1)  # 0 · log 0 is 0
