import gzip

import numpy as np
import pytest
from make_data import idx_bytes, labels, make_mnist, pixels

from pseudocoreset.data import load_data
from pseudocoreset.errors import UserError

LABELS = "train-labels-idx1-ubyte"
IMAGES = "train-images-idx3-ubyte"


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("kind", "place"),
    [("mnist", "."), ("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw")],
)
def test_the_files_come_back_as_they_were_written(kind, place, zipped, tmp_path):
    arrays = make_mnist(tmp_path / "data" / place, zipped)
    data = load_data(f"{kind}:{tmp_path / 'data'}")
    for split, part in ((data.train, "train"), (data.test, "t10k")):
        assert np.array_equal(split.images[:, 0].numpy(), arrays[f"{part}-images-idx3-ubyte"])
        assert split.labels.tolist() == arrays[f"{part}-labels-idx1-ubyte"].tolist()
    assert data.mirror == (kind == "fashion-mnist")
    assert data.class_names[1] == ("1" if kind == "mnist" else "Trouser")
    expected = (0.1307, 0.3081) if kind == "mnist" else (0.2860, 0.3530)
    assert (data.normalisation.mean[0], data.normalisation.std[0]) == expected


def broken(tmp_path, name, content):
    make_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(UserError) as error:
        load_data(f"mnist:{tmp_path}")
    return str(error.value)


def test_a_missing_file(tmp_path):
    assert f"{LABELS}: the file is missing" in broken(tmp_path, LABELS, None)


def test_a_wrong_magic_number(tmp_path):
    message = broken(tmp_path, IMAGES, idx_bytes(labels(20)) + bytes(20))
    assert f"{IMAGES}: wrong magic number 00000801; expected 00000803" in message


def test_a_truncated_file(tmp_path):
    message = broken(tmp_path, IMAGES, idx_bytes(pixels(20, 28, 28))[:-1])
    assert f"{IMAGES}: the header promises 15680 bytes" in message
    assert "holds 15679" in message


def test_a_truncated_header(tmp_path_factory):
    for length in (0, 3, 9):
        folder = tmp_path_factory.mktemp("idx")
        assert "truncated within its header" in broken(
            folder, IMAGES, bytes((0, 0, 8, 3, *[0] * 6))[:length]
        )


def test_a_file_that_is_too_long(tmp_path):
    assert "holds more" in broken(tmp_path, LABELS, idx_bytes(labels(20)) + b"x")


def test_a_label_out_of_range(tmp_path):
    message = broken(tmp_path, LABELS, idx_bytes(np.full(20, 10, np.uint8)))
    assert "label 10 of image 0 is out of range; expected 0 to 9" in message


def test_counts_that_do_not_match(tmp_path):
    assert "20 images and 19 labels" in broken(tmp_path, LABELS, idx_bytes(labels(19)))


def test_a_class_without_an_image(tmp_path):
    message = broken(tmp_path, LABELS, idx_bytes(labels(20, classes=9)))
    assert "class '9' has no training image" in message


def test_images_that_are_not_square(tmp_path):
    assert "expected square" in broken(tmp_path, IMAGES, idx_bytes(pixels(20, 28, 27)))


def test_a_header_that_promises_too_much_is_not_believed(tmp_path):
    header = bytes((0, 0, 8, 3)) + b"\xff" * 12
    assert "expected at most" in broken(tmp_path, IMAGES, header)


@pytest.mark.parametrize("damage", ["truncated", "bomb", "not gzip"])
def test_a_damaged_gzip_file(tmp_path, damage):
    folder = tmp_path / "mnist"
    make_mnist(folder, zipped=True)
    path = folder / f"{LABELS}.gz"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-9])
    elif damage == "bomb":
        path.write_bytes(gzip.compress(idx_bytes(labels(20)) + bytes(10_000_000)))
    else:
        path.write_bytes(b"hello")
    with pytest.raises(UserError, match=r"\.gz: .*so get the file again\.$"):
        load_data(f"mnist:{folder}")
