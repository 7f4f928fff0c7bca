"""The three models and their data: sizes of Manousakas et al. (2020)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.data import Data, Scaling, Split, load_data
from pseudocoreset.engine.random import Rng
from pseudocoreset.likelihoods import Categorical, Gaussian, Likelihood
from pseudocoreset.methods import FBPC, Points

PRIOR = 1.0
"""Precision τ of the prior N(0, 1/τ) of every weight."""
NOISE = 1.0
"""Standard deviation σ of the Gaussian likelihood."""
EXPERTS, EPOCHS, BATCH = 5, 40, 128
AS_IN_THE_PAPER = FBPC(
    samples=30,
    from_epoch=EPOCHS // 2,
    gamma=0.1,
    lr_map=0.05,
    max_map_steps=200,
    lr_x=0.05,
    lr_u=0.01,
    covariance_steps=30,
    real_batch=256,
)
"""Its values, but for the MAP solution: learning rate and bound are for linear models."""
Loss = Callable[[Points], Float[Tensor, ""]]
"""Of a coreset: its gradient is what a method follows; its value may mean nothing."""


@dataclass(frozen=True)
class Problem:
    """A model, linear in its weights θ, and data for it."""

    name: str
    data: Data
    likelihood: Likelihood
    net: str
    """The model as a network of the package."""
    learned: tuple[str, ...]
    """What methods move of a coreset: inputs, targets or both."""
    expert_lr: float

    @property
    def train(self) -> Points:
        """The data, scaled, in double precision; classes as they are."""
        inputs = self.data.scaling.apply(self.data.train.inputs).double()
        targets = self.data.train.targets
        return Points(inputs, targets.double() if targets.is_floating_point() else targets)

    def features(self, inputs: Float[Tensor, "m f"]) -> Float[Tensor, "m d"]:
        """φ: 1 and the inputs; 1 alone for the mean of a Gaussian.

        Args:
            inputs: of the points
        """
        ones = torch.ones_like(inputs[:, :1])
        return ones if self.name == "mean" else torch.cat([ones, inputs], 1)

    def weight(self, points: int) -> float:
        """n/m.

        Args:
            points: m
        """
        return len(self.data.train) / points

    def random_points(self, number: int, generator: torch.Generator) -> Points:
        """Some of the data, drawn at random; of classes, one of each at least.

        Args:
            number: how many
            generator: of random numbers
        """
        train = self.train
        order = torch.randperm(len(train.inputs), generator=generator)
        chosen = order[:number]
        if not train.targets.is_floating_point() and number > 1:
            shown = train.targets[order]
            if bool((shown[:number] == shown[0]).all()):
                other = order[shown != shown[0]][:1]
                chosen = torch.cat([order[: number - 1], other])
        return Points(train.inputs[chosen], train.targets[chosen])


def gaussian_mean(seed: int, dimensions: int = 200, number: int = 1000) -> Problem:
    """x_i ~ N(θ, σ²) with θ ~ N(0, 1/τ) in this many dimensions; a point is a target.

    Args:
        seed: of the data
        dimensions: of θ
        number: of points
    """
    generator = Rng(torch.device("cpu"), seed, "exact", "mean").host
    theta = torch.randn(dimensions, generator=generator) / PRIOR**0.5
    targets = theta + NOISE * torch.randn(number, dimensions, generator=generator)
    data = _numbers("gaussian mean", torch.zeros(number, 1), targets)
    return Problem("mean", data, Gaussian(dimensions, NOISE), _net("constant"), ("targets",), 0.05)


def linear_regression(seed: int, features: int = 100, number: int = 2000) -> Problem:
    """y_i = θᵀ(1, x_i) + N(0, σ²) with θ ~ N(0, 1/τ) and x_i ~ N(0, 1).

    Args:
        seed: of the data
        features: of x
        number: of points
    """
    generator = Rng(torch.device("cpu"), seed, "exact", "linear").host
    inputs = torch.randn(number, features, generator=generator)
    theta = torch.randn(1 + features, 1, generator=generator) / PRIOR**0.5
    clean = theta[:1] + inputs @ theta[1:]
    targets = clean + NOISE * torch.randn(number, 1, generator=generator)
    data = _numbers("linear regression", inputs, targets)
    return Problem("linear", data, Gaussian(1, NOISE), _net("linear"), ("inputs", "targets"), 0.05)


def logistic_regression(seed: int) -> Problem:  # noqa: ARG001
    """p(y = 1) = 1 / (1 + exp(−θᵀ(1, x))) on the training rows of breast-cancer, θ ~ N(0, 1/τ).

    Args:
        seed: of the trial; the data are the same in all
    """
    data = load_data("breast-cancer")
    return Problem("logistic", data, Categorical(2), _net("logit"), ("inputs",), 0.2)


PROBLEMS = {
    "mean": gaussian_mean,
    "linear": linear_regression,
    "logistic": logistic_regression,
}
TITLES = {
    "mean": "Gaussian mean, 200 dimensions, n = 1,000",
    "linear": "linear regression, 100 features and a bias, n = 2,000",
    "logistic": "logistic regression, breast-cancer, 30 features and a bias, n = {n}",
}


def _net(name: str) -> str:
    return f"pseudocoreset.reproduce.exact.networks:{name}"


def _numbers(name: str, inputs: Float[Tensor, "n f"], targets: Float[Tensor, "n k"]) -> Data:
    """Data that are used as they are; a few of them stand for the test points, which none uses."""
    plain = [Scaling((0.0,) * part.shape[1], (1.0,) * part.shape[1]) for part in (inputs, targets)]
    return Data(
        name,
        Split(inputs, targets),
        Split(inputs[:10], targets[:10]),
        (),
        plain[0],
        task="regression",
        target_scaling=plain[1],
    )
