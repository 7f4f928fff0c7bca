"""Methods of a person's own, named as `toy_methods:Class`."""

import os
import signal
from dataclasses import dataclass

import torch

from pseudocoreset import Around, Estimate, Method, option


@dataclass(frozen=True)
class Quadratic(Method):
    """½ ‖inputs − centre‖² and ½ ‖targets − first class‖², and a count that the loop keeps."""

    needs_experts = False

    centre: float = option(0.5, "where the inputs go", at_least=-10, at_most=10)

    def prepare(self, context):  # noqa: ARG002
        return self

    def start(self):
        return {"count": torch.zeros(())}

    def gradient(self, coreset, state, rng):
        noise = torch.randn(coreset.inputs.shape, generator=rng.device)
        gradients = {"inputs": coreset.inputs - self.centre + noise}
        if coreset.targets.is_floating_point():
            target = torch.zeros_like(coreset.targets)
            target[:, 0] = 1
            gradients["targets"] = coreset.targets - target
        count = state["count"] + 1
        return Estimate(gradients, {"count": count}, {"count": float(count)})


class TellsTensors(Quadratic):
    """What is worth a line is not a number."""

    def gradient(self, coreset, state, rng):
        estimate = super().gradient(coreset, state, rng)
        estimate.info["loss"] = torch.ones(())
        return estimate


class KeepsNumbers(Quadratic):
    """What is kept is no tensor."""

    def gradient(self, coreset, state, rng):
        estimate = super().gradient(coreset, state, rng)
        estimate.state["count"] = 1.0
        return estimate


class StartsWithNumbers(Quadratic):
    """What is kept from the start is no tensor."""

    def start(self):
        return {"count": 0}


class KeepsTwice(Quadratic):
    """What is kept is one tensor under two names."""

    def gradient(self, coreset, state, rng):
        estimate = super().gradient(coreset, state, rng)
        estimate.state["same"] = estimate.state["count"]
        return estimate


class EveryOther(Quadratic):
    """Even updates move the even images, odd ones the odd."""

    def gradient(self, coreset, state, rng):
        estimate = super().gradient(coreset, state, rng)
        turn = (torch.arange(len(coreset.inputs)) + int(state["count"])) % 2 == 0
        estimate.gradients["inputs"][~turn] = 0
        return estimate


class NotFinite(Quadratic):
    """The third update's gradient is not finite, while this is set."""

    broken = True

    def gradient(self, coreset, state, rng):
        estimate = super().gradient(coreset, state, rng)
        if self.broken and int(state["count"]) == 2:
            estimate.gradients["inputs"][0, 0, 0, 0] = float("nan")
        return estimate


class KilledAtSeven(Quadratic):
    """The process dies in the seventh update, if the file that it is told of does not exist."""

    def gradient(self, coreset, state, rng):
        marker = os.environ["TOY_MARKER"]
        if int(state["count"]) == 6 and not os.path.exists(marker):  # noqa: PTH110
            with open(marker, "w"):  # noqa: PTH123
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return super().gradient(coreset, state, rng)


@dataclass(frozen=True)
class Searched(Quadratic):
    """Its inputs go where `tune` says; the process dies beyond a number of updates, if told to."""

    centre: float = option(0.5, "where the inputs go", above=0, search=Around(4))

    def gradient(self, coreset, state, rng):
        marker = os.environ.get("TOY_MARKER")
        if marker is not None:
            made = os.path.getsize(marker)  # noqa: PTH202
            if made == int(os.environ["TOY_UPDATES"]):
                os.kill(os.getpid(), signal.SIGKILL)
            with open(marker, "a") as file:  # noqa: PTH123
                file.write("x")
        return super().gradient(coreset, state, rng)


@dataclass(frozen=True)
class SearchedAndKilled(KilledAtSeven):
    """The same, killed once."""

    centre: float = option(0.5, "where the inputs go", above=0, search=Around(4))


class Missing(Quadratic):
    """Misses γ in the updates whose number is even."""

    def gradient(self, coreset, state, rng):
        estimate = super().gradient(coreset, state, rng)
        estimate.info["map_missed"] = int(estimate.state["count"]) % 2 == 0
        estimate.info["map_missed/1"] = estimate.info["map_missed"]
        return estimate


class LossNotFinite(Quadratic):
    """A finite gradient beside a loss that is not."""

    def gradient(self, coreset, state, rng):
        estimate = super().gradient(coreset, state, rng)
        return Estimate(estimate.gradients, estimate.state, {"loss": float("nan")})


class Interrupted(Quadratic):
    """A person presses Ctrl-C in the fourth update, while this is set."""

    pressed = True

    def gradient(self, coreset, state, rng):
        if self.pressed and int(state["count"]) == 3:
            raise KeyboardInterrupt
        return super().gradient(coreset, state, rng)


class WithoutLabels(Quadratic):
    """Forgets the labels that are to be learned."""

    def gradient(self, coreset, state, rng):
        estimate = super().gradient(coreset, state, rng)
        return Estimate({"inputs": estimate.gradients["inputs"]}, estimate.state)


class NoEstimate(Quadratic):
    """Gives the gradient alone."""

    def gradient(self, coreset, state, rng):
        return super().gradient(coreset, state, rng).gradients


class Noiseless(Quadratic):
    """The same gradient whatever is drawn."""

    def gradient(self, coreset, state, rng):
        estimate = super().gradient(coreset, state, rng)
        return Estimate({"inputs": coreset.inputs - self.centre}, estimate.state)


class FailsToPrepare(Quadratic):
    """A mistake of the person's."""

    def prepare(self, context):
        return context.no_such_thing


class PreparesNothing(Quadratic):
    """Gives no divergence."""

    def prepare(self, context):  # noqa: ARG002
        return None


def takes_nothing():
    """No method."""
