"""Optimizers of the coreset: SGD with momentum, and Adam."""

import torch
from torch import Tensor

from pseudocoreset.engine.loop import State

SLOTS = {"sgd": ("velocity",), "adam": ("first", "second", "count")}
"""What the rule of the updates keeps for each number that is learned."""
ADAM_BETA2, ADAM_EPS = 0.999, 1e-8


def with_slots(tensors: State, optimizer: str) -> State:
    """What is learned, and what the rule of the updates keeps for it."""
    found = dict(tensors)
    for name, key in (("images", "images"), ("labels", "label_logits")):
        if key in tensors:
            found |= {f"{slot}/{name}": torch.zeros_like(tensors[key]) for slot in SLOTS[optimizer]}
    return found


def _adam_step(slots: State, gradient: Tensor, momentum: float) -> tuple[State, Tensor]:
    """The new slots of Adam, and the direction to go; each point counts its own steps."""
    count = slots["count"] + 1
    first = momentum * slots["first"] + (1 - momentum) * gradient
    second = ADAM_BETA2 * slots["second"] + (1 - ADAM_BETA2) * gradient.square()
    root = (second / (1 - ADAM_BETA2**count)).sqrt() + ADAM_EPS
    direction = first / (1 - momentum**count) / root
    return {"first": first, "second": second, "count": count}, direction


def direction_of(
    slots: State, gradient: Tensor, optimizer: str, momentum: float
) -> tuple[State, Tensor]:
    """The rule's new slots, and the direction to go: down along it by the learning rate."""
    if optimizer == "adam":
        return _adam_step(slots, gradient, momentum)
    velocity = momentum * slots["velocity"] + gradient
    return {"velocity": velocity}, velocity
