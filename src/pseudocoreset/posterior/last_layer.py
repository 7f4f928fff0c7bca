"""The posterior of the last layer in closed form, on networks trained on the coreset."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.options import option
from pseudocoreset.errors import UserError
from pseudocoreset.last_layer import HEAD_PRECISION, HEAD_PRIOR, head_posterior
from pseudocoreset.nets import Net, Weights
from pseudocoreset.posterior.ensemble import Ensemble
from pseudocoreset.posterior.weight import PointWeights


@dataclass(frozen=True)
class LastLayer(Ensemble):
    """A deep ensemble whose last layers are sampled from their Gaussian posterior.

    Networks are trained as in a deep ensemble. Then the last layer of each is replaced by `heads`
    samples of its posterior, given the network's features of the coreset without augmentation. The
    targets are those of VBPC: log-probabilities of softened labels (0.9 for the class, 0.1 spread
    over all) minus their mean, or the numbers for regression. A point that counts `weight` times
    has the precision weight·β.
    """

    name: ClassVar[str] = "last-layer"

    head_prior: float = option(
        HEAD_PRIOR, "precision of the prior of the last layer's weights (ρ)", above=0
    )
    head_precision: float = option(
        HEAD_PRECISION, "precision of the coreset's targets, for the last layer (β)", above=0
    )
    heads: int = option(10, "last layers drawn for each network", at_least=1)

    def check_net(self, net: Net) -> None:
        """Raise an error for a network that does not end with a linear layer."""
        net.head  # noqa: B018

    @property
    def samples_each(self) -> int:
        """The number of samples that `finish` makes from each set of weights."""
        return self.heads

    @torch.no_grad()
    def finish(
        self,
        net: Net,
        weights: Weights,
        coreset: Pseudocoreset,
        weight: PointWeights,
        generator: torch.Generator,
    ) -> list[Weights]:
        """The network with last layers drawn from their posterior."""
        assert coreset.likelihood is not None
        posterior = head_posterior(
            net.features(weights, coreset.seen_inputs),
            coreset.likelihood.regression_targets(coreset.seen_targets),
            self.head_prior,
            weight.mean * self.head_precision,
            weight.shares(coreset),
        )
        drawn = posterior.draw(self.heads, generator)
        if not bool(drawn.weight.isfinite().all()):
            raise UserError(
                "the last layer's posterior can't be solved in single precision: raise "
                f"`head_prior` ({self.head_prior:g}), or lower `head_precision` "
                f"({self.head_precision:g}) or `weight` ({weight.mean:g}).",
                "head_prior",
            )
        return [net.with_head(weights, *head) for head in zip(*drawn, strict=True)]
