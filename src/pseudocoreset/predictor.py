"""The outputs of networks at many points."""

from copy import copy

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from pseudocoreset.data import Scaling
from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.nets import Net, Weights

TEST_BATCH = 1000  # points a forward pass; with batch statistics, also what they are taken over
CPU_BATCH = 50  # what a CPU's cache has room for; half as much time as for batches of 1000


class Predictor:
    """Computes a network's outputs at fixed points for different weights.

    Images are given as bytes, tables as raw numbers. The points go through a batch at a time; whole
    batches all take the same step.

    Args:
        net: the network
        inputs: the points
        scaling: how points are normalised; None if they already are
    """

    def __init__(self, net: Net, inputs: Shaped[Tensor, "n ..."], scaling: Scaling | None) -> None:
        self._net = net
        self._scaling = scaling
        most = CPU_BATCH if net.by_image and inputs.device.type == "cpu" else TEST_BATCH
        self._size = min(most, len(inputs))
        self._batches = list(torch.split(inputs, self._size))
        # To capture a step costs as much as some of them: not for a few points.
        self._captures = len(inputs) >= TEST_BATCH or inputs.device.type == "cpu"
        self._loop = Loop(self._step, torch.Generator(inputs.device))  # from which nothing is drawn

    def at(self, inputs: Shaped[Tensor, "n ..."]) -> "Predictor":
        """The same network at other points of the same shape; what was captured is used again.

        Args:
            inputs: the points, on the same device
        """
        other = copy(self)
        other._batches = list(torch.split(inputs, self._size))
        return other

    @torch.no_grad()
    def outputs(self, weights: Weights) -> Float[Tensor, "n k"]:
        """The outputs at all points, on their device."""
        weights = Weights(*(part.to(self._batches[0].device) for part in weights))
        whole = self._size
        zeros = weights.params.new_zeros((whole, self._net.outputs))
        self._loop.load({**weights._asdict(), "outputs": zeros})
        found = []
        for batch in self._batches:
            if len(batch) < whole or not self._captures:
                found.append(self._outputs(weights, batch))
                continue
            self._loop.load({"inputs": batch})
            self._loop.run(1)
            found.append(self._loop.state["outputs"].clone())
        return torch.cat(found)

    def _step(self, state: State) -> State:
        weights = Weights(state["params"], state["buffers"])
        return {"outputs": self._outputs(weights, state["inputs"])}

    def _outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        scaled = inputs if self._scaling is None else self._scaling.apply(inputs)
        return self._net.apply(weights, scaled)
