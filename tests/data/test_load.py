"""Specs, resizing and the checks that all formats share."""

import numpy as np
import pytest
import torch
from make_data import make_npz, smooth
from PIL import Image

from pseudocoreset.data import load_data
from pseudocoreset.errors import UserError


@pytest.mark.parametrize("spec", ["cifar", "imagenet:x", "digits:x", ""])
def test_an_unknown_spec_is_answered_with_what_is_known(spec):
    with pytest.raises(UserError, match=r"^--data .*tiny-imagenet:DIR.*npz:FILE\.$"):
        load_data(spec)


@pytest.mark.parametrize("spec", ["cifar10", "npz:"])
def test_a_spec_without_its_place_is_asked_for_it(spec):
    with pytest.raises(UserError, match=f"--data {spec}: say where it is, as .*:PATH"):
        load_data(spec)


@pytest.mark.parametrize(
    "kind", ["mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet", "folder", "npz"]
)
def test_a_missing_place_is_named(kind, tmp_path):
    with pytest.raises(UserError, match=r"nowhere: no such (folder|file); give .*\.$"):
        load_data(f"{kind}:{tmp_path / 'nowhere'}")


@pytest.mark.parametrize("kind", ["mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet"])
def test_an_empty_folder_is_answered_with_what_is_expected(kind, tmp_path):
    with pytest.raises(UserError, match="give a folder that holds"):
        load_data(f"{kind}:{tmp_path}")


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    make_npz(tmp_path / "some.npz")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_data("npz:~/some.npz").name == "npz:some"
    with pytest.raises(UserError, match="home folder"):
        load_data("npz:~no-such-person/some.npz")


def test_what_the_system_refuses_is_named(tmp_path, monkeypatch):
    path = tmp_path / "some.npz"
    make_npz(path)

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.is_file", refuse)
    with pytest.raises(UserError, match=r"some\.npz: can't be read \(Permission denied\)"):
        load_data(f"npz:{path}")


@pytest.mark.parametrize("size", [0, -1, 100_000])
def test_an_absurd_image_size_is_refused(size):
    with pytest.raises(UserError, match="--image-size"):
        load_data("digits", image_size=size)


def test_arrays_are_resized_as_pillow_does(tmp_path):
    image = np.asarray(smooth(32))
    changed = {"train_images": np.stack([image] * 12), "test_images": np.stack([image] * 6)}
    make_npz(tmp_path / "some.npz", **changed)
    data = load_data(f"npz:{tmp_path / 'some.npz'}", image_size=8)
    assert data.image_size == 8
    expected = np.asarray(Image.fromarray(image).resize((8, 8), Image.BILINEAR))
    found = data.test.images[0].permute(1, 2, 0)
    difference = (found.int() - torch.from_numpy(expected.astype(np.int32))).abs()
    assert difference.max() <= 1
