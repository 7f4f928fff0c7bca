"""Image files to bytes, many at a time."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from pseudocoreset.data.assemble import Progress
from pseudocoreset.errors import UserError

LARGEST_PIXELS = 80_000_000  # below Pillow's own warning; a few bytes can claim any size
FILES_AT_A_TIME = 64
NEVER_DECODED = {"BUFR", "GRIB", "HDF5", "MPEG"}  # what Pillow knows by name alone
UNDECODABLE = (
    "expected an image file, found one that can't be decoded or is cut short; replace it with a "
    "whole copy or remove it"
)


def probe_images(paths: Sequence[Path]) -> list[tuple[int, int, bool]]:
    """Width, height and whether the image is grey, of each file, without decoding it."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_probe_image, paths))


def _probe_image(path: Path) -> tuple[int, int, bool]:
    try:
        with Image.open(path) as image:
            shape = image.width, image.height, is_grey(image)
            image.verify()  # the checksums that a format has, which decoding doesn't look at
            return shape
    except PermissionError:
        raise
    except Exception:
        raise UserError(f"{path}: {UNDECODABLE}.") from None


def is_image_file(path: Path) -> bool:
    """Whether a file is an image by its extension or, damaged or not, by what it holds."""
    formats = Image.registered_extensions()
    if formats.get(path.suffix.lower(), "") in Image.OPEN.keys() - NEVER_DECODED:
        return True
    with path.open("rb") as stream:
        try:
            with Image.open(stream) as image:
                return image.format not in NEVER_DECODED
        except Image.DecompressionBombError:
            return True
        except Exception:  # on bytes that are no image, Pillow raises nearly anything
            return False


def is_grey(image: Image.Image) -> bool:
    """Whether an image's mode has no colour."""
    return image.mode in ("1", "L", "LA", "La", "F") or image.mode.startswith("I")


def read_images(
    paths: Sequence[Path],
    channels: int,
    side: int,
    *,
    fit: bool,
    progress: Progress | None,
    what: str,
) -> npt.NDArray[np.uint8]:
    """All images as n×c×side×side; where `fit` is off they must have that size already."""
    images = np.empty((len(paths), channels, side, side), np.uint8)

    def read_block(start: int) -> None:
        for position, path in enumerate(paths[start : start + FILES_AT_A_TIME], start):
            images[position] = read_image(path, channels, side, fit)

    # Threads: Pillow lets go of the interpreter while it decodes.
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        starts = range(0, len(paths), FILES_AT_A_TIME)
        for start, _ in zip(starts, pool.map(read_block, starts), strict=True):
            if progress is not None:
                progress(min(start + FILES_AT_A_TIME, len(paths)), len(paths), what)
    finally:
        pool.shutdown(cancel_futures=True)
    return images


def read_image(path: Path, channels: int, side: int, fit: bool) -> npt.NDArray[np.uint8]:
    """One image as c×side×side: its middle square, resized, the way up that its EXIF says."""
    try:
        with Image.open(path) as opened:
            if opened.width * opened.height > LARGEST_PIXELS:
                raise UserError(
                    f"{path}: {opened.width}×{opened.height} pixels are more than the limit of "
                    f"{LARGEST_PIXELS}; make the image smaller."
                )
            image = eight_bits(ImageOps.exif_transpose(opened), channels, str(path))
    except (UserError, PermissionError):
        raise
    # Pillow raises nearly anything on damaged bytes: OSError, SyntaxError, struct.error ...
    except Exception:
        raise UserError(f"{path}: {UNDECODABLE}.") from None
    if fit:
        image = ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)
    elif image.size != (side, side):
        raise UserError(
            f"{path}: expected {side}×{side} pixels, found {image.height}×{image.width}; give "
            "`image_size` to resize all images.",
            "image_size",
        )
    return np.asarray(image).reshape(side, side, channels).transpose(2, 0, 1)


def eight_bits(image: Image.Image, channels: int, source: str) -> Image.Image:
    """The image as grey (1 channel) or RGB (3 channels) bytes, on white where it is transparent."""
    if image.mode.startswith("I"):
        # 16 bits: Pillow would clip them at 255.
        image = Image.fromarray(np.rint(np.asarray(image).clip(0, 65535) / 257).astype(np.uint8))
    elif image.mode == "F":
        raise UserError(
            f"{source}: has floating-point pixels, which have no fixed range; save it with 8 or "
            "16 bits."
        )
    elif image.has_transparency_data:
        # Without this the colours below would show, which are often black, as the drawing may be.
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("L" if channels == 1 else "RGB")
