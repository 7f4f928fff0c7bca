"""One coreset for several networks: the sum of their gradients (Algorithm 1)."""

from collections.abc import Sequence

from pseudocoreset.engine.loop import State
from pseudocoreset.engine.random import Rng
from pseudocoreset.methods.base import Divergence, Estimate, Points


class Multi:
    """g ← Σ_a g^(a), each architecture with its own network, experts and state."""

    def __init__(self, parts: Sequence[Divergence]) -> None:
        self._parts = parts

    def start(self) -> State:
        """The parts' states, by number."""
        return _joined([part.start() for part in self._parts])

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """The sum; figures of part i are named `name/i`."""
        gradients: State = {}
        states: list[State] = []
        info: dict[str, float] = {}
        for number, part in enumerate(self._parts):
            prefix = f"{number}/"
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            estimate = part.gradient(coreset, own, rng)
            for name, value in estimate.gradients.items():
                gradients[name] = gradients[name] + value if name in gradients else value
            states.append(estimate.state)
            info |= {f"{name}/{number}": value for name, value in estimate.info.items()}
        return Estimate(gradients, _joined(states), info)


def _joined(states: list[State]) -> State:
    return {f"{i}/{name}": value for i, own in enumerate(states) for name, value in own.items()}
