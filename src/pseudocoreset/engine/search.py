"""The values of an option that `tune` tries, as its field states them.

lr_images: float = option(1000.0, "learning rate of the inputs", above=0, search=Around(8))
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Around:
    """Numbers about the recipe's, on a log scale: from value/down to value·up.

    Args:
        down: how far below
        up: how far above; default: as far
    """

    down: float
    up: float | None = None

    def bounds(self, value: float) -> tuple[float, float]:
        """The smallest and the largest number.

        Args:
            value: the recipe's
        """
        return value / self.down, value * (self.down if self.up is None else self.up)


@dataclass(frozen=True)
class Among:
    """These texts, and the recipe's.

    Args:
        values: the texts
    """

    values: tuple[str, ...]


@dataclass(frozen=True)
class Epochs:
    """An epoch that the experts were kept of, from the first after their start on.

    Args:
        after: the option of the first epoch, where this one is the last of several
    """

    after: str | None = None


Search = Around | Among | Epochs
