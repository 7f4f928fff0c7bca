"""From a spec such as `cifar10:DIR` to the data it names."""

from collections.abc import Callable
from pathlib import Path

from pseudocoreset.data.assemble import Progress
from pseudocoreset.data.cifar import read_cifar10, read_cifar100
from pseudocoreset.data.digits import read_digits
from pseudocoreset.data.folder import read_folder
from pseudocoreset.data.idx import read_fashion_mnist, read_mnist
from pseudocoreset.data.image_data import ImageData
from pseudocoreset.data.npz import read_npz
from pseudocoreset.data.tiny_imagenet import read_tiny_imagenet
from pseudocoreset.errors import UserError

# What stands before the colon: a reader of arrays, or of many image files, which reports progress.
ARRAY_READERS: dict[str, Callable[[Path, int | None], ImageData]] = {
    "mnist": read_mnist,
    "fashion-mnist": read_fashion_mnist,
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "npz": read_npz,
}
FILE_READERS: dict[str, Callable[[Path, int | None, Progress | None], ImageData]] = {
    "tiny-imagenet": read_tiny_imagenet,
    "folder": read_folder,
}
KNOWN = (
    "digits, mnist:DIR, fashion-mnist:DIR, cifar10:DIR, cifar100:DIR, tiny-imagenet:DIR, "
    "folder:DIR or npz:FILE"
)
LARGEST_IMAGE_SIZE = 512


def load_data(
    spec: str, image_size: int | None = None, progress: Progress | None = None
) -> ImageData:
    """Load the data set that `spec` names, resized to `image_size` where that is given.

    `progress(done, total, what)` is called now and then while many image files are decoded.
    """
    if image_size is not None and not 1 <= image_size <= LARGEST_IMAGE_SIZE:
        raise UserError(f"--image-size {image_size}: give a size from 1 to {LARGEST_IMAGE_SIZE}.")
    kind, _, place = spec.partition(":")
    try:
        if spec == "digits":
            return read_digits(image_size)
        if kind in ARRAY_READERS and place:
            return ARRAY_READERS[kind](_path(spec, place), image_size)
        if kind in FILE_READERS and place:
            return FILE_READERS[kind](_path(spec, place), image_size, progress)
    except OSError as error:
        raise UserError(
            f"{error.filename or place}: can't be read ({error.strerror or error}); check the "
            "path, its permissions and its disk."
        ) from error
    if kind in (*ARRAY_READERS, *FILE_READERS):
        raise UserError(f"--data {spec}: say where it is, as {kind}:PATH.")
    raise UserError(f"--data {spec}: not a data set that is known; give {KNOWN}.")


def _path(spec: str, place: str) -> Path:
    try:
        return Path(place).expanduser()  # no shell expands the ~ of cifar10:~/data
    except RuntimeError:
        raise UserError(f"--data {spec}: no such home folder; give the whole path.") from None
