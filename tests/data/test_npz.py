import io
import zipfile

import numpy as np
import pytest
from make_data import labels, make_npz, npz_arrays, pixels

from pseudocoreset.data import load_data
from pseudocoreset.errors import UserError


def load(tmp_path, **changed):
    make_npz(tmp_path / "some.npz", **changed)
    return load_data(f"npz:{tmp_path / 'some.npz'}")


def error(tmp_path, **changed):
    with pytest.raises(UserError) as raised:
        load(tmp_path, **changed)
    assert str(tmp_path / "some.npz") in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_arrays_come_back_as_they_were_saved(tmp_path):
    data = load(tmp_path)
    arrays = npz_arrays()
    for split, part in ((data.train, "train"), (data.test, "test")):
        assert np.array_equal(split.images.permute(0, 2, 3, 1).numpy(), arrays[f"{part}_images"])
        assert split.labels.tolist() == arrays[f"{part}_labels"].tolist()
        assert split.images.is_contiguous()
    assert data.class_names == ("ant", "bee", "cow")
    share = arrays["train_images"] / 255
    assert data.normalisation.mean == pytest.approx(share.mean((0, 1, 2)), abs=1e-4)
    assert data.normalisation.std == pytest.approx(share.std((0, 1, 2)), abs=1e-4)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((8, 8), (1, 8, 8)),
        ((8, 8, 1), (1, 8, 8)),
        ((1, 8, 8), (1, 8, 8)),
        ((3, 8, 8), (3, 8, 8)),
        ((3, 1, 1), (3, 1, 1)),
        ((3, 3, 3), (3, 3, 3)),
    ],
)
def test_every_layout_is_understood(shape, expected, tmp_path):
    images = pixels(12, *shape)
    data = load(tmp_path, train_images=images, test_images=images[:6])
    assert data.train.images.shape == (12, *expected)
    last = shape in ((8, 8, 1), (3, 3, 3))  # where both fit, the last axis is the channels
    first = images.transpose(0, 3, 1, 2) if last else images
    assert np.array_equal(data.train.images.numpy().ravel(), first.ravel())


def test_an_array_in_fortran_order(tmp_path):
    data = load(tmp_path, train_images=np.asfortranarray(npz_arrays()["train_images"]))
    assert data.fingerprint == load(tmp_path).fingerprint


def test_without_names_classes_are_numbers(tmp_path):
    assert load(tmp_path, class_names=None).class_names == ("0", "1", "2")


def test_float_images_and_nan(tmp_path):
    for images in (np.zeros((12, 8, 8)), np.full((12, 8, 8), np.nan, np.float32)):
        assert "expected uint8" in error(tmp_path, train_images=images)


@pytest.mark.parametrize("shape", [(8, 7), (8, 7, 3), (8, 8, 4), (8,), (3, 8, 7), (0, 0, 3)])
def test_images_that_are_not_square(shape, tmp_path):
    assert "expected square" in error(
        tmp_path, train_images=pixels(12, *shape), test_images=pixels(6, *shape)
    )


def test_images_of_two_sizes(tmp_path):
    assert "give both the same size" in error(tmp_path, test_images=pixels(6, 9, 9, 3))


@pytest.mark.parametrize(
    "wrong", [labels(12, 3).astype(np.float64), labels(12, 3)[:, None], np.array(["a"] * 12)]
)
def test_labels_that_are_no_class_numbers(wrong, tmp_path):
    assert "'train_labels' is" in error(tmp_path, train_labels=wrong)


@pytest.mark.parametrize("wrong", [3, -1, 2**62])
def test_a_label_out_of_range(wrong, tmp_path):
    numbers = labels(12, 3).astype(np.int64)
    numbers[5] = wrong
    assert f"label {wrong} of image 5 is out of range" in error(tmp_path, train_labels=numbers)


def test_a_class_number_beyond_all_sense_without_names(tmp_path):
    numbers = np.full(12, 2**63, np.uint64)
    assert "out of range" in error(tmp_path, train_labels=numbers, class_names=None)


def test_counts_that_do_not_match(tmp_path):
    assert "12 images and 11 labels" in error(tmp_path, train_labels=labels(11, 3))


def test_a_class_without_an_image(tmp_path):
    assert "class 'cow' has no training image" in error(tmp_path, train_labels=labels(12, 2))


def test_two_classes_of_one_name(tmp_path):
    names = np.array(["ant", "bee", "ant"])
    assert "'ant' names two classes" in error(tmp_path, class_names=names)


def test_one_class_alone(tmp_path):
    one = {"train_labels": labels(12, 1), "test_labels": labels(6, 1)}
    said = error(tmp_path, **one, class_names=np.array(["ant"]))
    assert "has one class, with nothing to tell it from" in said


def test_no_images_at_all(tmp_path):
    assert "holds no images" in error(
        tmp_path, test_images=pixels(0, 8, 8, 3), test_labels=labels(0)
    )


@pytest.mark.parametrize("name", ["train_images", "train_labels", "test_images", "test_labels"])
def test_a_missing_array(name, tmp_path):
    assert f"has no array '{name}'" in error(tmp_path, **{name: None})


@pytest.mark.parametrize("names", [np.arange(3), np.array([["ant", "bee", "cow"]])])
def test_class_names_that_are_not_a_list_of_text(names, tmp_path):
    assert "'class_names' is" in error(tmp_path, class_names=names)


def test_python_objects_are_never_loaded(tmp_path):
    message = error(tmp_path, class_names=np.array(["ant", None, {}], dtype=object))
    assert "'class_names' holds Python objects" in message


def test_a_file_that_is_no_archive(tmp_path):
    (tmp_path / "some.npz").write_bytes(b"hello")
    with pytest.raises(UserError, match=r"some\.npz: expected a whole \.npz file"):
        load_data(f"npz:{tmp_path / 'some.npz'}")


def test_a_header_that_promises_too_much_is_not_believed(tmp_path):
    stream = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 40, 8, 8)}
    np.lib.format.write_array_header_1_0(stream, header)
    make_npz(tmp_path / "some.npz", train_images=None)
    with zipfile.ZipFile(tmp_path / "some.npz", "a") as archive:
        archive.writestr("train_images.npy", stream.getvalue())
    with pytest.raises(UserError, match=r"damaged or truncated"):
        load_data(f"npz:{tmp_path / 'some.npz'}")
