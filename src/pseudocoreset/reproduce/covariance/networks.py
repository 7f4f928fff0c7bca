"""The small network that variances are compared on."""

from jaxtyping import Float
from torch import Tensor, nn

from pseudocoreset.nets.mlp import MLP

WIDTH = 10


class Centred(nn.Module):
    """An MLP whose outputs have the mean 0.

    Softmax does not see a constant that is added to all outputs, so the data say nothing of it, and
    its variance would be the prior's.
    """

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.net = MLP(shape, outputs, depth=1, width=WIDTH)

    def forward(self, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Outputs minus their mean."""
        outputs: Tensor = self.net(inputs)
        return outputs - outputs.mean(1, keepdim=True)


def centred(channels: int, image_size: int, classes: int) -> nn.Module:
    """For images."""
    return Centred((channels, image_size, image_size), classes)
