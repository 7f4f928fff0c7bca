"""Deep ensembles: networks trained separately by SGD with momentum."""

from dataclasses import dataclass
from typing import ClassVar

from pseudocoreset.engine.options import option
from pseudocoreset.posterior.sampler import Sampler
from pseudocoreset.posterior.sghmc import SGHMCRule


@dataclass(frozen=True)
class Ensemble(Sampler):
    """A deep ensemble: networks trained from different starts by SGD with momentum."""

    name: ClassVar[str] = "map"
    ensemble: ClassVar[bool] = True

    friction: float = option(0.1, "1 − momentum (α)", above=0, at_most=1)

    def rule(self, points: int, weight: float) -> SGHMCRule:
        """The rule that moves the weights."""
        count = weight * points
        return SGHMCRule(self.step, self.friction, 0.0, self.decay(count), count)
