"""ConvNet: equal blocks of convolution, norm, ReLU and average pooling under a linear head."""

from jaxtyping import Float
from torch import Tensor, nn

from .geometry import extra_padding, padded_side, pooled_side
from .norms import Norm


def default_depth(image_size: int) -> int:
    """Number of blocks that the field uses for a size: 2 below 28, 3 from there on, 4 from 64."""
    if image_size < 28:
        return 2
    return 3 if image_size < 64 else 4


class ConvNet(nn.Module):
    """`depth` blocks of 3×3 convolution, norm, ReLU, 2×2 average pooling; then a linear head."""

    def __init__(
        self, channels: int, image_size: int, classes: int, depth: int, width: int, norm: Norm
    ) -> None:
        super().__init__()
        side = padded_side(image_size)
        advice = (
            f"convnet at {image_size}×{image_size} takes a depth of at most "
            f"{side.bit_length() - 1}, not {depth}: use fewer layers or larger images"
        )
        layers: list[nn.Module] = []
        for block in range(depth):
            padding = 1 + extra_padding(image_size) if block == 0 else 1
            layers += [
                nn.Conv2d(channels if block == 0 else width, width, 3, padding=padding),
                norm.layer(width, side, advice),
                nn.ReLU(),
                nn.AvgPool2d(2),
            ]
            side = pooled_side(side, advice)
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(width * side * side, classes)

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Logits of a batch of images."""
        return self.classifier(self.features(images).flatten(1))  # type: ignore[no-any-return]
