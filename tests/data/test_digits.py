import numpy as np
import pytest
import torch

from pseudocoreset.data import load_data


def test_the_digits_are_all_there_and_never_change():
    data = load_data("digits")
    assert data.train.images.shape == (1297, 1, 8, 8)
    assert data.test.images.shape == (500, 1, 8, 8)
    assert data.class_names == tuple("0123456789")
    assert torch.bincount(data.test.labels).tolist() == [50] * 10
    assert torch.bincount(data.train.labels).tolist() == [
        128,
        132,
        127,
        133,
        131,
        132,
        131,
        129,
        124,
        130,
    ]
    assert not data.mirror
    assert data.fingerprint == "5f04fe28ad23379e937c994eae4ca971"


def test_the_digits_are_those_of_scikit_learn():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    order = np.random.default_rng(0).permutation(1797)
    tested = np.zeros(1797, bool)
    for number in range(10):
        tested[order[digits.target[order] == number][:50]] = True
    data = load_data("digits")
    for split, chosen in ((data.train, ~tested), (data.test, tested)):
        assert split.labels.tolist() == digits.target[chosen].tolist()
        expected = np.rint(digits.images[chosen] * 255 / 16)
        assert np.array_equal(split.images[:, 0].numpy(), expected)


def test_the_digits_can_be_made_larger():
    data = load_data("digits", image_size=16)
    assert data.train.images.shape == (1297, 1, 16, 16)
