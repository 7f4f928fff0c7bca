"""A cache of decoded images on disk."""

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from platformdirs import user_cache_path
from safetensors import SafetensorError, safe_open

from pseudocoreset.engine.files import write_tensors
from pseudocoreset.errors import UserError

VERSION = 1  # of the way images are decoded: an older cache is rebuilt


def cached_images(
    tree: Path,
    name: str,
    listing: str,
    shape: tuple[int, ...],
    decode: Callable[[], npt.NDArray[np.uint8]],
) -> npt.NDArray[np.uint8]:
    """The images that `decode` gives, from the cache if it holds those of this `listing`.

    The cache lies in `tree`, or in the user's cache folder where `tree` can't be written. One
    that is stale, truncated or damaged is rebuilt.
    """
    places = _places(tree, name)
    for place in places:
        cached = _read(place, listing, shape)
        if cached is not None:
            return cached
    images = decode()
    metadata = {"version": VERSION, "listing": listing, "checksum": _checksum(images)}
    for place in places:
        try:
            write_tensors(place, {"images": torch.from_numpy(images)}, metadata)
            break
        except (UserError, OSError, SafetensorError):  # read only, or full: it is a convenience
            continue
    return images


def _places(tree: Path, name: str) -> list[Path]:
    places = [tree / f"pseudocoreset-{name}.safetensors"]
    folder = user_cache_path("pseudocoreset", appauthor=False)
    if not folder.is_absolute():  # a user without a home
        return places
    which = hashlib.blake2b(str(tree.resolve()).encode(errors="replace"), digest_size=8).hexdigest()
    return [*places, folder / f"{name}-{which}.safetensors"]


def _read(path: Path, listing: str, shape: tuple[int, ...]) -> npt.NDArray[np.uint8] | None:
    """The images of a cache that is whole and of this listing, without copying them."""
    try:
        with safe_open(path, "pt") as file:
            metadata = json.loads(file.metadata()["pseudocoreset"])
            if (metadata["version"], metadata["listing"]) != (VERSION, listing):
                return None
            tensor = file.get_tensor("images")
            if tensor.dtype != torch.uint8 or tuple(tensor.shape) != shape:
                return None
            images: npt.NDArray[np.uint8] = tensor.numpy()
            return images if _checksum(images) == metadata["checksum"] else None
    except Exception:  # whatever is wrong with a cache, it is only to be rebuilt
        return None


def _checksum(images: npt.NDArray[np.uint8]) -> int:
    return zlib.crc32(np.ascontiguousarray(images).data)
