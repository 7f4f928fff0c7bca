"""Forms: how the stored numbers of a coreset become the inputs that networks see.

A form is a linear map u = decode(z) from stored numbers z to inputs u. The gradient is therefore
exact: ∇_z = decodeᵀ ∇_u.

    Pixels       u = z
    Mosaic(F)    z is F × F small images, each F times as large in u: F² images for one stored
    Chroma(F)    a mosaic with colour at half the resolution of brightness: 2F² images for one

In a mosaic, the tile in row r, column c of stored image i is seen image i·F² + r·F + c, upsampled
bilinearly (`align_corners=False`).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.engine.text import nearest, printable
from pseudocoreset.errors import UserError

LARGEST_FACTOR = 64
COLOURS = ((3**-0.5,) * 3, (2**-0.5, 0.0, -(2**-0.5)), (6**-0.5, -2 * 6**-0.5, 6**-0.5))
"""An orthonormal basis of red, green and blue: brightness, and two differences of colours."""


@dataclass(frozen=True)
class Form(ABC):
    """A linear map from stored numbers to inputs. Forms with equal fields are equal.

    Args:
        factor: how many inputs lie side by side in a stored image
    """

    factor: int

    @property
    def seen(self) -> int:
        """The number of seen inputs for each stored input."""
        return self.factor**2

    @abstractmethod
    def decode(self, stored: Float[Tensor, "m ..."]) -> Float[Tensor, "n ..."]:
        """The inputs that networks see, `seen` for each stored input. Differentiable.

        Args:
            stored: a coreset's numbers
        """

    @abstractmethod
    def pull_back(
        self, gradient: Float[Tensor, "n ..."], stored: Float[Tensor, "m ..."]
    ) -> Float[Tensor, "m ..."]:
        """The gradient with respect to the stored numbers: the transpose of `decode`.

        Args:
            gradient: the gradient with respect to the seen inputs
            stored: a coreset's numbers, whose shape is asked for
        """

    @abstractmethod
    def encode(self, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "m ..."]:
        """Stored numbers that approximate these inputs; a coreset can start from them.

        Args:
            inputs: `seen` for each that is to be stored, in the order in which `decode` gives them
        """

    @abstractmethod
    def check(self, input_shape: Sequence[int]) -> None:
        """Raise an error if inputs of this shape can't be stored in this form.

        Args:
            input_shape: (channels, height, width) of images, or (features,) of a table
        """

    def repeat(self, targets: Shaped[Tensor, "m ..."]) -> Shaped[Tensor, "n ..."]:
        """A target for each seen input, from one for each stored input.

        Args:
            targets: classes, or rows of numbers
        """
        return targets.repeat_interleave(self.seen, 0)


@dataclass(frozen=True)
class Pixels(Form):
    """Inputs are stored as they are. For images and tables."""

    factor: int = field(default=1, init=False, repr=False)

    def __str__(self) -> str:
        return "pixels"

    def decode(self, stored: Float[Tensor, "m ..."]) -> Float[Tensor, "n ..."]:
        """As they are."""
        return stored

    def pull_back(
        self,
        gradient: Float[Tensor, "n ..."],
        stored: Float[Tensor, "m ..."],  # noqa: ARG002
    ) -> Float[Tensor, "m ..."]:
        """As it is."""
        return gradient

    def encode(self, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "m ..."]:
        """As they are."""
        return inputs

    def check(self, input_shape: Sequence[int]) -> None:
        """All can be."""


@dataclass(frozen=True)
class Mosaic(Form):
    """Several small images in the space of one: `factor` × `factor` tiles, enlarged when seen.

    Args:
        factor: tiles side by side; the side of the images must be a multiple of it
    """

    def __post_init__(self) -> None:
        if not 2 <= self.factor <= LARGEST_FACTOR:
            raise UserError(
                f"`form` is a mosaic of {self.factor} tiles side by side, not from 2 to "
                f"{LARGEST_FACTOR}.",
                parameter="form",
            )

    def __str__(self) -> str:
        return f"mosaic:{self.factor}"

    def decode(self, stored: Float[Tensor, "m c h w"]) -> Float[Tensor, "n c h w"]:
        """The tiles, upsampled bilinearly."""
        return _enlarged(_cut(stored, self.factor), self.factor)

    def pull_back(
        self, gradient: Float[Tensor, "n c h w"], stored: Float[Tensor, "m c h w"]
    ) -> Float[Tensor, "m c h w"]:
        """The gradient of ⟨decode(z), gradient⟩ by z, which is the same at every z."""
        return _transposed(self, gradient, stored)

    def encode(self, inputs: Float[Tensor, "n c h w"]) -> Float[Tensor, "m c h w"]:
        """The mean of each F × F pixels, image by image in its tile."""
        _check_multiple(inputs, self)
        return _joined(F.avg_pool2d(inputs, self.factor), self.factor)

    def check(self, input_shape: Sequence[int]) -> None:
        """Images whose sides the factor divides can be."""
        _check_sides(self, input_shape, self.factor)


@dataclass(frozen=True)
class Chroma(Form):
    """A mosaic with colour at half the resolution of brightness: 2F² images in the space of one.

    Colours are separated by the orthonormal `COLOURS`. The first two channels of a stored image
    are the brightness of F × F images each. The third is four quarters: in the upper row both
    differences of colours of the first F × F images, in the lower row those of the others.

    Args:
        factor: tiles side by side; the images' side must be a multiple of twice the factor
    """

    def __post_init__(self) -> None:
        if not 1 <= self.factor <= LARGEST_FACTOR:
            raise UserError(
                f"`form` is a mosaic of {self.factor} tiles side by side, not from 1 to "
                f"{LARGEST_FACTOR}.",
                parameter="form",
            )

    def __str__(self) -> str:
        return f"chroma:{self.factor}"

    @property
    def seen(self) -> int:
        """Twice as many as in a mosaic."""
        return 2 * self.factor**2

    def decode(self, stored: Float[Tensor, "m 3 h w"]) -> Float[Tensor, "n 3 h w"]:
        """The tiles of brightness and of colours, upsampled bilinearly and put together."""
        bright, half = stored[:, :2].flatten(0, 1)[:, None], (s // 2 for s in stored.shape[2:])
        quarters = _cut(stored[:, 2:], 2).reshape(len(bright), 2, *half)
        bright = _enlarged(_cut(bright, self.factor), self.factor)
        colours = _enlarged(_cut(quarters, self.factor), 2 * self.factor)
        return _mixed(torch.cat([bright, colours], 1), transpose=True)

    def pull_back(
        self, gradient: Float[Tensor, "n 3 h w"], stored: Float[Tensor, "m 3 h w"]
    ) -> Float[Tensor, "m 3 h w"]:
        """The gradient of ⟨decode(z), gradient⟩ by z, which is the same at every z."""
        return _transposed(self, gradient, stored)

    def encode(self, inputs: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "m 3 h w"]:
        """Means over F × F pixels of the brightness, and over 2F × 2F of the colours."""
        _check_multiple(inputs, self)
        parts = _mixed(inputs, transpose=False)
        bright = _joined(F.avg_pool2d(parts[:, :1], self.factor), self.factor)
        colours = _joined(F.avg_pool2d(parts[:, 1:], 2 * self.factor), self.factor)
        quarters = _joined(colours.flatten(0, 1)[:, None], 2)
        return torch.cat([bright.reshape(len(quarters), 2, *inputs.shape[2:]), quarters], 1)

    def check(self, input_shape: Sequence[int]) -> None:
        """Images in colour whose sides twice the factor divides can be."""
        _check_sides(self, input_shape, 2 * self.factor)
        if input_shape[0] != 3:
            raise UserError(
                f"`form` is {self}, which is for images of 3 channels, not {input_shape[0]}.",
                parameter="form",
            )


NAMED: dict[str, tuple[type[Mosaic] | type[Chroma], int]] = {
    "mosaic": (Mosaic, 2),
    "chroma": (Chroma, 2),
}
"""Forms that take a factor, by name, and an example of a factor."""


def parse_form(form: str | Form) -> Form:
    """The form with this name: `pixels`, `mosaic:F` or `chroma:F`. Forms are returned unchanged.

    Args:
        form: a name or a form
    """
    if isinstance(form, Form):
        return form
    if form == "pixels":
        return Pixels()
    found = re.fullmatch(r"(\w+):([1-9][0-9]{0,3})", form) if isinstance(form, str) else None
    if found is not None and found[1] in NAMED:
        return NAMED[found[1]][0](int(found[2]))
    meant = nearest(str(form).partition(":")[0], ("pixels", *NAMED))
    factor = f":{NAMED[meant][1]}" if meant in NAMED else ""
    hint = f"did you mean {meant}{factor}?" if meant else ""
    raise UserError(
        f"`form` is {printable(form)}, not pixels, mosaic:F or chroma:F: "
        + (hint or "F is a whole number, as in mosaic:2."),
        parameter="form",
    )


def _upsampled(maps: Float[Tensor, "... t"], factor: int) -> Float[Tensor, "... h"]:
    """Linear interpolation along the last dimension, `factor` values for each.

    Of the values between two others, number p lies (p + ½)/factor − ½ from its own one; beyond the
    first and the last there is nothing but these.
    """
    before = torch.cat([maps[..., :1], maps[..., :-1]], -1)
    after = torch.cat([maps[..., 1:], maps[..., -1:]], -1)
    phases = []
    for number in range(factor):
        offset = (number + 0.5) / factor - 0.5
        other = before if offset < 0 else after
        phases.append((1 - abs(offset)) * maps + abs(offset) * other)
    return torch.stack(phases, -1).flatten(-2)


def _enlarged(tiles: Float[Tensor, "n c t u"], factor: int) -> Float[Tensor, "n c h w"]:
    """Tiles `factor` times as tall and wide.

    Only additions and products with numbers: on CUDA the gradient of F.interpolate is not the same
    from run to run.
    """
    wide = _upsampled(tiles, factor)
    return _upsampled(wide.transpose(-1, -2), factor).transpose(-1, -2).contiguous()


def _cut(stored: Float[Tensor, "m c h w"], factor: int) -> Float[Tensor, "n c t u"]:
    """The F × F tiles of each image, row by row."""
    images, channels, height, width = stored.shape
    tall, wide = height // factor, width // factor
    tiles = stored.reshape(images, channels, factor, tall, factor, wide)
    return tiles.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)


def _joined(tiles: Float[Tensor, "n c t u"], factor: int) -> Float[Tensor, "m c h w"]:
    """F × F tiles side by side in an image: undoes `_cut`."""
    tiles = tiles.reshape(-1, factor, factor, *tiles.shape[1:])
    # stored image, tile's row, its column, channel, pixel's row, its column
    return tiles.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


def _mixed(images: Float[Tensor, "n 3 h w"], *, transpose: bool) -> Float[Tensor, "n 3 h w"]:
    """Brightness and differences of colours, or back from there."""
    rows = zip(*COLOURS, strict=True) if transpose else COLOURS
    parts = images.unbind(1)
    mixed = [a * parts[0] + b * parts[1] + c * parts[2] for a, b, c in rows]
    return torch.stack(mixed, 1)


def _transposed(
    form: Form, gradient: Float[Tensor, "n c h w"], stored: Float[Tensor, "m c h w"]
) -> Float[Tensor, "m c h w"]:
    with torch.enable_grad():
        leaf = torch.zeros_like(stored, requires_grad=True)
        (back,) = torch.autograd.grad(form.decode(leaf), leaf, gradient)
    return back


def _check_multiple(inputs: Float[Tensor, "n c h w"], form: Form) -> None:
    if len(inputs) % form.seen:
        raise ValueError(f"{len(inputs)} images are no multiple of {form.seen}")


def _check_sides(form: Form, input_shape: Sequence[int], factor: int) -> None:
    if len(input_shape) != 3:
        raise UserError(
            f"`form` is {form}, which is for images: a table takes pixels.", parameter="form"
        )
    _, height, width = input_shape
    if height % factor or width % factor:
        raise UserError(
            f"`form` is {form}, and {factor} does not divide the side of {height}×{width} images.",
            parameter="form",
        )
