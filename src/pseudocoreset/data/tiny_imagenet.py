"""`tiny-imagenet:DIR`: the official tree of JPEG files, decoded once and then cached."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pseudocoreset.data.assemble import (
    Progress,
    find_folder,
    make_image_data,
    make_split,
    read_lines,
    require_folder,
)
from pseudocoreset.data.dataset import Data, Scaling
from pseudocoreset.data.decode import read_images
from pseudocoreset.data.image_cache import cached_images
from pseudocoreset.errors import UserError

SIDE = 64
NORMALISATION = Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
AGAIN = "unpack tiny-imagenet-200.zip again"


@dataclass(frozen=True)
class Listing:
    """Image files and the class of each."""

    paths: list[Path]
    labels: list[int]


def read_tiny_imagenet(root: Path, image_size: int | None, progress: Progress | None) -> Data:
    """Tiny ImageNet: its training images, and its validation images as test split.

    Classes are numbered in the order of their WordNet ids; grey JPEGs become RGB.
    """
    expected = "tiny-imagenet-200, or its wnids.txt, words.txt, train/ and val/"
    require_folder(root, expected)
    tree = find_folder(root, ("tiny-imagenet-200",), ("wnids.txt",))
    if tree is None:
        raise UserError(f"{root}: no such files; give a folder that holds {expected}.")
    ids = sorted(set(read_lines(tree / "wnids.txt")))
    if not ids:
        raise UserError(
            f"{tree / 'wnids.txt'}: expected a class id on each line, found none; {AGAIN}."
        )
    names = _class_names(tree / "words.txt", ids)
    train, test = _list_train(tree, ids), _list_val(tree, ids)
    paths = train.paths + test.paths
    side = image_size or SIDE

    def decode() -> npt.NDArray[np.uint8]:
        return read_images(
            paths, 3, side, fit=image_size is not None, progress=progress, what="decoding images"
        )

    images = cached_images(
        tree, f"tiny-imagenet-{side}", _digest(tree, paths), (len(paths), 3, side, side), decode
    )
    return make_image_data(
        "tiny-imagenet",
        tree,
        make_split(tree / "train", images[: len(train.paths)], np.array(train.labels), len(ids)),
        make_split(tree / "val", images[len(train.paths) :], np.array(test.labels), len(ids)),
        names,
        scaling=NORMALISATION,
    )


def _class_names(path: Path, ids: list[str]) -> list[str]:
    """The first of the words that words.txt gives for each id; with the id where two share it."""
    words = dict(line.split("\t", 1) for line in read_lines(path) if "\t" in line)
    missing = [wordnet_id for wordnet_id in ids if wordnet_id not in words]
    if missing:
        raise UserError(f"{path}: has no line for class {missing[0]} of wnids.txt; {AGAIN}.")
    first = {wordnet_id: words[wordnet_id].split(",")[0].strip() for wordnet_id in ids}
    times = Counter(first.values())
    return [f"{word} ({i})" if times[word] > 1 else word for i, word in first.items()]


def _list_train(tree: Path, ids: list[str]) -> Listing:
    paths: list[Path] = []
    labels: list[int] = []
    for label, wordnet_id in enumerate(ids):
        members = _list_jpegs(tree / "train" / wordnet_id / "images")
        # The archive has equally many of each class: fewer were lost on the way.
        if label > 0 and len(members) * label != len(paths):
            raise UserError(
                f"{tree / 'train' / wordnet_id}: has {len(members)} images; expected "
                f"{len(paths) // label} as in the classes before it, so {AGAIN}."
            )
        paths += members
        labels += [label] * len(members)
    return Listing(paths, labels)


def _list_val(tree: Path, ids: list[str]) -> Listing:
    folder, annotations = tree / "val" / "images", tree / "val" / "val_annotations.txt"
    files = {path.name: path for path in _list_jpegs(folder)}
    numbers = {wordnet_id: label for label, wordnet_id in enumerate(ids)}
    found: dict[str, int] = {}
    for line in read_lines(annotations):
        name, wordnet_id = [*line.split("\t"), ""][:2]
        if name not in files or wordnet_id not in numbers:
            raise UserError(
                f"{annotations}: the line {line!r} should name an image in {folder} and a class in "
                f"wnids.txt; {AGAIN}."
            )
        found[name] = numbers[wordnet_id]
    missing = sorted(files.keys() - found.keys())
    if missing:
        raise UserError(f"{annotations}: has no line for {folder / missing[0]}; {AGAIN}.")
    return Listing([files[name] for name in found], list(found.values()))


def _list_jpegs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UserError(f"{folder}: the folder is missing; {AGAIN}.")
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in paths:
        if path.suffix.lower() not in (".jpeg", ".jpg"):
            raise UserError(f"{path}: expected only JPEG files here; move it away.")
    if not paths:
        raise UserError(f"{folder}: has no image; {AGAIN}.")
    return paths


def _digest(tree: Path, paths: list[Path]) -> str:
    """What changes when an image is added, taken away, replaced or written again."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        status = path.stat()
        line = (path.relative_to(tree).as_posix(), status.st_size, status.st_mtime_ns)
        digest.update(repr(line).encode())
    return digest.hexdigest()
