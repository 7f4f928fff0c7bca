"""Small data sets in the layouts of the real ones."""

import gzip
import io
import pickle
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from pseudocoreset.data import cifar, load_data
from pseudocoreset.errors import UserError

TRAIN, TEST = 20, 10


def refused(parameter, call, *arguments, naming="", **options):
    """Check that a call is refused in one sentence that blames a parameter; gives the sentence."""
    with pytest.raises(UserError) as raised:
        call(*arguments, **options)
    message = str(raised.value)
    assert raised.value.parameter == parameter, message
    assert "\n" not in message
    assert message[-1] in ".?"
    assert "--" not in message
    assert str(naming) in message
    return message


def spec_refused(spec, naming="", parameter="data", **options):
    """Check that data can't be loaded, and that the sentence names what is wrong with them."""
    return refused(parameter, load_data, spec, naming=naming, **options)


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def labels(number, classes=10):
    return (np.arange(number) % classes).astype(np.uint8)


def idx_bytes(array):
    header = bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.tobytes()


def make_mnist(folder, zipped=False):
    folder.mkdir(parents=True)
    arrays = {}
    for part, number in (("train", TRAIN), ("t10k", TEST)):
        arrays[f"{part}-images-idx3-ubyte"] = pixels(number, 28, 28, seed=number)
        arrays[f"{part}-labels-idx1-ubyte"] = labels(number)
    for name, array in arrays.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array), mtime=0))
        else:
            (folder / name).write_bytes(idx_bytes(array))
    return arrays


@contextmanager
def small_cifar():
    """Archives with 2 images a file in CIFAR-10 and 100 in CIFAR-100."""
    with ExitStack() as stack:
        for name in ("CIFAR10_BINARY", "CIFAR10_PYTHON", "CIFAR100_BINARY", "CIFAR100_PYTHON"):
            layout = getattr(cifar, name)
            number = 2 if layout.classes == 10 else 100
            small = replace(
                layout,
                train=tuple((file, number) for file, _ in layout.train),
                test=tuple((file, number) for file, _ in layout.test),
            )
            stack.enter_context(mock.patch.object(cifar, name, small))
        yield


def cifar_files(classes):
    """Stem → images and labels; each class has an image in the five or one training files."""
    if classes == 10:
        stems = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    else:
        stems = ["train", "test"]
    each = 2 if classes == 10 else 100
    return {
        stem: (pixels(each, 3072, seed=place), (each * place + np.arange(each)) % classes)
        for place, stem in enumerate(stems)
    }


def names(classes):
    return [f"class {number}" for number in range(classes)]


def make_cifar_binary(folder, classes):
    folder.mkdir(parents=True)
    files = cifar_files(classes)
    for stem, (images, numbers) in files.items():
        columns = [numbers[:, None].astype(np.uint8), images]
        if classes == 100:
            columns.insert(0, (numbers[:, None] // 5).astype(np.uint8))  # the coarse class
        (folder / f"{stem}.bin").write_bytes(np.concatenate(columns, axis=1).tobytes())
    file = "batches.meta.txt" if classes == 10 else "fine_label_names.txt"
    (folder / file).write_text("\n".join(names(classes)) + "\n\n")
    return files


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes as Python 2's str, and NumPy's functions under their old names."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_old_string(self, value):
        content = value.encode() if isinstance(value, str) else value
        if len(content) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes((len(content),)) + content)
        else:
            self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_old_string

    def save_global(self, thing, *_):
        module = thing.__module__.replace("numpy._core", "numpy.core")
        self.write(pickle.GLOBAL + f"{module}\n{thing.__name__}\n".encode())
        self.memoize(thing)

    dispatch[type] = dispatch[type(len)] = dispatch[type(np.dtype)] = save_global


def pickled(content, python2=False):
    if not python2:
        return pickle.dumps(content, protocol=2)
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(content)
    return stream.getvalue()


def make_cifar_python(folder, classes, python2=False):
    folder.mkdir(parents=True)
    files = cifar_files(classes)
    for stem, (images, numbers) in files.items():
        content = {
            b"batch_label": b"a batch",
            b"labels" if classes == 10 else b"fine_labels": numbers.tolist(),
            b"data": images,
            b"filenames": [f"{stem}_{place}.png".encode() for place in range(len(images))],
        }
        (folder / stem).write_bytes(pickled(content, python2))
    key = b"label_names" if classes == 10 else b"fine_label_names"
    meta = {key: [name.encode() for name in names(classes)]}
    (folder / ("batches.meta" if classes == 10 else "meta")).write_bytes(pickled(meta, python2))
    return files


def smooth(side=64, seed=0, channels=3):
    """An image that JPEG keeps nearly as it is."""
    corners = Image.fromarray(pixels(3, 3, 3, seed=seed)).resize((side, side), Image.BICUBIC)
    return corners if channels == 3 else corners.convert("L")


def make_tiny_imagenet(tree):
    """Two classes, three training images and one test image of each; one of them is grey."""
    ids = ["n02", "n01"]
    (tree / "val" / "images").mkdir(parents=True)
    (tree / "wnids.txt").write_text("".join(f"{name}\n" for name in ids))
    (tree / "words.txt").write_text("n00\tentity\nn01\tgoldfish, Carassius auratus\nn02\tbee\n")
    annotations = []
    for place, name in enumerate(ids):
        folder = tree / "train" / name / "images"
        folder.mkdir(parents=True)
        (tree / "train" / name / f"{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t0\t9\t9\n")
        for number in range(3):
            grey = (place, number) == (0, 1)
            image = smooth(seed=10 * place + number, channels=1 if grey else 3)
            image.save(folder / f"{name}_{number}.JPEG", quality=95)
        smooth(seed=100 + place).save(tree / "val" / "images" / f"val_{place}.JPEG", quality=95)
        annotations.append(f"val_{place}.JPEG\t{name}\t0\t32\t44\t62\n")
    (tree / "val" / "val_annotations.txt").write_text("".join(annotations))


def make_folder(root, parts=("train", "test"), number=2, side=8, channels=3):
    """PNG files of classes "cat" and "dog"; gives the pixels of each file."""
    written = {}
    for part in parts:
        for name in ("cat", "dog"):
            folder = root / part / name
            folder.mkdir(parents=True)
            for place in range(number):
                shape = (side, side, 3) if channels == 3 else (side, side)
                array = pixels(*shape, seed=len(written))
                Image.fromarray(array).save(folder / f"{place}.png")
                written[folder / f"{place}.png"] = array
    return written


def npz_arrays(**changed):
    arrays = {
        "train_images": pixels(12, 8, 8, 3),
        "train_labels": labels(12, 3),
        "test_images": pixels(6, 8, 8, 3, seed=1),
        "test_labels": labels(6, 3),
        "class_names": np.array(["ant", "bee", "cow"]),
    }
    return {name: array for name, array in (arrays | changed).items() if array is not None}


def make_npz(path: Path, **changed):
    arrays = npz_arrays(**changed)
    np.savez_compressed(path, **arrays)
    return arrays
