"""AlexNet for small images: five convolutions, three max poolings, a linear head, no norm."""

from jaxtyping import Float
from torch import Tensor, nn

from .geometry import extra_padding, padded_side


class AlexNet(nn.Module):
    """The field's small AlexNet: no strides, no dropout, one linear layer."""

    def __init__(self, channels: int, image_size: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 128, 5, padding=2 + extra_padding(image_size)),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(128, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(192, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 192, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(192, 192, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        side = padded_side(image_size) // 8
        self.classifier = nn.Linear(192 * side * side, classes)

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Logits of a batch of images."""
        return self.classifier(self.features(images).flatten(1))  # type: ignore[no-any-return]
