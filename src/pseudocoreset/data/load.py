"""Load data by a spec such as `cifar10:DIR`."""

from collections.abc import Callable
from pathlib import Path

from pseudocoreset.data.assemble import Progress, blame
from pseudocoreset.data.cifar import read_cifar10, read_cifar100
from pseudocoreset.data.dataset import Data, Task, check_task
from pseudocoreset.data.digits import read_digits
from pseudocoreset.data.folder import read_folder
from pseudocoreset.data.idx import read_fashion_mnist, read_mnist
from pseudocoreset.data.npz import read_npz
from pseudocoreset.data.table import read_breast_cancer, read_diabetes, read_table
from pseudocoreset.data.tiny_imagenet import read_tiny_imagenet
from pseudocoreset.engine.text import nearest
from pseudocoreset.errors import UserError, require_type

# What stands before the colon: a reader of arrays, or of many image files, which reports progress.
ARRAY_READERS: dict[str, Callable[[Path, int | None], Data]] = {
    "mnist": read_mnist,
    "fashion-mnist": read_fashion_mnist,
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "npz": read_npz,
}
FILE_READERS: dict[str, Callable[[Path, int | None, Progress | None], Data]] = {
    "tiny-imagenet": read_tiny_imagenet,
    "folder": read_folder,
}
EMBEDDED_TABLES: dict[str, Callable[[], Data]] = {
    "diabetes": read_diabetes,
    "breast-cancer": read_breast_cancer,
}
PLACES = {
    **{kind: f"{kind}:DIR" for kind in ("mnist", "fashion-mnist", "cifar10", "cifar100")},
    "tiny-imagenet": "tiny-imagenet:DIR",
    "folder": "folder:DIR",
    "npz": "npz:FILE",
    "table": "table:FILE.csv",
}
KNOWN = ("digits", *EMBEDDED_TABLES, *PLACES.values())
LARGEST_IMAGE_SIZE = 512


def load_data(
    spec: str,
    image_size: int | None = None,
    progress: Progress | None = None,
    *,
    target: str | None = None,
    task: Task | None = None,
) -> Data:
    """Load a data set.

    Args:
        spec: `digits`, `diabetes`, `breast-cancer`, `mnist:DIR`, `fashion-mnist:DIR`,
            `cifar10:DIR`, `cifar100:DIR`, `tiny-imagenet:DIR`, `folder:DIR`, `npz:FILE` or
            `table:FILE.csv`
        image_size: the side to resize images to
        progress: called as `progress(done, total, what)` while many image files are decoded
        target: for `table:`, the column to predict; by default the last one
        task: for `table:`, "classification" or "regression"; by default whole numbers and texts
            are classes, and other numbers are for regression
    """
    require_type(spec, str, "spec", "a text such as digits or table:FILE.csv")
    if image_size is not None and not 1 <= image_size <= LARGEST_IMAGE_SIZE:
        raise UserError(
            f"`image_size` is {image_size}: give 1 to {LARGEST_IMAGE_SIZE}.", "image_size"
        )
    kind, _, place = spec.partition(":")
    _check_known(spec, kind, place)
    if task is not None:
        task = check_task(task)
    _check_options(spec, kind, image_size, target, task)
    try:
        with blame("data"):
            return _read(spec, kind, place, image_size, progress, target, task)
    except OSError as error:
        raise UserError(
            f"{error.filename or place}: can't be read ({error.strerror or error}); check the "
            "path, its permissions and its disk.",
            "data",
        ) from error


def _read(
    spec: str,
    kind: str,
    place: str,
    image_size: int | None,
    progress: Progress | None,
    target: str | None,
    task: Task | None,
) -> Data:
    if spec == "digits":
        return read_digits(image_size)
    if spec in EMBEDDED_TABLES:
        return EMBEDDED_TABLES[spec]()
    path = _path(place)
    if kind == "table":
        return read_table(path, target, task)
    if kind in FILE_READERS:
        return FILE_READERS[kind](path, image_size, progress)
    return ARRAY_READERS[kind](path, image_size)


def _check_known(spec: str, kind: str, place: str) -> None:
    if spec == "digits" or spec in EMBEDDED_TABLES or (kind in PLACES and place):
        return
    if kind in PLACES:
        raise UserError(f"`data` is {spec!r}: add its location, as in {PLACES[kind]}.", "data")
    path = Path(spec)
    if spec and path.exists():
        kinds = {".csv": "table", ".npz": "npz"}
        meant = "folder" if path.is_dir() else kinds.get(path.suffix.lower())
        if meant:
            raise UserError(f"`data` is {spec!r}; did you mean '{meant}:{spec}'?", "data")
    known = {name.partition(":")[0]: name for name in KNOWN}
    near = nearest(kind, list(known))
    ending = f"did you mean {known[near]}?" if near else f"give one of {', '.join(KNOWN)}."
    raise UserError(f"`data` is {spec!r}, which is not a known data set; {ending}", "data")


def _check_options(
    spec: str, kind: str, image_size: int | None, target: str | None, task: Task | None
) -> None:
    """Raise an error for options that do not apply to the data."""
    if kind != "table":
        for name, given in (("target", target), ("task", task)):
            if given is not None:
                raise UserError(f"`{name}` is for table:FILE.csv, and `data` is {spec!r}.", name)
    if image_size is not None and (kind == "table" or spec in EMBEDDED_TABLES):
        raise UserError(f"`image_size` is for images, and {spec} is a table.", "image_size")


def _path(place: str) -> Path:
    try:
        return Path(place).expanduser()  # no shell expands the ~ of cifar10:~/data
    except RuntimeError:
        raise UserError(f"{place}: no such home folder; give the whole path.", "data") from None
