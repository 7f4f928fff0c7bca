"""Corrupted images: against slow twins, and what holds for all of them."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

from oracles import corruptions as oracle
from pseudocoreset import UserError, corrupt
from pseudocoreset.evaluation.corruptions import (
    CORRUPTIONS,
    PAPER,
    SEVERITIES,
    chosen_corruptions,
    spatter,
    weather,
)
from pseudocoreset.evaluation.corruptions.draws import generator_for

NAMES = list(CORRUPTIONS)
find_folder = weather.frost_folder


def smooth_images(number: int, side: int = 32, channels: int = 3, seed: int = 0) -> torch.Tensor:
    """Large soft shapes with fine grain, as photographs have, from black to white."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(number, channels, 5, 5, generator=generator)
    images = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic")
    images = images * 280 - 10 + 12 * torch.randn(images.shape, generator=generator)
    images = images.clamp(0, 255).to(torch.uint8)
    images[0, :, :4, :4] = 0
    images[0, :, 4:8, :4] = 255
    return images


@pytest.fixture(autouse=True, scope="module")
def textures(tmp_path_factory):
    """Photographs of frost, such as the optional package has; here they are made up."""
    folder = tmp_path_factory.mktemp("frost")
    generator, found = np.random.default_rng(0), []
    for number, name in enumerate(weather.TEXTURES):
        shape = (205 + 10 * number, 230, 3)
        array = generator.integers(0, 256, shape, dtype=np.uint8)
        with Image.fromarray(array) as image:
            image.save(folder / name, quality=95)
        with Image.open(folder / name) as image:
            found.append(np.array(image.convert("RGB")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weather, "frost_folder", lambda: folder)
        weather._textures.cache_clear()
        yield found
    weather._textures.cache_clear()


def test_parameters_are_the_official_ones():
    assert list(oracle.OFFICIAL) == NAMES
    assert len(NAMES) == 19
    for name, rows in oracle.OFFICIAL.items():
        expected = [row if isinstance(row, tuple) else (row,) for row in rows]
        found = CORRUPTIONS[name].parameters
        assert len(found) == len(SEVERITIES) == 5
        np.testing.assert_allclose(found, expected, err_msg=name)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", NAMES)
def test_corruption_is_that_of_its_slow_twin(name, severity, textures):
    images = smooth_images(2)
    found = corrupt(images, name, severity, seed=3).permute(0, 2, 3, 1).numpy()
    for place, image in enumerate(images.permute(0, 2, 3, 1).numpy()):
        rng = generator_for(3, name, severity, place)
        expected = oracle.corrupted(image, name, severity, rng, textures)
        away = np.abs(found[place].astype(int) - expected)
        assert away.max() <= 1
        assert (away > 0).mean() < 0.003  # halves that are rounded either way
        assert (found[place] != image).any()


def test_parts_of_spatter_are_those_of_their_twins():
    """On images with weak and strong edges, and ways of all lengths."""
    coarse = torch.rand(4, 1, 7, 7, generator=torch.Generator().manual_seed(2)) * 255
    images = torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear")[:, 0].floor()
    found = spatter.edges(images.double())
    for image, edge in zip(images, found, strict=True):
        expected = oracle.canny(image.numpy())
        assert {tuple(place) for place in edge.nonzero().tolist()} == expected
        assert 20 < len(expected) < 500
        lone = torch.zeros(32, 32, dtype=torch.bool)
        lone[tuple(edge.nonzero()[0])] = True
        for farthest, those in ((100, edge), (100, lone), (20, lone)):
            ways = oracle.to_edges({tuple(place) for place in those.nonzero().tolist()})
            near = spatter.distances(those[None], float(farthest))[0]
            np.testing.assert_allclose(near, np.minimum(ways, farthest), atol=1e-9)
        levels = image.numpy().astype(int)
        np.testing.assert_array_equal(
            spatter.equalised(image.double()[None])[0], oracle.equalised(levels)
        )
    plain = torch.full((1, 32, 32), 7.0, dtype=torch.float64)
    assert torch.equal(spatter.equalised(plain), plain)


# What holds for all.


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_gives_same_bytes_in_any_order(name):
    images = smooth_images(6, side=16)
    found = corrupt(images, name, 3)
    assert (found.dtype, found.shape) == (torch.uint8, images.shape)
    assert torch.equal(found, corrupt(images, name, 3))
    order = torch.tensor([4, 0, 5, 2])
    assert torch.equal(corrupt(images[order], name, 3, places=order), found[order])


RANDOM = {
    "elastic_transform",
    "fog",
    "frost",
    "gaussian_noise",
    "glass_blur",
    "impulse_noise",
    "motion_blur",
    "shot_noise",
    "snow",
    "spatter",
    "speckle_noise",
}


@pytest.mark.parametrize("name", NAMES)
def test_seed_and_place_matter_to_what_is_random(name):
    image = smooth_images(1, seed=1)
    found = corrupt(image.repeat(2, 1, 1, 1), name, 3)
    other = corrupt(image, name, 3, seed=1)
    assert torch.equal(found[0], found[1]) == (name not in RANDOM)
    assert torch.equal(found[:1], other) == (name not in RANDOM)


# Less jitter but a rougher field; less colour, then more; water, then mud.
NOT_MONOTONE = ("elastic_transform", "saturate", "spatter")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_MONOTONE])
def test_severity_5_changes_more_than_severity_1(name):
    images = smooth_images(40)
    away = [(corrupt(images, name, s).float() - images.float()).abs().mean() for s in (1, 5)]
    assert 0 < away[0] < away[1]


@pytest.mark.parametrize("side", [16, 28, 64])
@pytest.mark.parametrize("name", NAMES)
def test_other_sizes_and_grey_images(name, side):
    for channels in (1, 3):
        if (name, channels) == ("saturate", 1):
            continue
        images = smooth_images(3, side=side, channels=channels)
        for severity in (1, 5):
            found = corrupt(images, name, severity)
            assert (found.shape, found.dtype) == (images.shape, torch.uint8)
            assert (found.float() - images.float()).abs().mean() < 100


@pytest.mark.parametrize("name", ["gaussian_blur", "defocus_blur", "motion_blur", "zoom_blur"])
def test_blur_leaves_a_plain_image_plain(name):
    plain = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
    away = corrupt(plain, name, 4).int() - 100
    assert away.min() >= -1
    assert away.max() <= 0


def test_grey_pixels_are_the_same_as_grey_images():
    """Where nothing is about colour, three equal channels do what one does."""
    grey = smooth_images(3, channels=1)
    for name in ("brightness", "contrast", "fog", "snow", "zoom_blur", "glass_blur"):
        one, three = corrupt(grey, name, 3), corrupt(grey.repeat(1, 3, 1, 1), name, 3)
        assert (three.int() - one.int()).abs().max() <= 1


def test_lengths_grow_with_the_side():
    """An image of twice the side, blurred, is the blurred image at twice the side, about."""
    images = smooth_images(8)
    double = images.repeat_interleave(2, 2).repeat_interleave(2, 3)
    for name in ("gaussian_blur", "zoom_blur", "defocus_blur"):
        small = corrupt(images, name, 5).float()
        large = torch.nn.functional.avg_pool2d(corrupt(double, name, 5).float(), 2)
        change = (small - images.float()).abs().mean()
        assert (small - large).abs().mean() < 0.35 * change, name


# Names.


def test_names_and_groups():
    shape = (3, 32, 32)
    assert chosen_corruptions("all", shape) == NAMES
    assert chosen_corruptions("paper", shape) == list(PAPER)
    assert len(PAPER) == 10
    assert chosen_corruptions("fog,snow,fog", shape) == ["fog", "snow"]
    assert chosen_corruptions(["snow", "paper"], shape)[0] == "snow"
    with pytest.raises(UserError, match=r"`corruptions` fogg is not known \(did you mean fog\?\)"):
        chosen_corruptions("fogg", shape)
    with pytest.raises(UserError, match="`name` rain is not known"):
        corrupt(smooth_images(1), "rain", 1)
    with pytest.raises(UserError, match="`severity` is 6"):
        corrupt(smooth_images(1), "fog", 6)


def test_without_its_photographs_frost_is_left_out_of_a_group(monkeypatch):
    monkeypatch.setattr(weather, "frost_folder", lambda: None)
    weather._textures.cache_clear()
    with pytest.warns(RuntimeWarning, match="frost is left out of all: its photographs"):
        found = chosen_corruptions("all", (3, 32, 32))
    assert found == [name for name in NAMES if name != "frost"]
    with pytest.raises(UserError, match=re.escape("pip install 'pseudocoreset[frost]'")):
        chosen_corruptions("frost", (3, 32, 32))
    with pytest.raises(UserError, match=re.escape("pip install 'pseudocoreset[frost]'")):
        corrupt(smooth_images(1), "frost", 1)


def test_images_that_make_no_sense_are_refused():
    with pytest.warns(RuntimeWarning, match="saturate is left out of all: images are grey"):
        assert "saturate" not in chosen_corruptions("all", (1, 28, 28))
    for shape in ((3, 8, 8), (3, 32, 16), (2, 32, 32)):
        with pytest.raises(UserError, match="must be square, 16×16 or more"):
            chosen_corruptions("all", shape)
    with pytest.raises(UserError, match="`images` can't be corrupted by saturate"):
        corrupt(smooth_images(1, channels=1), "saturate", 1)


def test_textures_are_found_where_the_package_is(tmp_path, monkeypatch):
    package = tmp_path / "imagecorruptions"
    (package / "frost").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it is never imported')")
    for name in weather.TEXTURES:
        Image.new("RGB", (200, 200), (9, 9, 9)).save(package / "frost" / name)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_folder() == package / "frost"
    (package / "frost" / "frost3.png").unlink()
    assert find_folder() is None
