from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from make_data import pixels

from pseudocoreset.data import Normalisation, Split, load_data
from pseudocoreset.errors import UserError


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


CHANNEL = st.tuples(st.floats(0, 1), st.floats(0.05, 1))


@given(channels=st.lists(CHANNEL, min_size=3, max_size=3))
def test_normalising_follows_the_formula_and_can_be_undone(channels):
    mean, std = zip(*channels, strict=True)
    images = torch.from_numpy(pixels(2, 3, 8, 8))
    normalised = Normalisation(mean, std).apply(images)
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - mean[channel]) / std[channel]
        assert torch.allclose(normalised[:, channel].double(), expected, atol=1e-4)
    assert torch.equal(Normalisation(mean, std).invert(normalised), images)


def test_what_no_pixel_can_show_is_clipped():
    shown = Normalisation((0.5,), (0.1,)).invert(
        torch.tensor([-100.0, 0.0, 100.0]).view(3, 1, 1, 1)
    )
    assert shown.flatten().tolist() == [0, 128, 255]


def test_measured_images_have_mean_0_and_deviation_1_and_grey_ones_stay_finite():
    images = torch.from_numpy(pixels(50, 3, 8, 8))
    normalised = Normalisation.measured(images).apply(images)
    assert normalised.mean((0, 2, 3)).abs().max() < 1e-3
    assert (normalised.std((0, 2, 3)) - 1).abs().max() < 1e-3
    flat = torch.full((2, 1, 4, 4), 7, dtype=torch.uint8)
    assert Normalisation.measured(flat).apply(flat).isfinite().all()


def test_held_out_images_are_balanced_and_no_longer_trained_on(digits):
    held = digits.hold_out(100, seed=3)
    assert torch.bincount(held.holdout.labels).tolist() == [10] * 10
    assert len(held.train) == 1197
    both = torch.cat([held.train.images, held.holdout.images]).flatten(1).tolist()
    assert sorted(both) == sorted(digits.train.images.flatten(1).tolist())
    assert held.fingerprint == digits.hold_out(100, seed=3).fingerprint
    assert held.fingerprint != digits.hold_out(100, seed=4).fingerprint
    assert digits.hold_out(0) is digits


def test_a_holdout_that_cannot_be_balanced_or_leaves_nothing_is_refused(digits):
    for number in (101, -10):
        with pytest.raises(UserError, match=rf"--holdout {number} .* give 0 or a multiple of 10"):
            digits.hold_out(number)
    with pytest.raises(UserError, match="--holdout 1240 would take 124 images of class '8'"):
        digits.hold_out(1240)


def test_the_fingerprint_sees_every_change_that_matters(digits):
    images = digits.test.images.clone()
    images[-1, 0, 7, 7] ^= 1
    labels = digits.train.labels.clone()
    labels[0] = (labels[0] + 1) % 10
    changed = [
        digits,
        replace(digits, test=Split(images, digits.test.labels)),
        replace(digits, train=Split(digits.train.images, labels)),
        replace(digits, class_names=tuple("abcdefghij")),
        replace(digits, normalisation=Normalisation((0.5,), (0.5,))),
        digits.hold_out(10),
    ]
    assert len({data.fingerprint for data in changed}) == len(changed)
    assert digits.to(torch.device("cpu")).fingerprint == digits.fingerprint
