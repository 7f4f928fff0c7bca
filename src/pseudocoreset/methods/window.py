"""Training steps on the coreset with a backward pass through all of them."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from pseudocoreset.augment import Chance
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.methods.base import Context, Points
from pseudocoreset.methods.map_solution import random_order
from pseudocoreset.nets import Weights
from pseudocoreset.training import train_mode


class Window:
    """The batches and augmentations of some steps, drawn beforehand, and the loss of each.

    A step finds its number in a loop's state as `step`, what was drawn for it as `index` and
    `chance_…`, and the weights that it started from, kept on the way ahead, as `path_…`. So the way
    back computes the same loss at the same weights.

    A coreset of more than `batch` points is gone through in random order, `batch` a step.

    Args:
        context: a network and the data
        steps: how many there are
        batch: points of the coreset that a step takes; None for all
        rng: where the draws come from
        half: whether the networks compute in half precision on CUDA
    """

    def __init__(
        self, context: Context, steps: int, batch: int | None, rng: Rng, *, half: bool = False
    ) -> None:
        self.steps = steps
        self._context = context
        self._batch = batch
        self._rng = rng
        self._half = half

    def draw(self, coreset: Points) -> State:
        """For each step, which points it takes (`index`) and what is random in it (`chance_…`).

        Args:
            coreset: the points
        """
        size, generator = len(coreset.inputs), self._rng.device
        index = torch.arange(size, device=generator.device).expand(self.steps, -1)
        if self._batch is not None:
            place = torch.arange(self.steps * self._batch, device=generator.device) % size
            index = random_order(size, self._rng)[place].view(self.steps, self._batch)
        chance = self._context.augmentation.chance
        drawn = [chance(index.shape[1], generator) for _ in range(self.steps)]
        stacked = (torch.stack(part) for part in zip(*drawn, strict=True))
        return {"index": index, **_entries(Chance(*stacked))}

    def no_path(self, start: Weights) -> State:
        """Room for the weights that each step starts from.

        Args:
            start: weights like them
        """
        return {f"path_{k}": v.new_zeros((self.steps, *v.shape)) for k, v in _named(start)}

    def keep(self, state: State) -> None:
        """Write the weights that this step starts from into the path.

        In place, since the path is long and a step adds one row to it.
        """
        for name in Weights._fields:
            state[f"path_{name}"].index_copy_(0, self._place(state), state[name][None])

    def weights(self, state: State) -> Weights:
        """The weights that this step started from."""
        return Weights(*(self._at_step(state, f"path_{name}") for name in Weights._fields))

    def loss(
        self,
        theta: Weights,
        inputs: Float[Tensor, "m ..."],
        targets: Shaped[Tensor, "m ..."],
        state: State,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " q"]]:
        """The mean loss of this step's batch, augmented, and the buffers after it.

        Args:
            theta: the weights
            inputs: of the whole coreset
            targets: of the whole coreset
            state: with the draws and the number of the step
        """
        index = self._at_step(state, "index")
        chance = Chance(*(self._at_step(state, f"chance_{name}") for name in Chance._fields))
        inputs, targets = (part.index_select(0, index) for part in (inputs, targets))
        augmentation = self._context.augmentation
        points = augmentation.by_chance(inputs, chance) if augmentation.kinds else inputs
        outputs, buffers = train_mode(self._context.net, theta, points, half=self._half)
        return self._context.likelihood.loss(outputs, targets), buffers

    def _place(self, state: State) -> Tensor:
        # Round and round: a loop may call its step a few times more, before those that count.
        return state["step"] % self.steps

    def _at_step(self, state: State, name: str) -> Tensor:
        return state[name].index_select(0, self._place(state)).squeeze(0)


def refuse_drawing(context: Context, method: str) -> None:
    """Refuse a network whose steps can't be taken again.

    Args:
        context: with the network
        method: the method's name
    """
    if context.net.draws:
        raise UserError(
            f"{context.net.spec} draws random numbers during training (for example dropout), "
            f"which {method} does not support: give another network or `method`.",
            "method",
        )


def _named(weights: Weights) -> list[tuple[str, Tensor]]:
    return list(weights._asdict().items())


def _entries(chance: Chance) -> State:
    return {f"chance_{name}": value for name, value in chance._asdict().items()}
