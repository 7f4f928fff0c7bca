"""LeNet: two 5×5 convolutions with max pooling, three linear layers, no norm."""

from jaxtyping import Float
from torch import Tensor, nn

from .geometry import extra_padding, padded_side


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling; the first linear layer fits the image size."""

    def __init__(self, channels: int, image_size: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=extra_padding(image_size)),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        side = ((padded_side(image_size) - 4) // 2 - 4) // 2
        self.classifier = nn.Sequential(
            nn.Linear(16 * side * side, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Logits of a batch of images."""
        return self.classifier(self.features(images).flatten(1))  # type: ignore[no-any-return]
