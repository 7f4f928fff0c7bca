import numpy as np
import pytest
import torch
from make_data import pixels, refused
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from pseudocoreset.data import Scaling, from_dataset

COLOUR, GREY = pixels(6, 3, 8, 8), pixels(6, 8, 8)


class Pairs(Dataset):
    def __init__(self, images, labels=(0, 1, 2, 0, 1, 2)):
        self.inputs, self.targets = list(images), list(labels)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, position):
        return self.inputs[position], self.targets[position]


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
def test_from_dataset_takes_every_kind_of_image(images, expected):
    data = from_dataset(Pairs(images), Pairs(images), name="mine")
    assert np.array_equal(data.train.inputs.numpy(), expected)
    assert np.array_equal(data.test.inputs.numpy(), expected)
    assert data.train.targets.tolist() == [0, 1, 2, 0, 1, 2]
    assert (data.name, data.class_names, data.mirror) == ("mine", ("0", "1", "2"), True)


def test_from_dataset_takes_labels_as_tensors_and_numpy_numbers():
    tensors = TensorDataset(torch.from_numpy(COLOUR), torch.tensor([0, 1, 2, 0, 1, 2]))
    numbers = Pairs(COLOUR, np.array([0, 1, 2, 0, 1, 2], np.int32))
    assert from_dataset(tensors, numbers).test.targets.tolist() == [0, 1, 2, 0, 1, 2]


def test_from_dataset_names_and_scaling_are_the_given_or_the_own():
    own = Pairs(COLOUR)
    own.classes = ["ant", "bee", "cow"]
    assert from_dataset(own, own).class_names == ("ant", "bee", "cow")
    assert from_dataset(own, own).scaling == Scaling.measured(torch.from_numpy(COLOUR))
    given = Scaling((0.5,) * 3, (0.5,) * 3)
    data = from_dataset(own, own, class_names=["a", "b", "c"], scaling=given, mirror=False)
    assert (data.class_names, data.scaling, data.mirror) == (("a", "b", "c"), given, False)


BAD = {
    "normalised": (Pairs(torch.randn(6, 3, 8, 8)), "image 0"),
    "NaN": (Pairs(torch.full((6, 3, 8, 8), torch.nan)), "image 0"),
    "int64": (Pairs(torch.zeros(6, 3, 8, 8, dtype=torch.int64)), "int64"),
    "text": (Pairs(["x"] * 6), "image 0"),
    "channels": (Pairs(torch.zeros(6, 4, 8, 8)), "image 0"),
    "sizes": (Pairs([*torch.zeros(5, 3, 8, 8), torch.zeros(3, 9, 9)]), "image 5"),
    "not square": (Pairs(torch.zeros(6, 3, 8, 9)), "8×9"),
    "float label": (Pairs(COLOUR, [0.5] * 6), "0.5"),
    "one-hot label": (Pairs(COLOUR, torch.eye(6)), "image 0"),
    "label beyond all": (Pairs(COLOUR, [10**30] * 6), "1000"),
    "triples": ([(image, 0, 0) for image in COLOUR], "image 0"),
    "bare images": (list(COLOUR), "image 0"),
    "no length": (iter([]), "mine, train"),
    "loader": (torch.utils.data.DataLoader(Pairs(COLOUR)), "DataLoader"),
    "rows": (Pairs(torch.randn(6, 5)), "from_arrays"),
    "float pixels": (
        Pairs([Image.fromarray(i.astype(np.float32)) for i in GREY]),
        "image 0",
    ),
    "negative label": (Pairs(COLOUR, [0, 1, 2, -1, 1, 2]), "label -1 of image 3"),
    "absurd label": (Pairs(COLOUR, [0, 1, 2, 2**40, 1, 2]), "of image 3"),
    "no image": (Pairs(COLOUR, [0, 2, 2, 0, 2, 2]), "class '1'"),
    "empty": (Pairs([]), "mine, train"),
}


@pytest.mark.parametrize(("dataset", "naming"), BAD.values(), ids=BAD.keys())
def test_from_dataset_refuses_what_it_cannot_take(dataset, naming):
    good = Pairs(COLOUR)
    refused("train", from_dataset, dataset, good, name="mine", naming=naming)


@pytest.mark.parametrize("dataset", [Pairs([]), Pairs(COLOUR, [3] * 6), Pairs(COLOUR, [0.5] * 6)])
def test_from_dataset_blames_the_test_split(dataset):
    refused("test", from_dataset, Pairs(COLOUR), dataset, name="mine", naming="mine, test")
