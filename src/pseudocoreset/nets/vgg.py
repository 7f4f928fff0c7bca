"""VGG11 for small images: eight 3×3 convolutions with norms, five max poolings, a linear head."""

from jaxtyping import Float
from torch import Tensor, nn

from .geometry import extra_padding, padded_side, pooled_side
from .norms import Norm

# The widths of the convolutions, stage by stage; a 2×2 max pooling ends each stage.
_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class VGG11(nn.Module):
    """VGG11 with one linear layer on the flattened map."""

    def __init__(self, channels: int, image_size: int, classes: int, norm: Norm) -> None:
        super().__init__()
        advice = (
            f"vgg11 can't take {image_size}×{image_size} images: "
            "give another `net`, or images of 28×28, or of 32×32 or more."
        )
        side = padded_side(image_size)
        padding = 1 + extra_padding(image_size)
        layers: list[nn.Module] = []
        for stage in _STAGES:
            for width in stage:
                layers += [
                    nn.Conv2d(channels, width, 3, padding=padding),
                    norm.layer(width, side, advice),
                    nn.ReLU(),
                ]
                channels, padding = width, 1
            layers.append(nn.MaxPool2d(2))
            side = pooled_side(side, advice)
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels * side * side, classes)

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Logits of a batch of images."""
        return self.classifier(self.features(images).flatten(1))  # type: ignore[no-any-return]
