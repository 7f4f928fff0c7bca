"""ResNet18 and ResNet34 for small images: a 3×3 stem without stride or pooling."""

from jaxtyping import Float
from torch import Tensor, nn

from .geometry import extra_padding, padded_side
from .norms import Norm

RESNET18_BLOCKS = (2, 2, 2, 2)
RESNET34_BLOCKS = (3, 4, 6, 3)
_WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with norms, added to a shortcut: relu(f(x) + shortcut(x))."""

    def __init__(self, channels: int, width: int, stride: int, side: int, norm: Norm) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
            norm.layer(width, side),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            norm.layer(width, side),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride=stride, bias=False),
                norm.layer(width, side),
            )
        self.relu = nn.ReLU()

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """The block's maps."""
        return self.relu(self.residual(maps) + self.shortcut(maps))  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """Four stages of basic blocks, the last three halving the map; global average; linear head."""

    def __init__(
        self, channels: int, image_size: int, classes: int, blocks: tuple[int, ...], norm: Norm
    ) -> None:
        super().__init__()
        side = padded_side(image_size)
        padding = 1 + extra_padding(image_size)
        self.stem = nn.Sequential(
            nn.Conv2d(channels, _WIDTHS[0], 3, padding=padding, bias=False),
            norm.layer(_WIDTHS[0], side),
            nn.ReLU(),
        )
        stages: list[nn.Module] = []
        before = _WIDTHS[0]
        for stage, (width, count) in enumerate(zip(_WIDTHS, blocks, strict=True)):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                side = -(-side // stride)  # a padded convolution with a stride rounds up
                stages.append(BasicBlock(before, width, stride, side, norm))
                before = width
        self.features = nn.Sequential(*stages)
        self.classifier = nn.Linear(before, classes)

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Logits of a batch of images."""
        maps = self.features(self.stem(images))
        return self.classifier(maps.mean(dim=(2, 3)))  # type: ignore[no-any-return]
