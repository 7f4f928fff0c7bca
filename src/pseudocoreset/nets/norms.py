"""The normalisation layers, by the names that dataset distillation gives them.

`instance` is a GroupNorm of one channel a group with a learned scale and shift, `group` one of
four groups, `layer` a LayerNorm over channels and pixels, `none` nothing.

`batch` is BatchNorm, and `stats` says how its statistics are treated:

- `stats=batch` (the default, as the reference code does): the statistics are always those of the
  images at hand. When a network trains on ten images, they are those ten images' own; a snapshot
  carries no statistics; at test time they are the test batch's, so that a prediction depends on
  the images that share its batch.
- `stats=kept`: training normalises with the batch's statistics and moves running ones towards
  them (momentum 0.1, variance unbiased). The running statistics are buffers: a snapshot carries
  them, and at test time they are used. After a few steps on ten images they are still near their
  start (mean 0, variance 1): that is what was asked for.
"""

from dataclasses import dataclass

from torch import nn

from pseudocoreset.errors import UserError

NORM_NAMES = ("instance", "group", "layer", "batch", "none")
STATS_NAMES = ("batch", "kept")
_GROUPS = 4


@dataclass(frozen=True)
class Norm:
    """A choice of normalisation: `name` one of NORM_NAMES, `stats` one of STATS_NAMES."""

    name: str = "instance"
    stats: str = "batch"

    def __str__(self) -> str:
        return f"norm=batch,stats={self.stats}" if self.name == "batch" else f"norm={self.name}"

    def layer(
        self, channels: int, side: int, advice: str = "use larger images or another norm."
    ) -> nn.Module:
        """The layer for maps of this many channels and this side.

        `advice` tells the user what to do about an instance norm that would see 1×1 maps.
        """
        match self.name:
            case "instance":
                if side == 1:
                    raise UserError(
                        "An instance norm on 1×1 feature maps would remove all information: "
                        f"{advice}",
                        parameter="net",
                    )
                return nn.GroupNorm(channels, channels)
            case "group":
                if channels % _GROUPS:
                    raise UserError(
                        f"norm=group needs a width that {_GROUPS} divides, not {channels}.",
                        parameter="net",
                    )
                return nn.GroupNorm(_GROUPS, channels)
            case "layer":
                return nn.LayerNorm([channels, side, side])
            case "batch":
                return nn.BatchNorm2d(channels, track_running_stats=self.stats == "kept")
            case "none":
                return nn.Identity()
            case _:
                raise ValueError(f"no norm is called {self.name}")
