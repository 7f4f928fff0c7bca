"""Real images as JPEG files, as many as fit into a number of bytes: a control."""

import io
from typing import NamedTuple

import numpy
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from pseudocoreset.data import Data
from pseudocoreset.errors import UserError

SCAN = b"\xff\xda"
"""The marker after which a file has an image's own bytes."""


class Compressed(NamedTuple):
    """Images as they come out of their files, class by class, and what the files take."""

    images: UInt8[Tensor, "n c h w"]
    each: int
    """Images a class."""
    bytes: int
    """Of all files without the tables at their heads, and of the labels."""


def compressed_images(
    data: Data, budget: int, quality: int, label_bytes: int, generator: torch.Generator
) -> Compressed:
    """Random images, the same number per class, until the next one of each would not fit.

    The tables at the head of a JPEG file follow from the quality, so they do not count.

    Args:
        data: the data set
        budget: bytes
        quality: of the JPEG files
        label_bytes: what the label of an image takes
        generator: source of the choice
    """
    targets = data.train.targets.cpu()
    orders = []
    for label in range(data.classes):
        members = (targets == label).nonzero().squeeze(1)
        orders.append(members[torch.randperm(len(members), generator=generator)])
    taken, rounds = 0, []
    for place in range(min(map(len, orders))):
        files = [_file(data.train.inputs[int(order[place])], quality) for order in orders]
        needed = sum(map(_own_bytes, files)) + label_bytes * len(files)
        if taken + needed > budget:
            break
        taken += needed
        rounds.append([_decoded(file) for file in files])
    if not rounds:
        raise UserError(f"no JPEG image per class of {data.name} fits into {budget} bytes.", "data")
    images = torch.stack([torch.stack(column) for column in zip(*rounds, strict=True)])
    return Compressed(images.flatten(0, 1), len(rounds), taken)


def _file(image: UInt8[Tensor, "c h w"], quality: int) -> bytes:
    pixels = image.permute(1, 2, 0).cpu().numpy()
    buffer = io.BytesIO()
    picture = Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels)
    picture.save(buffer, format="jpeg", quality=quality)
    return buffer.getvalue()


def _own_bytes(file: bytes) -> int:
    """The bytes behind the tables."""
    return len(file) - file.rindex(SCAN)


def _decoded(file: bytes) -> UInt8[Tensor, "c h w"]:
    with Image.open(io.BytesIO(file)) as picture:
        pixels = numpy.array(picture)
    return torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None]).permute(2, 0, 1)
