"""The values of an option that `tune` tries.

lr_images: float = option(1000.0, "learning rate of the inputs", above=0, search=Around(8))
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Around:
    """Search numbers around the recipe's value on a log scale, from value/down to value·up.

    Args:
        down: the factor below
        up: the factor above; default: the same
    """

    down: float
    up: float | None = None

    def bounds(self, value: float) -> tuple[float, float]:
        """The smallest and the largest number.

        Args:
            value: the recipe's value
        """
        return value / self.down, value * (self.down if self.up is None else self.up)


@dataclass(frozen=True)
class Among:
    """Search these texts and the recipe's value.

    Args:
        values: the texts
    """

    values: tuple[str, ...]


@dataclass(frozen=True)
class Epochs:
    """Search the stored epochs of the experts.

    Args:
        after: the name of the option with the first epoch, if this option is the last epoch
    """

    after: str | None = None


Search = Around | Among | Epochs
