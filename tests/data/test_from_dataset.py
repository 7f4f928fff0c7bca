import numpy as np
import pytest
import torch
from make_data import pixels
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from pseudocoreset.data import Normalisation, from_dataset
from pseudocoreset.errors import UserError

COLOUR, GREY = pixels(6, 3, 8, 8), pixels(6, 8, 8)


class Pairs(Dataset):
    def __init__(self, images, labels=(0, 1, 2, 0, 1, 2)):
        self.images, self.labels = list(images), list(labels)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, position):
        return self.images[position], self.labels[position]


KINDS = {
    "PIL colour": ([Image.fromarray(i.transpose(1, 2, 0)) for i in COLOUR], COLOUR),
    "PIL grey": ([Image.fromarray(i) for i in GREY], GREY[:, None]),
    "tensor": (torch.from_numpy(COLOUR), COLOUR),
    "tensor h×w": (torch.from_numpy(GREY), GREY[:, None]),
    "tensor h×w×c": (torch.from_numpy(COLOUR.transpose(0, 2, 3, 1).copy()), COLOUR),
    "array h×w×c": (COLOUR.transpose(0, 2, 3, 1), COLOUR),
    "array c×h×w": (COLOUR, COLOUR),
    "float tensor": (torch.from_numpy(COLOUR) / 255, COLOUR),
    "half tensor": (
        (torch.from_numpy(GREY // 255 * 255) / 255).half(),
        (GREY // 255 * 255)[:, None],
    ),
    "tensor 3×3×3": (torch.from_numpy(COLOUR[:, :, :3, :3].copy()), COLOUR[:, :, :3, :3]),
    "array 3×3×3": (COLOUR[:, :, :3, :3], COLOUR[:, :, :3, :3].transpose(0, 3, 1, 2)),
}


@pytest.mark.parametrize(("images", "expected"), KINDS.values(), ids=KINDS.keys())
def test_every_kind_of_image(images, expected):
    data = from_dataset(Pairs(images), Pairs(images), name="mine")
    assert np.array_equal(data.train.images.numpy(), expected)
    assert np.array_equal(data.test.images.numpy(), expected)
    assert data.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert (data.name, data.class_names, data.mirror) == ("mine", ("0", "1", "2"), True)


def test_labels_may_be_tensors_or_numpy_numbers():
    tensors = TensorDataset(torch.from_numpy(COLOUR), torch.tensor([0, 1, 2, 0, 1, 2]))
    numbers = Pairs(COLOUR, np.array([0, 1, 2, 0, 1, 2], np.int32))
    assert from_dataset(tensors, numbers).test.labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_names_and_normalisation_are_the_given_ones_or_the_data_sets_own():
    own = Pairs(COLOUR)
    own.classes = ["ant", "bee", "cow"]
    assert from_dataset(own, own).class_names == ("ant", "bee", "cow")
    assert from_dataset(own, own).normalisation == Normalisation.measured(torch.from_numpy(COLOUR))
    given = Normalisation((0.5,) * 3, (0.5,) * 3)
    data = from_dataset(own, own, class_names=["a", "b", "c"], normalisation=given, mirror=False)
    assert (data.class_names, data.normalisation, data.mirror) == (("a", "b", "c"), given, False)


BAD = {
    "normalised": (Pairs(torch.randn(6, 3, 8, 8)), r"image \d: has values outside \[0, 1\]"),
    "NaN": (Pairs(torch.full((6, 3, 8, 8), torch.nan)), r"image 0: has values outside \[0, 1\]"),
    "int64": (Pairs(torch.zeros(6, 3, 8, 8, dtype=torch.int64)), "image 0: is int64"),
    "text": (Pairs(["x"] * 6), "image 0: is a str"),
    "channels": (Pairs(torch.zeros(6, 4, 8, 8)), "image 0: its shape"),
    "sizes": (Pairs([*torch.zeros(5, 3, 8, 8), torch.zeros(3, 9, 9)]), "image 5: its shape"),
    "not square": (Pairs(torch.zeros(6, 3, 8, 9)), "expected square"),
    "float label": (Pairs(COLOUR, [0.5] * 6), r"image 0: the label is 0\.5"),
    "one-hot label": (Pairs(COLOUR, torch.eye(6)), "image 0: the label is tensor"),
    "label beyond all": (Pairs(COLOUR, [10**30] * 6), "image 0: the label is 1000"),
    "triples": ([(image, 0, 0) for image in COLOUR], "image 0: is no pair of an image and its"),
    "bare images": (list(COLOUR), "image 0: is no pair of an image and its"),
    "no length": (iter([]), "mine, train: has no length"),
    "float pixels": (
        Pairs([Image.fromarray(i.astype(np.float32)) for i in GREY]),
        "image 0: has floating-point pixels",
    ),
    "negative label": (Pairs(COLOUR, [0, 1, 2, -1, 1, 2]), "label -1 of image 3"),
    "absurd label": (Pairs(COLOUR, [0, 1, 2, 2**40, 1, 2]), "out of range"),
    "no image": (Pairs(COLOUR, [0, 2, 2, 0, 2, 2]), "class '1' has no training image"),
    "empty": (Pairs([]), "mine, train: holds no images"),
}


@pytest.mark.parametrize(("dataset", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_taken_is_named(dataset, message):
    with pytest.raises(UserError, match=message):
        from_dataset(dataset, dataset, name="mine")
