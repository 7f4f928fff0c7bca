import numpy as np
import pytest
import torch

from pseudocoreset.data import load_data


def test_digits_never_change():
    data = load_data("digits")
    assert data.train.inputs.shape == (1297, 1, 8, 8)
    assert data.test.inputs.shape == (500, 1, 8, 8)
    assert data.class_names == tuple("0123456789")
    assert torch.bincount(data.test.targets).tolist() == [50] * 10
    counts = [128, 132, 127, 133, 131, 132, 131, 129, 124, 130]
    assert torch.bincount(data.train.targets).tolist() == counts
    assert not data.mirror
    assert data.fingerprint == "5f04fe28ad23379e937c994eae4ca971"
    assert data.train_digest == "90abe6642c88c4b57b824624a7af384f"
    assert data.test_digest == "7ac669785eba817d551ade71bfe59a5d"


def test_digits_are_those_of_scikit_learn():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    order = np.random.default_rng(0).permutation(1797)
    tested = np.zeros(1797, bool)
    for number in range(10):
        tested[order[digits.target[order] == number][:50]] = True
    data = load_data("digits")
    for split, chosen in ((data.train, ~tested), (data.test, tested)):
        assert split.targets.tolist() == digits.target[chosen].tolist()
        expected = np.rint(digits.images[chosen] * 255 / 16)
        assert np.array_equal(split.inputs[:, 0].numpy(), expected)


def test_digits_can_be_resized():
    data = load_data("digits", image_size=16)
    assert data.train.inputs.shape == (1297, 1, 16, 16)
