"""Any map-style `torch.utils.data.Dataset` of (image, label) as `Data`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from pseudocoreset.data.assemble import blame, make_image_data, make_split
from pseudocoreset.data.dataset import Data, Scaling
from pseudocoreset.data.decode import eight_bits, is_grey
from pseudocoreset.errors import UserError


def from_dataset(
    train: Any,
    test: Any,
    name: str = "dataset",
    class_names: Sequence[str] | None = None,
    scaling: Scaling | None = None,
    mirror: bool = True,
) -> Data:
    """Make a data set from two map-style PyTorch data sets, such as torchvision's.

    An image is a PIL image, or a tensor or array of uint8 or of floats in [0, 1]: h×w, c×h×w or
    h×w×c with 1 or 3 channels. If both of the last two fit, a tensor is c×h×w and an array h×w×c.

    Args:
        train: the training set
        test: the test set
        name: a name for the data
        class_names: by default `classes` of the data set, or else the numbers
        scaling: how pixels are normalised; by default to mean 0 and deviation 1 per channel
        mirror: whether an image flipped left to right still shows its class
    """
    with blame("train"):
        train_images, train_labels = _read(train, f"{name}, train")
    with blame("test"):
        test_images, test_labels = _read(test, f"{name}, test")
    if class_names is None:
        highest = min(int(train_labels.max(initial=0)), len(train_labels))
        class_names = getattr(train, "classes", None) or [str(i) for i in range(highest + 1)]
    names = [str(class_name) for class_name in class_names]
    with blame("train"):
        train_split = make_split(f"{name}, train", train_images, train_labels, len(names))
    with blame("test"):
        test_split = make_split(f"{name}, test", test_images, test_labels, len(names))
    with blame("train"):
        return make_image_data(
            name, name, train_split, test_split, names, scaling=scaling, mirror=mirror
        )


def _read(dataset: Any, source: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    try:
        size = len(dataset)
    except TypeError:
        raise UserError(
            f"{source}: has no length; give a map-style data set, which has one."
        ) from None
    if not hasattr(dataset, "__getitem__"):
        raise UserError(
            f"{source}: is a {type(dataset).__name__}, which can't be indexed; give the data set "
            "itself, not a loader."
        )
    if size == 0:
        raise UserError(f"{source}: holds no images; give at least one for each class.")
    images: npt.NDArray[np.uint8] | None = None
    labels = np.empty(size, np.int64)
    for position in range(size):
        pair = dataset[position]
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise UserError(
                f"{source}, image {position}: is not a pair (image, label); the data set must "
                "return such pairs."
            )
        image, label = pair
        pixels = _channels_first(image, f"{source}, image {position}")
        if images is None:
            images = np.empty((size, *pixels.shape), np.uint8)
        if pixels.shape != images.shape[1:]:
            raise UserError(
                f"{source}, image {position}: its shape {pixels.shape} differs from "
                f"{images.shape[1:]} of the first image; resize all images to one size and mode "
                "in the data set's transform."
            )
        images[position] = pixels
        labels[position] = _label(label, f"{source}, image {position}")
    assert images is not None
    return images, labels


def _label(label: Any, source: str) -> int:
    value = label
    if isinstance(label, Tensor | np.generic | np.ndarray):
        values = label.reshape(-1).tolist()
        value = values[0] if len(values) == 1 else None
    if not isinstance(value, int) or abs(value) > np.iinfo(np.int64).max:
        raise UserError(f"{source}: the label is {label!r}; expected a whole number.")
    return value


def _channels_first(image: Any, source: str) -> npt.NDArray[np.uint8]:
    """One image of any of the kinds as c×h×w bytes."""
    if isinstance(image, Image.Image):
        image = np.asarray(eight_bits(image, 1 if is_grey(image) else 3, source))
    channels_last_first = isinstance(image, np.ndarray)
    if isinstance(image, Tensor):
        image = image.detach().cpu().to(torch.float32 if image.is_floating_point() else image.dtype)
        image = image.numpy()
    if not isinstance(image, np.ndarray):
        raise UserError(
            f"{source}: is a {type(image).__name__}; expected a PIL image, a tensor or an array, "
            "so set the data set's transform."
        )
    if image.ndim == 1:
        raise UserError(
            f"{source}: its shape is {image.shape}; expected an image. Rows of a table go to "
            "from_arrays."
        )
    pixels = _bytes(image, source)
    if pixels.ndim == 2:
        return pixels[None]
    if pixels.ndim == 3:
        first, last = pixels.shape[0] in (1, 3), pixels.shape[2] in (1, 3)
        if last and (channels_last_first or not first):
            return pixels.transpose(2, 0, 1)
        if first:
            return pixels
    raise UserError(
        f"{source}: its shape is {pixels.shape}; expected h×w, or 1 or 3 channels of that, so set "
        "the data set's transform."
    )


def _bytes(image: npt.NDArray[Any], source: str) -> npt.NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return image
    if not np.issubdtype(image.dtype, np.floating):
        raise UserError(f"{source}: is {image.dtype}; expected uint8, or floats from 0 to 1.")
    if not ((image >= 0) & (image <= 1)).all():  # false for NaN too
        raise UserError(
            f"{source}: has values outside [0, 1]; expected pixels that aren't normalised yet, so "
            "take normalisation out of the data set's transform."
        )
    scaled: npt.NDArray[Any] = np.rint(image * 255)
    return scaled.astype(np.uint8)
