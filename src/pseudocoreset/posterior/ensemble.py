"""A deep ensemble: networks trained each on its own, by SGD with momentum."""

from dataclasses import dataclass
from typing import ClassVar

from pseudocoreset.engine.options import option
from pseudocoreset.posterior.sampler import Sampler
from pseudocoreset.posterior.sghmc import SGHMCRule


@dataclass(frozen=True)
class Ensemble(Sampler):
    """MAP solutions from different starts: SGHMC at temperature 0, of which the end counts."""

    name: ClassVar[str] = "map"
    ensemble: ClassVar[bool] = True

    friction: float = option(0.1, "1 − momentum (α)", above=0, at_most=1)

    def rule(self, points: int, weight: float) -> SGHMCRule:
        """What moves the weights."""
        count = weight * points
        return SGHMCRule(self.step, self.friction, 0.0, self.decay(count), count)
