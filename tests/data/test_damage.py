"""Truncated and bit-flipped files of every format: an error, or data that can't be told apart."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from make_data import (
    make_cifar_binary,
    make_cifar_python,
    make_folder,
    make_mnist,
    make_npz,
    make_tiny_imagenet,
    small_cifar,
)

from pseudocoreset.data import Data, load_data
from pseudocoreset.errors import UserError

TEXT = (".txt",)
IMAGES = (".JPEG", ".png")


@dataclass
class Sample:
    spec: str
    files: list[Path]
    whole: Data
    checksummed: bool  # a flipped bit can't go by unnoticed


MAKERS = {
    "mnist": (lambda root: make_mnist(root), "mnist", False),
    "mnist-gz": (lambda root: make_mnist(root, zipped=True), "mnist", True),
    "cifar10-binary": (lambda root: make_cifar_binary(root, 10), "cifar10", False),
    "cifar100-binary": (lambda root: make_cifar_binary(root, 100), "cifar100", False),
    "cifar10-python": (lambda root: make_cifar_python(root, 10), "cifar10", False),
    "cifar10-python2": (lambda root: make_cifar_python(root, 10, python2=True), "cifar10", False),
    "cifar100-python": (lambda root: make_cifar_python(root, 100), "cifar100", False),
    "tiny-imagenet": (make_tiny_imagenet, "tiny-imagenet", False),
    "folder": (make_folder, "folder", True),
    "npz": (make_npz, "npz", True),
}


@pytest.fixture(scope="module", params=MAKERS)
def sample(request, tmp_path_factory):
    make, kind, checksummed = MAKERS[request.param]
    root = tmp_path_factory.mktemp("damage") / ("data.npz" if kind == "npz" else "data")
    make(root)
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    with small_cifar():
        yield Sample(f"{kind}:{root}", files, load_data(f"{kind}:{root}"), checksummed)


def attempt(spec):
    """The data, or None and a sentence that a person can act on."""
    try:
        return load_data(spec)
    except UserError as error:
        message = str(error)
    assert "\n" not in message
    assert message.endswith(".")
    return None


def check(sample, damaged, path, truncated):
    if damaged is None:
        return
    if truncated and path.suffix not in (*TEXT, *IMAGES):
        pytest.fail(f"{path.name} was cut short, and nobody noticed")
    whole = sample.whole
    for split, before in ((damaged.train, whole.train), (damaged.test, whole.test)):
        assert split.inputs.dtype == torch.uint8
        assert split.inputs.shape == before.inputs.shape
        assert split.targets.dtype == torch.int64
        assert split.targets.min() >= 0
        assert split.targets.max() < len(whole.class_names)
        if sample.checksummed:
            assert torch.equal(split.inputs, before.inputs)
            assert torch.equal(split.targets, before.targets)
    assert len(damaged.class_names) == len(whole.class_names)


def damage_and_load(sample, path, content, damaged):
    path.write_bytes(damaged)
    os.utime(path)  # the clock may be too coarse to show that the file changed
    try:
        check(sample, attempt(sample.spec), path, truncated=len(damaged) < len(content))
    finally:
        path.write_bytes(content)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_file_truncated_is_refused_or_harmless(sample, data):
    path = data.draw(st.sampled_from(sample.files))
    content = path.read_bytes()
    length = data.draw(st.integers(0, len(content) - 1))
    damage_and_load(sample, path, content, content[:length])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_file_with_flipped_bits_is_refused_or_harmless(sample, data):
    path = data.draw(st.sampled_from(sample.files))
    content = path.read_bytes()
    # Headers and ends are where structure is, so they are hit as often as the bulk.
    start, end = st.integers(0, min(200, len(content) - 1)), st.integers(1, min(200, len(content)))
    place = st.one_of(start, end.map(lambda n: len(content) - n), st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    for position in data.draw(st.lists(place, min_size=1, max_size=3, unique=True)):
        damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    damage_and_load(sample, path, content, bytes(damaged))
