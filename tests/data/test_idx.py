import gzip

import numpy as np
import pytest
from make_data import idx_bytes, labels, make_mnist, pixels, spec_refused

from pseudocoreset.data import load_data

LABELS = "train-labels-idx1-ubyte"
IMAGES = "train-images-idx3-ubyte"


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("kind", "place"),
    [("mnist", "."), ("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw")],
)
def test_mnist_comes_back_as_it_was_written(kind, place, zipped, tmp_path):
    arrays = make_mnist(tmp_path / "data" / place, zipped)
    data = load_data(f"{kind}:{tmp_path / 'data'}")
    for split, part in ((data.train, "train"), (data.test, "t10k")):
        assert np.array_equal(split.inputs[:, 0].numpy(), arrays[f"{part}-images-idx3-ubyte"])
        assert split.targets.tolist() == arrays[f"{part}-labels-idx1-ubyte"].tolist()
    assert data.mirror == (kind == "fashion-mnist")
    assert data.class_names[1] == ("1" if kind == "mnist" else "Trouser")
    expected = (0.1307, 0.3081) if kind == "mnist" else (0.2860, 0.3530)
    assert (data.scaling.mean[0], data.scaling.std[0]) == expected


DAMAGED = {  # file, its content, what the sentence names
    "missing": (LABELS, None, LABELS),
    "other magic number": (IMAGES, idx_bytes(labels(20)) + bytes(20), IMAGES),
    "truncated": (IMAGES, idx_bytes(pixels(20, 28, 28))[:-1], "15679"),
    "empty": (IMAGES, b"", IMAGES),
    "truncated magic number": (IMAGES, bytes((0, 0, 8)), IMAGES),
    "truncated header": (IMAGES, bytes((0, 0, 8, 3, *[0] * 5)), IMAGES),
    "too long": (LABELS, idx_bytes(labels(20)) + b"x", LABELS),
    "label out of range": (LABELS, idx_bytes(np.full(20, 10, np.uint8)), "label 10 of image 0"),
    "other count": (LABELS, idx_bytes(labels(19)), "20 images and 19 labels"),
    "class without an image": (LABELS, idx_bytes(labels(20, classes=9)), "class '9'"),
    "not square": (IMAGES, idx_bytes(pixels(20, 28, 27)), "28×27"),
    "promise beyond all memory": (IMAGES, bytes((0, 0, 8, 3)) + b"\xff" * 12, IMAGES),
}


@pytest.mark.parametrize(("name", "content", "naming"), DAMAGED.values(), ids=DAMAGED.keys())
def test_mnist_damaged_is_refused(name, content, naming, tmp_path):
    make_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    spec_refused(f"mnist:{tmp_path}", naming)


@pytest.mark.parametrize("damage", ["truncated", "bomb", "not gzip"])
def test_mnist_damaged_gzip_is_refused(damage, tmp_path):
    folder = tmp_path / "mnist"
    make_mnist(folder, zipped=True)
    path = folder / f"{LABELS}.gz"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-9])
    elif damage == "bomb":
        path.write_bytes(gzip.compress(idx_bytes(labels(20)) + bytes(10_000_000)))
    else:
        path.write_bytes(b"hello")
    spec_refused(f"mnist:{folder}", path)
