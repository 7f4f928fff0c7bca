import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from make_data import make_tiny_imagenet, smooth, spec_refused
from PIL import Image

from pseudocoreset.data import image_cache, load_data
from pseudocoreset.engine import files

CACHE = "pseudocoreset-tiny-imagenet-64.safetensors"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home-cache"))
    make_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    return tmp_path / "tiny-imagenet-200"


def load(tree, **options):
    """The data, and whether they were decoded."""
    calls = []
    data = load_data(f"tiny-imagenet:{tree}", progress=lambda *c: calls.append(c), **options)
    return data, bool(calls)


def tree_refused(tree, naming, parameter="data"):
    return spec_refused(f"tiny-imagenet:{tree}", naming, parameter)


def test_tiny_imagenet_gives_what_pillow_decodes(tree):
    data, _ = load(tree.parent)
    assert data.class_names == ("goldfish", "bee")  # n01, n02
    assert data.train.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test.targets.tolist() == [1, 0]  # in the order of val_annotations.txt
    assert data.scaling.mean == (0.485, 0.456, 0.406)
    files = [
        tree / "train" / f"n0{c}" / "images" / f"n0{c}_{n}.JPEG" for c in (1, 2) for n in range(3)
    ]
    for image, file in zip(data.train.inputs.numpy(), files, strict=True):
        with Image.open(file) as opened:
            assert opened.mode == ("L" if file.name == "n02_1.JPEG" else "RGB")
            assert np.array_equal(image.transpose(1, 2, 0), np.asarray(opened.convert("RGB")))


def test_tiny_imagenet_is_resized(tree):
    data, _ = load(tree, image_size=32)
    assert data.train.inputs.shape == (6, 3, 32, 32)
    assert data.test.inputs.shape == (2, 3, 32, 32)


def test_cache_spares_the_second_decoding(tree):
    first, decoded = load(tree)
    assert decoded
    assert (tree / CACHE).is_file()
    second, decoded = load(tree)
    assert not decoded
    assert second.fingerprint == first.fingerprint


def test_cache_is_rebuilt_for_a_replaced_image(tree):
    before, _ = load(tree)
    path = tree / "val" / "images" / "val_0.JPEG"
    status = path.stat()
    smooth(seed=77).save(path, quality=95)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    after, decoded = load(tree)
    assert decoded
    assert after.fingerprint != before.fingerprint


def test_cache_that_is_damaged_is_rebuilt(tree):
    whole, _ = load(tree)
    content = (tree / CACHE).read_bytes()
    damaged = [content[:length] for length in (0, 7, 100, len(content) // 2, len(content) - 1)]
    for place in [*range(0, 400, 13), len(content) // 2, len(content) - 1]:
        flipped = bytearray(content)
        flipped[place] ^= 1
        damaged.append(bytes(flipped))
    for bad in damaged:
        (tree / CACHE).write_bytes(bad)
        data, decoded = load(tree)
        # A flip in the header's padding changes nothing, and need not be noticed.
        assert data.fingerprint == whole.fingerprint
        assert decoded or bad[400:] == content[400:]
    (tree / CACHE).write_bytes(damaged[-1])  # the last pixel
    assert load(tree)[1]
    assert (tree / CACHE).read_bytes() == content
    assert not load(tree)[1]


def test_cache_of_other_code_is_rebuilt(tree):
    load(tree)
    with mock.patch.object(image_cache, "VERSION", image_cache.VERSION + 1):
        assert load(tree)[1]


def test_cache_goes_home_if_the_tree_is_read_only(tree):
    make = tempfile.mkstemp

    def refuse_tree(**given):
        if given["dir"].is_relative_to(tree):
            raise PermissionError(13, "Permission denied", str(given["dir"]))
        return make(**given)

    with mock.patch.object(tempfile, "mkstemp", refuse_tree):
        assert load(tree)[1]
    assert not (tree / CACHE).exists()
    assert len(list((tree.parent / "home-cache" / "pseudocoreset").iterdir())) == 1
    assert not load(tree)[1]


@pytest.mark.parametrize("fails", [(tempfile, "mkstemp"), (files, "save_file")])
def test_cache_without_any_place_is_left_out(tree, fails):
    with mock.patch.object(*fails, side_effect=OSError(28, "No space left")):
        assert len(load(tree)[0].train) == 6


@pytest.mark.parametrize("damage", ["truncated", "not an image"])
def test_tiny_imagenet_jpeg_that_is_corrupt_is_named(tree, damage):
    path = tree / "train" / "n01" / "images" / "n01_1.JPEG"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if damage == "truncated" else b"hello")
    tree_refused(tree, path)


def test_tiny_imagenet_jpeg_of_another_size_is_named(tree):
    path = tree / "train" / "n01" / "images" / "n01_1.JPEG"
    smooth(32).save(path)
    assert "32×32" in tree_refused(tree, path, parameter="image_size")


@pytest.mark.parametrize(
    "name", ["words.txt", "val/val_annotations.txt", "train/n01/images/n01_0.JPEG"]
)
def test_tiny_imagenet_file_that_is_missing_is_named(tree, name):
    (tree / name).unlink()
    message = tree_refused(tree, "")
    # Of two classes of unequal size, the second is named.
    assert name.split("/images")[0].replace("n01", "n0") in message.replace("n02", "n0")


def test_tiny_imagenet_class_without_an_image_is_named(tree):
    folder = tree / "train" / "n01" / "images"
    for path in folder.iterdir():
        path.unlink()
    tree_refused(tree, folder)
    folder.rmdir()
    tree_refused(tree, folder)


@pytest.mark.parametrize("line", ["val_9.JPEG\tn01\t0", "val_0.JPEG\tn09\t0", "val_0.JPEG"])
def test_tiny_imagenet_annotation_of_what_is_not_there_is_named(tree, line):
    (tree / "val" / "val_annotations.txt").write_text(line)
    tree_refused(tree, repr(line))


def test_tiny_imagenet_image_without_annotation_is_named(tree):
    (tree / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\n")
    assert "val_1.JPEG" in tree_refused(tree, "val_annotations.txt")


def test_tiny_imagenet_classes_of_one_word_get_their_ids(tree):
    (tree / "words.txt").write_text("n01\tcrane, a bird\nn02\tcrane, a machine\n")
    assert load(tree)[0].class_names == ("crane (n01)", "crane (n02)")


@pytest.mark.parametrize(
    ("name", "content", "naming"),
    [
        ("words.txt", "n01\tgoldfish\n", "n02"),
        ("val/images/notes.txt", "x", "notes.txt"),
        ("wnids.txt", "\n", "wnids.txt"),
    ],
)
def test_tiny_imagenet_file_of_something_else_is_named(tree, name, content, naming):
    (tree / name).write_text(content)
    tree_refused(tree, naming)


def test_cache_home_is_left_out_for_a_user_without_one(tree, monkeypatch):
    monkeypatch.setattr(image_cache, "user_cache_path", lambda *_, **__: Path("~/.cache/x"))
    assert image_cache._places(tree, "name") == [tree / "pseudocoreset-name.safetensors"]
