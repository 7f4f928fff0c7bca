"""The sizes of feature maps."""

from pseudocoreset.errors import UserError


def extra_padding(image_size: int) -> int:
    """Pixels of padding that the first convolution adds, on each side, to its usual ones.

    A 28×28 image is brought to the 32×32 geometry, as the field does for MNIST.
    """
    return 2 if image_size == 28 else 0


def padded_side(image_size: int) -> int:
    """Side of the image with the first convolution's extra padding."""
    return image_size + 2 * extra_padding(image_size)


def pooled_side(side: int, advice: str) -> int:
    """Side of the map after a 2×2 pooling; `advice` says what to do if nothing is left of it."""
    if side < 2:
        raise UserError(
            f"2×2 pooling is not possible on a {side}×{side} feature map: {advice}",
            parameter="net",
        )
    return side // 2
