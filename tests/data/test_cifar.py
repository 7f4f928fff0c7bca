import os
import pickle

import numpy as np
import pytest
from make_data import (
    cifar_files,
    make_cifar_binary,
    make_cifar_python,
    names,
    pickled,
    small_cifar,
    spec_refused,
)

from pseudocoreset.data import load_data

FOLDERS = {
    ("binary", 10): "cifar-10-batches-bin",
    ("binary", 100): "cifar-100-binary",
    ("python", 10): "cifar-10-batches-py",
    ("python", 100): "cifar-100-python",
}


@pytest.fixture(autouse=True)
def _small():
    with small_cifar():
        yield


def make(root, kind, classes):
    folder = root / FOLDERS[kind, classes]
    return folder, (make_cifar_binary if kind == "binary" else make_cifar_python)(folder, classes)


@pytest.mark.parametrize("parent", [True, False])
@pytest.mark.parametrize(("kind", "classes"), FOLDERS)
def test_cifar_comes_back_as_it_was_written(kind, classes, parent, tmp_path):
    folder, files = make(tmp_path, kind, classes)
    data = load_data(f"cifar{classes}:{tmp_path if parent else folder}")
    *train, test = files.values()
    for split, written in ((data.train, train), (data.test, [test])):
        images = np.concatenate([images for images, _ in written]).reshape(-1, 3, 32, 32)
        assert np.array_equal(split.inputs.numpy(), images)
        assert (
            split.targets.tolist() == np.concatenate([numbers for _, numbers in written]).tolist()
        )
    assert data.class_names == tuple(names(classes))
    assert data.scaling.mean == (0.4914, 0.4822, 0.4465)
    assert data.scaling.std == (0.2023, 0.1994, 0.2010)


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar_pickles_of_python_2_and_3_give_the_same(classes, tmp_path):
    for version in (2, 3):
        folder = tmp_path / str(version) / FOLDERS["python", classes]
        make_cifar_python(folder, classes, python2=version == 2)
        if version == 2:
            content = b"".join(path.read_bytes() for path in folder.iterdir())
            assert b"numpy.core.multiarray" in content
            assert b"_codecs" not in content
    two, three = (load_data(f"cifar{classes}:{tmp_path / str(version)}") for version in (2, 3))
    assert two.fingerprint == three.fingerprint


@pytest.mark.parametrize(("kind", "classes"), FOLDERS)
def test_cifar_file_that_is_missing_is_named(kind, classes, tmp_path):
    folder, _ = make(tmp_path, kind, classes)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.unlink()
        spec_refused(f"cifar{classes}:{tmp_path}", path)
        path.write_bytes(content)


def test_cifar_binary_that_is_truncated_is_named(tmp_path):
    folder, _ = make(tmp_path, "binary", 10)
    path = folder / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:3073])  # a whole record, but only one
    assert "3073" in spec_refused(f"cifar10:{tmp_path}", path)


@pytest.mark.parametrize(("kind", "classes"), FOLDERS)
def test_cifar_label_out_of_range_is_named(kind, classes, tmp_path):
    folder, files = make(tmp_path, kind, classes)
    stem = next(iter(files))
    if kind == "binary":
        path = folder / f"{stem}.bin"
        content = bytearray(path.read_bytes())
        content[0 if classes == 10 else 1] = classes
        path.write_bytes(content)
    else:
        path = folder / stem
        images, numbers = files[stem]
        key = b"labels" if classes == 10 else b"fine_labels"
        path.write_bytes(pickled({b"data": images, key: [classes, *numbers.tolist()[1:]]}))
    assert f"label {classes}" in spec_refused(f"cifar{classes}:{tmp_path}", path)


def test_cifar_class_without_an_image_is_named(tmp_path):
    folder, _ = make(tmp_path, "binary", 10)
    (folder / "data_batch_5.bin").write_bytes((folder / "data_batch_1.bin").read_bytes())
    spec_refused(f"cifar10:{tmp_path}", "'class 8'")


@pytest.mark.parametrize("content", [b"cat\ndog\n", b"\xff\xfe"])
def test_cifar_class_names_that_are_too_few_or_no_text_are_refused(content, tmp_path):
    folder, _ = make(tmp_path, "binary", 10)
    (folder / "batches.meta.txt").write_bytes(content)
    spec_refused(f"cifar10:{tmp_path}", "batches.meta.txt")


class Attack:
    """Unpickled by an ordinary reader, it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_cifar_pickle_that_asks_for_code_is_refused_and_runs_none(tmp_path):
    folder, _ = make(tmp_path, "python", 10)
    made = tmp_path / "made"
    (folder / "data_batch_1").write_bytes(pickled({b"data": Attack(made)}))
    message = spec_refused(f"cifar10:{tmp_path}", folder / "data_batch_1")
    assert "posix.mkdir" in message
    assert not made.exists()


IMAGES, NUMBERS = next(iter(cifar_files(10).values()))
BAD_CONTENTS = {
    "not a dictionary": [IMAGES],
    "no data": {b"labels": [0, 1]},
    "no labels": {b"data": IMAGES},
    "float images": {b"data": IMAGES.astype(np.float32), b"labels": [0, 1]},
    "objects": {b"data": np.array([None, {}], dtype=object), b"labels": [0, 1]},
    "another shape": {b"data": IMAGES[:, :-1].copy(), b"labels": [0, 1]},
    "columns first": {b"data": np.asfortranarray(IMAGES), b"labels": [0, 1]},
    "too few labels": {b"data": IMAGES, b"labels": [0]},
    "labels that are text": {b"data": IMAGES, b"labels": [b"0", b"1"]},
    "labels beyond 64 bits": {b"data": IMAGES, b"labels": [0, 2**70]},
    "a number": 7,
}


@pytest.mark.parametrize("content", BAD_CONTENTS.values(), ids=BAD_CONTENTS.keys())
def test_cifar_pickle_of_something_else_is_named(content, tmp_path):
    folder, _ = make(tmp_path, "python", 10)
    (folder / "data_batch_1").write_bytes(pickled(content))
    spec_refused(f"cifar10:{tmp_path}", folder / "data_batch_1")


def test_cifar_pickle_with_a_flipped_bit_cannot_take_all_memory(tmp_path):
    folder, _ = make(tmp_path, "python", 10)
    far = pickle.LONG_BINPUT + (2**31).to_bytes(4, "little")
    (folder / "data_batch_1").write_bytes(pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + far + b".")
    spec_refused(f"cifar10:{tmp_path}", folder / "data_batch_1")
