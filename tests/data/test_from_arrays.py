import numpy as np
import pytest
import torch
from make_data import npz_arrays, pixels, refused
from PIL import Image

from pseudocoreset.data import Column, from_arrays, load_data

NUMBERS = np.random.default_rng(0).normal(size=(40, 3))
LABELS = np.arange(40) % 3
IMAGES = pixels(40, 8, 8, 3)


def as_array(values):
    return np.asarray(values)


@pytest.mark.parametrize("kind", [as_array, torch.as_tensor, lambda values: values.tolist()])
def test_from_arrays_takes_arrays_tensors_and_lists(kind):
    data = from_arrays(kind(NUMBERS), kind(LABELS), kind(NUMBERS[:9]), kind(LABELS[:9]), name="n")
    assert np.array_equal(data.train.inputs.numpy(), NUMBERS.astype(np.float32))
    assert data.train.targets.tolist() == LABELS.tolist()
    assert len(data.test) == 9
    assert (data.name, data.task, data.class_names) == ("n", "classification", ("0", "1", "2"))
    assert data.columns == tuple(Column(f"x{place}", "number") for place in range(3))


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (IMAGES, IMAGES.transpose(0, 3, 1, 2)),
        (IMAGES.transpose(0, 3, 1, 2), IMAGES.transpose(0, 3, 1, 2)),
        (torch.from_numpy(IMAGES), IMAGES.transpose(0, 3, 1, 2)),
        (IMAGES[..., 0], IMAGES[:, None, ..., 0]),
        (IMAGES[..., :1], IMAGES[:, None, ..., 0]),
        ([Image.fromarray(image) for image in IMAGES], IMAGES.transpose(0, 3, 1, 2)),
    ],
)
def test_from_arrays_takes_images(images, expected):
    data = from_arrays(images, LABELS, images, LABELS)
    assert data.is_image
    assert data.train.inputs.dtype == torch.uint8
    assert np.array_equal(data.train.inputs.numpy(), expected)
    assert data.columns == ()


def test_from_arrays_gives_the_images_of_an_npz_file(tmp_path):
    arrays = npz_arrays()
    np.savez(tmp_path / "some.npz", **arrays)
    names = arrays.pop("class_names").tolist()
    data = from_arrays(*arrays.values(), class_names=names)
    assert data.fingerprint == load_data(f"npz:{tmp_path / 'some.npz'}").fingerprint


@pytest.mark.parametrize(
    ("y", "task", "given", "names"),
    [
        (LABELS, None, "classification", ("0", "1", "2")),
        (LABELS * 10 - 5, None, "classification", ("-5", "5", "15")),
        (LABELS > 0, None, "classification", ("False", "True")),
        (np.array(["b", "a", "c"])[LABELS], None, "classification", ("a", "b", "c")),
        (np.array(["b", "a", "c"], object)[LABELS], None, "classification", ("a", "b", "c")),
        (np.array(["10", "9", "8"])[LABELS], None, "classification", ("8", "9", "10")),
        (LABELS / 2, None, "regression", ()),
        (LABELS / 2, "classification", "classification", ("0.0", "0.5", "1.0")),
        (LABELS, "regression", "regression", ()),
        (NUMBERS, None, "regression", ()),
        (NUMBERS.astype(np.float16), None, "regression", ()),
    ],
)
def test_from_arrays_targets_decide_the_task(y, task, given, names):
    data = from_arrays(NUMBERS, y, NUMBERS, y, task=task)
    assert (data.task, data.class_names) == (given, names)
    if given == "regression":
        expected = np.asarray(y, np.float32).reshape(40, -1)
        assert np.array_equal(data.train.targets.numpy(), expected)
        assert data.outputs == expected.shape[1]
        assert len(data.target_scaling.mean) == expected.shape[1]
    else:
        order = {name: place for place, name in enumerate(names)}
        assert data.test.targets.tolist() == [order[str(value)] for value in y.tolist()]


def test_from_arrays_class_names_are_in_the_given_order():
    names = ["2", "1", "0"]  # numbers are places, even where they are names too
    data = from_arrays(NUMBERS, LABELS, class_names=names)
    assert data.class_names == tuple(names)
    assert torch.bincount(torch.cat([data.train.targets, data.test.targets])).tolist() == [
        14,
        13,
        13,
    ]
    texts = np.array(["b", "a", "c"])[LABELS]
    data = from_arrays(NUMBERS, texts, NUMBERS, texts, class_names=["c", "b", "a"])
    assert data.train.targets.tolist() == [(1, 2, 0)[label] for label in LABELS]


@pytest.mark.parametrize(("X", "y"), [(IMAGES, LABELS), (NUMBERS, LABELS), (NUMBERS, NUMBERS)])
def test_from_arrays_without_a_test_split_moves_no_point_when_one_is_added(X, y):
    def places(data):
        return {
            (str(inputs.tolist()), str(targets.tolist())): part
            for part, split in (("train", data.train), ("test", data.test))
            for inputs, targets in zip(split.inputs, split.targets, strict=True)
        }

    whole = places(from_arrays(X, y))
    part = places(from_arrays(X[::-1][:-1], y[::-1][:-1]))
    assert (len(whole), len(part)) == (40, 39)
    assert set(whole.values()) == {"train", "test"}
    assert part == {key: whole[key] for key in part}
    twice = from_arrays(np.concatenate([X, X]), np.concatenate([y, y]))
    assert places(twice) == whole
    assert twice.num_train == 2 * sum(place == "train" for place in whole.values())


def with_value(value, place=(5, 1)):
    numbers = NUMBERS.copy()
    numbers[place] = value
    return numbers


BAD = {  # what is to blame, what the sentence names, the arguments
    "NaN": ("X", "[5, 1]", (with_value(np.nan), LABELS)),
    "infinity": ("X", "[5, 1]", (with_value(np.inf), LABELS)),
    "too large": ("X", "[5, 1]", (with_value(1e39), LABELS)),
    "NaN target": ("y", "[5, 1]", (NUMBERS, with_value(np.nan))),
    "one axis": ("X", "40", (NUMBERS[:, 0], LABELS)),
    "float images": ("X", "(X * 255)", (IMAGES / 255, LABELS)),
    "one-hot targets": ("y", "y.argmax(1)", (NUMBERS, np.eye(3)[LABELS])),
    "whole one-hot targets": ("y", "y.argmax(1)", (NUMBERS, np.eye(3, dtype=int)[LABELS])),
    "not square": ("X", "40×8×7×3", (IMAGES[:, :, :-1], LABELS)),
    "texts": ("X", "", (NUMBERS.astype(str), LABELS)),
    "ragged": ("X", "", ([[1, 2], [3]], [0, 1])),
    "no columns": ("X", "40×0", (NUMBERS[:, :0], LABELS)),
    "no points": ("X", "", (NUMBERS[:0], LABELS[:0])),
    "a number": ("X", "", (3, LABELS)),
    "too few targets": ("y", "39", (NUMBERS, LABELS[:-1])),
    "column of classes": ("y", "40×1", (NUMBERS, LABELS[:, None])),
    "complex targets": ("y", "complex", (NUMBERS, LABELS * 1j)),
    "mixed targets": ("y", "", (NUMBERS, np.array([None, "a"] * 20))),
    "one class": ("y", "", (NUMBERS, LABELS * 0)),
    "class of one point": (
        "y",
        "or give `task` regression",
        (NUMBERS, np.where(np.arange(40) == 3, 7, LABELS)),
    ),
    "copies of one point": ("X", "", (NUMBERS[:1].repeat(5, 0), np.ones(5))),
    "test inputs alone": ("y_test", "", (NUMBERS, LABELS, NUMBERS)),
    "test targets alone": ("X_test", "", (NUMBERS, LABELS, None, LABELS)),
    "other columns": ("X_test", "", (NUMBERS, LABELS, NUMBERS[:, 1:], LABELS)),
    "other images": ("X_test", "", (IMAGES, LABELS, IMAGES[:, 1:, 1:], LABELS)),
    "other kind": ("X_test", "", (IMAGES, LABELS, NUMBERS, LABELS)),
    "NaN in test": ("X_test", "[5, 1]", (NUMBERS, LABELS, with_value(np.nan), LABELS)),
    "too few test targets": ("y_test", "39", (NUMBERS, LABELS, NUMBERS, LABELS[:-1])),
    "unknown test class": ("y_test", "'3'", (NUMBERS, LABELS, NUMBERS, LABELS + 1)),
    "different number of targets": ("y_test", "", (NUMBERS, NUMBERS, NUMBERS, NUMBERS[:, 1:])),
}


@pytest.mark.parametrize(("parameter", "naming", "arguments"), BAD.values(), ids=BAD.keys())
def test_from_arrays_refuses_what_it_cannot_take(parameter, naming, arguments):
    message = refused(parameter, from_arrays, *arguments, naming=naming)
    assert f"`{parameter}`" in message or message.startswith("arrays: ")


def test_from_arrays_takes_rows_of_zeros_and_a_one_as_numbers_if_told_so():
    assert from_arrays(NUMBERS, np.eye(3)[LABELS], task="regression").outputs == 3


BAD_OPTIONS = {
    "regression of texts": ("task", LABELS.astype(str), {"task": "regression"}),
    "classes of rows": ("y", NUMBERS, {"task": "classification"}),
    "names for regression": ("class_names", NUMBERS, {"class_names": ["a", "b"]}),
    "too few names": ("y", LABELS, {"class_names": ["a", "b"]}),
    "names of classes without points": ("class_names", LABELS, {"class_names": list("abcd")}),
    "names twice": ("class_names", LABELS, {"class_names": list("aba")}),
    "other names": ("y", LABELS.astype(str), {"class_names": list("abc")}),
}


@pytest.mark.parametrize(
    ("parameter", "y", "options"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys()
)
def test_from_arrays_refuses_options_that_do_not_fit(parameter, y, options):
    refused(parameter, from_arrays, NUMBERS, y, **options)


def test_from_arrays_warns_where_the_task_is_in_doubt():
    with pytest.warns(RuntimeWarning, match="3 different numbers in decimals"):
        assert from_arrays(NUMBERS, LABELS.astype(float)).task == "regression"
    assert from_arrays(NUMBERS, LABELS.astype(float), task="regression").task == "regression"
    assert from_arrays(NUMBERS, np.arange(40.0)).task == "regression"  # many different ones
    ages, rows = np.arange(120) % 30, np.random.default_rng(0).normal(size=(120, 3))
    with pytest.warns(RuntimeWarning, match="30 different whole numbers"):
        assert from_arrays(rows, ages).task == "classification"
    assert from_arrays(rows, ages, task="classification").task == "classification"
    assert from_arrays(pixels(120, 8, 8, 3), ages).task == "classification"
