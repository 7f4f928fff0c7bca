"""Specs, options, resizing and the checks that all formats share."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from make_data import make_folder, make_npz, refused, smooth, spec_refused
from PIL import Image

import pseudocoreset.data
from pseudocoreset.data import load_data


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("cifar", "cifar10:DIR"),
        ("CIFAR10:x", "cifar10:DIR"),
        ("cifar-100:x", "cifar100:DIR"),
        ("digits:x", "digits"),
        ("digit", "digits"),
        ("tabel:x.csv", "table:FILE.csv"),
        ("breast_cancer", "breast-cancer"),
        ("zzz", "tiny-imagenet:DIR"),  # all are listed
        ("", "npz:FILE"),
        ("cifar10", "cifar10:DIR"),  # without its place
        ("npz:", "npz:FILE"),
        ("table:", "table:FILE.csv"),
    ],
)
def test_spec_that_is_not_known_is_answered_with_the_nearest(spec, meant):
    assert meant in spec_refused(spec)


def test_spec_that_is_a_path_is_answered_with_its_kind(tmp_path):
    make_folder(tmp_path / "photos")
    make_npz(tmp_path / "some.npz")
    (tmp_path / "some.csv").write_text("a,b\n1,2\n")
    for path, kind in (("photos", "folder"), ("some.npz", "npz"), ("some.csv", "table")):
        assert f"{kind}:{tmp_path / path}" in spec_refused(str(tmp_path / path))


KINDS = ["mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet"]


@pytest.mark.parametrize("kind", [*KINDS, "folder", "npz", "table"])
def test_place_that_is_missing_is_named(kind, tmp_path):
    spec_refused(f"{kind}:{tmp_path / 'nowhere'}", tmp_path / "nowhere")


@pytest.mark.parametrize("kind", [*KINDS, "folder"])
def test_place_that_is_empty_is_named(kind, tmp_path):
    spec_refused(f"{kind}:{tmp_path}", tmp_path)


def test_place_in_the_home_folder_is_found(tmp_path, monkeypatch):
    make_npz(tmp_path / "some.npz")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_data("npz:~/some.npz").name == "npz:some"
    spec_refused("npz:~no-such-person/some.npz", "~no-such-person")


def test_place_that_the_system_refuses_is_named(tmp_path, monkeypatch):
    path = tmp_path / "some.npz"
    make_npz(path)

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.is_file", refuse)
    assert "Permission denied" in spec_refused(f"npz:{path}", path)


@pytest.mark.parametrize("spec", ["digits", "diabetes", "breast-cancer", "folder:x", "npz:x"])
def test_target_and_task_are_refused_for_data_that_take_none(spec):
    refused("target", load_data, spec, target="age")
    refused("task", load_data, spec, task="regression")


@pytest.mark.parametrize("size", [0, -1, 100_000])
def test_image_size_that_is_absurd_is_refused(size):
    refused("image_size", load_data, "digits", image_size=size, naming=size)


@pytest.mark.parametrize("spec", ["diabetes", "breast-cancer", "table:x.csv"])
def test_image_size_of_a_table_is_refused(spec):
    refused("image_size", load_data, spec, image_size=8)


def test_image_size_resizes_arrays_as_pillow_does(tmp_path):
    image = np.asarray(smooth(32))
    changed = {"train_images": np.stack([image] * 12), "test_images": np.stack([image] * 6)}
    make_npz(tmp_path / "some.npz", **changed)
    data = load_data(f"npz:{tmp_path / 'some.npz'}", image_size=8)
    assert data.image_size == 8
    expected = np.asarray(Image.fromarray(image).resize((8, 8), Image.BILINEAR))
    found = data.test.inputs[0].permute(1, 2, 0)
    difference = (found.int() - torch.from_numpy(expected.astype(np.int32))).abs()
    assert difference.max() <= 1


def test_messages_never_speak_of_flags():
    for path in Path(pseudocoreset.data.__file__).parent.glob("*.py"):
        assert not re.search(r"--[a-z]", path.read_text()), path.name
