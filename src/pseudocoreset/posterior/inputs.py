"""Convert arrays, PIL images, files and rows of tables to inputs of networks."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Shaped
from PIL import Image, ImageOps
from torch import Tensor

from pseudocoreset.data import Column, Scaling, encode_rows
from pseudocoreset.data.assemble import resize
from pseudocoreset.data.decode import eight_bits, read_images
from pseudocoreset.data.npz import channels_first, read_arrays
from pseudocoreset.errors import UserError
from pseudocoreset.predictor import TEST_BATCH

BLOCK = TEST_BATCH
"""Inputs that are read and predicted at a time; batch statistics are taken over as many."""
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


def as_inputs(
    x: Any,
    input_shape: tuple[int, ...],
    scaling: Scaling,
    columns: tuple[Column, ...],
    *,
    scaled: bool,
    normalised: bool,
) -> Shaped[Tensor, "n ..."]:
    """Bytes for images and raw numbers for tables, or what networks see where `normalised`.

    Args:
        x: what was given
        input_shape: the shape that networks take
        scaling: how bytes or raw numbers become what networks see
        columns: the columns of a table
        scaled: floats are in [0, 1]
        normalised: floats are what networks see
    """
    if scaled and normalised:
        raise UserError("inputs are `scaled` or `normalised`: give one of the two.", "scaled")
    if _is_paths(x):
        paths = [x] if isinstance(x, str | Path) else list(x)
        return read_inputs([Path(path) for path in paths], input_shape, columns)[1]
    if isinstance(x, Image.Image) or _is_pil(x):
        images = [x] if isinstance(x, Image.Image) else list(x)
        return _from_pil(images, input_shape)
    if isinstance(x, list | tuple) and x and all(isinstance(part, Tensor) for part in x):
        x = torch.stack([part.detach().cpu() for part in x])
    try:
        array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise UserError(
            f"`x` is a {type(x).__name__}: give an array, images or paths of files.", "x"
        )
    if len(input_shape) == 1:
        if scaled:
            raise UserError("`scaled` is for images; a table's rows are raw numbers.", "scaled")
        return _rows(array, input_shape[0])
    if array.dtype == np.uint8:
        return _from_bytes(array, input_shape)
    return _from_floats(array, input_shape, scaling, scaled=scaled, normalised=normalised)


def _is_paths(x: Any) -> bool:
    if isinstance(x, str | Path):
        return True
    several = isinstance(x, list | tuple) and bool(x)
    return several and all(isinstance(part, str | Path) for part in x)


def _is_pil(x: Any) -> bool:
    several = isinstance(x, list | tuple) and bool(x)
    return several and all(isinstance(part, Image.Image) for part in x)


def _from_pil(images: Sequence[Image.Image], input_shape: tuple[int, ...]) -> Tensor:
    if len(input_shape) == 1:
        raise UserError("`x` are images and the posterior is for rows of a table.", "x")
    channels, side = input_shape[0], input_shape[-1]
    fitted = [
        ImageOps.fit(eight_bits(image, channels, "`x`"), (side, side), Image.Resampling.BILINEAR)
        for image in images
    ]
    arrays = [np.asarray(one).reshape(side, side, channels).transpose(2, 0, 1) for one in fitted]
    return torch.from_numpy(np.stack(arrays))


def _from_bytes(array: npt.NDArray[np.uint8], input_shape: tuple[int, ...]) -> Tensor:
    channels, side = input_shape[0], input_shape[-1]
    single = array.ndim == 2 or (array.ndim == 3 and 1 in _channel_places(array.shape, channels))
    if single:
        array = array[None]
    images = channels_first("`x`", "x", array)
    if not len(images):
        raise UserError("`x` holds no images: give at least one.", "x")
    if images.shape[1] != channels:
        raise UserError(
            f"`x` has images of {images.shape[1]} channels and the posterior is for {channels}.",
            "x",
        )
    return resize(torch.from_numpy(np.ascontiguousarray(images)), side)


def _channel_places(shape: tuple[int, ...], channels: int) -> list[int]:
    """[1] where three dimensions are one image with its channels, [] where they are grey images."""
    one_image = shape[0] == channels and shape[1] == shape[2] and channels > 1
    one_image = one_image or (shape[2] == channels and shape[0] == shape[1])
    grey = channels == 1 and shape[0] == 1 and shape[1] == shape[2]
    return [1] if one_image or grey else []


def _from_floats(
    array: npt.NDArray[Any],
    input_shape: tuple[int, ...],
    scaling: Scaling,
    *,
    scaled: bool,
    normalised: bool,
) -> Tensor:
    if not scaled and not normalised:
        raise UserError(
            f"`x` is {array.dtype}, whose scale is unknown: give bytes (uint8), or `scaled` for "
            "floats in [0, 1], or `normalised` for floats as networks see them.",
            "x",
        )
    images = torch.from_numpy(np.ascontiguousarray(array)).float()
    images = images[None] if images.ndim == len(input_shape) else images
    if tuple(images.shape[1:]) != input_shape or not len(images):
        raise UserError(
            f"`x` has the shape {'×'.join(map(str, array.shape))}: give "
            f"n×{'×'.join(map(str, input_shape))}.",
            "x",
        )
    if not bool(images.isfinite().all()):
        raise UserError("`x` holds NaN or infinity.", "x")
    if normalised:
        return images
    if not bool(((images >= 0) & (images <= 1)).all()):
        raise UserError("`x` has values outside [0, 1]: leave `scaled` out, or divide by 255.", "x")
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (scaling.mean, scaling.std))
    return (images - mean) / std


def _rows(array: npt.NDArray[Any], features: int) -> Tensor:
    rows = torch.from_numpy(np.ascontiguousarray(array)).float()
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != features or not len(rows):
        raise UserError(
            f"`x` has the shape {'×'.join(map(str, array.shape))}: give rows of {features} "
            "numbers.",
            "x",
        )
    if not bool(rows.isfinite().all()):
        raise UserError("`x` holds NaN or infinity.", "x")
    return rows


def read_inputs(
    paths: Sequence[Path], input_shape: tuple[int, ...], columns: tuple[Column, ...]
) -> tuple[list[str], Tensor]:
    """Read files: a name for each input, and the inputs.

    Args:
        paths: image files, folders of them, .npz files with `images`; CSV files for tables
        input_shape: the shape that networks take
        columns: the columns of a table
    """
    blocks = list(read_blocks(paths, input_shape, columns))
    names = [name for names, _ in blocks for name in names]
    return names, torch.cat([inputs for _, inputs in blocks])


def read_blocks(
    paths: Sequence[Path], input_shape: tuple[int, ...], columns: tuple[Column, ...]
) -> Iterator[tuple[list[str], Tensor]]:
    """The same, a block of inputs after another; images are read when their block is asked for.

    All blocks but the last have `BLOCK` inputs.

    Args:
        paths: image files, folders of them, .npz files with `images`; CSV files for tables
        input_shape: the shape that networks take
        columns: the columns of a table
    """
    names: list[str] = []
    parts: list[Tensor] = []
    for found_names, found in _parts(paths, input_shape, columns):
        start = 0
        while start < len(found):
            end = start + BLOCK - len(names)
            names += found_names[start:end]
            parts.append(found[start:end])
            start = end
            if len(names) == BLOCK:
                yield names, torch.cat(parts)
                names, parts = [], []
    if names:
        yield names, torch.cat(parts)


def _listed(paths: Sequence[Path], input_shape: tuple[int, ...]) -> list[str]:
    """The files to read, by name: as paths, many would take much memory."""
    files: list[str] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"{path} does not exist.", "x")
        if not path.is_dir():
            files.append(str(path))
            continue
        if len(input_shape) == 1:
            raise UserError(f"{path} is a folder: give a CSV file.", "x")
        inside = sorted(
            each
            for each in path.rglob("*")
            if each.suffix.lower() in IMAGE_SUFFIXES and not each.name.startswith(".")
        )
        if not inside:
            raise UserError(f"{path} holds no image files.", "x")
        files += map(str, inside)
    return files


def _parts(
    paths: Sequence[Path], input_shape: tuple[int, ...], columns: tuple[Column, ...]
) -> Iterator[tuple[list[str], Tensor]]:
    """The content of files: image files by the block, others whole."""
    table = len(input_shape) == 1
    try:
        for is_image, group in groupby(
            _listed(paths, input_shape), lambda file: not table and not file.endswith(".npz")
        ):
            while files := list(islice(group, BLOCK if is_image else 1)):
                if is_image:
                    yield files, _decoded(files, input_shape)
                else:
                    yield _whole(files[0], input_shape, columns)
    except OSError as error:
        raise UserError(f"{error.filename} can't be read ({error.strerror}).", "x") from None


def _decoded(files: Sequence[str], input_shape: tuple[int, ...]) -> Tensor:
    channels, side = input_shape[0], input_shape[-1]
    paths = [Path(file) for file in files]
    return torch.from_numpy(read_images(paths, channels, side, fit=True, progress=None, what=""))


def _whole(
    file: str, input_shape: tuple[int, ...], columns: tuple[Column, ...]
) -> tuple[list[str], Tensor]:
    """The inputs of a file that holds many: a table, or an .npz file."""
    if len(input_shape) == 1:
        found = torch.from_numpy(encode_rows(columns, file))
    else:
        arrays = read_arrays(Path(file), ("images",))
        found = _from_bytes(channels_first(file, "images", arrays["images"]), input_shape)
    return [f"{file}[{number}]" for number in range(len(found))], found
