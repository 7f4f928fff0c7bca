import io
import zipfile

import numpy as np
import pytest
from make_data import labels, make_npz, npz_arrays, pixels, spec_refused

from pseudocoreset.data import load_data


def load(tmp_path, **changed):
    make_npz(tmp_path / "some.npz", **changed)
    return load_data(f"npz:{tmp_path / 'some.npz'}")


def npz_refused(tmp_path, naming, **changed):
    make_npz(tmp_path / "some.npz", **changed)
    message = spec_refused(f"npz:{tmp_path / 'some.npz'}", naming)
    assert str(tmp_path / "some.npz") in message


def test_npz_comes_back_as_it_was_saved(tmp_path):
    data = load(tmp_path)
    arrays = npz_arrays()
    for split, part in ((data.train, "train"), (data.test, "test")):
        assert np.array_equal(split.inputs.permute(0, 2, 3, 1).numpy(), arrays[f"{part}_images"])
        assert split.targets.tolist() == arrays[f"{part}_labels"].tolist()
        assert split.inputs.is_contiguous()
    assert data.class_names == ("ant", "bee", "cow")
    share = arrays["train_images"] / 255
    assert data.scaling.mean == pytest.approx(share.mean((0, 1, 2)), abs=1e-4)
    assert data.scaling.std == pytest.approx(share.std((0, 1, 2)), abs=1e-4)


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
def test_npz_layouts_are_all_understood(shape, expected, tmp_path):
    images = pixels(12, *shape)
    data = load(tmp_path, train_images=images, test_images=images[:6])
    assert data.train.inputs.shape == (12, *expected)
    last = shape in ((8, 8, 1), (3, 3, 3))  # where both fit, the last axis is the channels
    first = images.transpose(0, 3, 1, 2) if last else images
    assert np.array_equal(data.train.inputs.numpy().ravel(), first.ravel())


def test_npz_in_fortran_order_gives_the_same(tmp_path):
    data = load(tmp_path, train_images=np.asfortranarray(npz_arrays()["train_images"]))
    assert data.fingerprint == load(tmp_path).fingerprint


def test_npz_without_names_numbers_its_classes(tmp_path):
    assert load(tmp_path, class_names=None).class_names == ("0", "1", "2")


NAMES = np.array(["ant", "bee", "cow"])


def with_label(number, dtype=np.int64):
    numbers = labels(12, 3).astype(dtype)
    numbers[5] = number
    return numbers


def both(shape):
    return {"train_images": pixels(12, *shape), "test_images": pixels(6, *shape)}


BAD = {  # what the sentence names, and what is wrong
    "float images": ("'train_images'", {"train_images": np.zeros((12, 8, 8))}),
    "NaN": ("'train_images'", {"train_images": np.full((12, 8, 8), np.nan, np.float32)}),
    "h≠w": ("12×8×7", both((8, 7))),
    "h≠w, channels last": ("12×8×7×3", both((8, 7, 3))),
    "h≠w, channels first": ("12×3×8×7", both((3, 8, 7))),
    "four channels": ("12×8×8×4", both((8, 8, 4))),
    "one axis": ("12×8", both((8,))),
    "no pixels": ("0×0", both((0, 0, 3))),
    "two sizes": ("9×9", {"test_images": pixels(6, 9, 9, 3)}),
    "float labels": ("'train_labels'", {"train_labels": labels(12, 3).astype(np.float64)}),
    "labels of two axes": ("'train_labels'", {"train_labels": labels(12, 3)[:, None]}),
    "text labels": ("'train_labels'", {"train_labels": np.array(["a"] * 12)}),
    "label too high": ("label 3 of image 5", {"train_labels": with_label(3)}),
    "label too low": ("label -1 of image 5", {"train_labels": with_label(-1)}),
    "label far too high": ("of image 5", {"train_labels": with_label(2**62)}),
    "class number beyond all sense": (
        "of image 0",
        {"train_labels": np.full(12, 2**63, np.uint64), "class_names": None},
    ),
    "counts": ("12 images and 11 labels", {"train_labels": labels(11, 3)}),
    "class without an image": ("'cow'", {"train_labels": labels(12, 2)}),
    "two classes of one name": ("'ant'", {"class_names": np.array(["ant", "bee", "ant"])}),
    "one class": (
        "",
        {
            "train_labels": labels(12, 1),
            "test_labels": labels(6, 1),
            "class_names": np.array(["ant"]),
        },
    ),
    "no images": ("test", {"test_images": pixels(0, 8, 8, 3), "test_labels": labels(0)}),
    "names that are numbers": ("'class_names'", {"class_names": np.arange(3)}),
    "names of two axes": ("'class_names'", {"class_names": NAMES[None]}),
    "Python objects": ("'class_names'", {"class_names": np.array(["ant", None, {}], object)}),
    **{
        f"no {name}": (f"'{name}'", {name: None})
        for name in ("train_images", "train_labels", "test_images", "test_labels")
    },
}


@pytest.mark.parametrize(("naming", "changed"), BAD.values(), ids=BAD.keys())
def test_npz_that_does_not_fit_is_refused(naming, changed, tmp_path):
    npz_refused(tmp_path, naming, **changed)


def test_npz_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "some.npz").write_bytes(b"hello")
    spec_refused(f"npz:{tmp_path / 'some.npz'}", "some.npz")


def test_npz_header_that_promises_too_much_is_not_believed(tmp_path):
    stream = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 40, 8, 8)}
    np.lib.format.write_array_header_1_0(stream, header)
    make_npz(tmp_path / "some.npz", train_images=None)
    with zipfile.ZipFile(tmp_path / "some.npz", "a") as archive:
        archive.writestr("train_images.npy", stream.getvalue())
    spec_refused(f"npz:{tmp_path / 'some.npz'}", "some.npz")
