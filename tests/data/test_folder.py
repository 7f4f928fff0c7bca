import hashlib
import io
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_data import make_folder, pixels, smooth, spec_refused
from PIL import Image

from pseudocoreset.data import load_data
from pseudocoreset.data.decode import read_image


def folder_refused(root, naming, parameter="data", **options):
    return spec_refused(f"folder:{root}", naming, parameter, **options)


@pytest.mark.parametrize("parts", [("train", "test"), ("train", "val")])
@pytest.mark.parametrize("channels", [1, 3])
def test_folder_comes_back_as_it_was_saved(channels, parts, tmp_path):
    written = make_folder(tmp_path, parts, channels=channels)
    data = load_data(f"folder:{tmp_path}")
    assert data.class_names == ("cat", "dog")
    assert data.name == f"folder:{tmp_path.name}"
    for split, part in zip((data.train, data.test), parts, strict=True):
        files = [path for path in written if path.parts[-3] == part]
        assert split.targets.tolist() == [0, 0, 1, 1]
        for image, path in zip(split.inputs.numpy(), files, strict=True):
            assert np.array_equal(
                image.transpose(1, 2, 0).reshape(written[path].shape), written[path]
            )


def test_folder_val_beside_test_is_not_read_and_told(tmp_path):
    make_folder(tmp_path, ("train", "test"))
    expected = load_data(f"folder:{tmp_path}").fingerprint
    make_folder(tmp_path, ("val",), number=3)
    with pytest.warns(RuntimeWarning, match=r"6 files"):
        assert load_data(f"folder:{tmp_path}").fingerprint == expected


# The split by content: images are told by their first pixels, which are their number.


def png(number):
    """A file that no other number gives."""
    image = np.zeros((2, 2, 3), np.uint8)
    image[0, 0] = number >> 16, number >> 8 & 255, number & 255
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "png")
    return stream.getvalue()


PNGS = [png(number) for number in range(40)]


def share(number):
    """The digest of an image's file as a number in [0, 1)."""
    return int.from_bytes(hashlib.blake2b(PNGS[number], digest_size=16).digest()) / 2**128


def place_in_split(classes, folder):
    """Write classes, each file name → image; give each image's split by class, and the data."""
    for name, files in classes.items():
        (folder / name).mkdir()
        for file, number in files.items():
            (folder / name / file).write_bytes(PNGS[number])
    data = load_data(f"folder:{folder}")
    found = {}
    for part, split in (("train", data.train), ("test", data.test)):
        for image, label in zip(split.inputs.tolist(), split.targets.tolist(), strict=True):
            number = image[0][0][0] << 16 | image[1][0][0] << 8 | image[2][0][0]
            found.setdefault((data.class_names[label], number), []).append(part)
    return found


def split_oracle(members):
    """The rule, image by image."""
    tested = {number for number in members if share(number) < 0.2}
    if not tested:
        tested = {min(members, key=share)}
    if tested == set(members):
        tested.remove(max(members, key=share))
    return tested


IMAGES = st.sets(st.integers(0, len(PNGS) - 1), min_size=2, max_size=12)


@settings(max_examples=40, deadline=None)
@given(members=st.tuples(IMAGES, IMAGES), changed=st.integers(0, len(PNGS) - 1), data=st.data())
def test_folder_split_moves_no_image_when_one_is_added_or_removed(members, changed, data):
    """Names are drawn too: an image that is added may come first, last or between the others."""
    before, other = members
    after = before ^ {changed}
    if len(after) < 2:
        after = before | {changed}
    found = []
    for images in (before, after):
        names = data.draw(st.permutations(range(len(images))))
        files = {f"{name}.png": number for name, number in zip(names, images, strict=True)}
        kept = {f"{number}.png": number for number in other}
        with tempfile.TemporaryDirectory() as folder:
            found.append(place_in_split({"ant": files, "bee": kept}, Path(folder)))
    forced = set()
    for images, split in zip((before, after), found, strict=True):
        tested = split_oracle(images)
        assert {number for number in images if split["ant", number] == ["test"]} == tested
        assert {number for number in images if split["ant", number] == ["train"]} == images - tested
        forced |= {number for number in images if (share(number) < 0.2) != (number in tested)}
    for number in (before & after) - forced:
        assert found[0]["ant", number] == found[1]["ant", number]
    for number in other:
        assert found[0]["bee", number] == found[1]["bee", number]


def test_folder_split_survives_an_image_that_comes_first(tmp_path):
    """Each image stays where it was when another is added to a class of twenty."""
    twenty = {f"{number:02}.png": number for number in range(20)}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = place_in_split({"ant": twenty, "bee": twenty}, tmp_path / "a")
    after = place_in_split({"ant": {"!.png": 39, **twenty}, "bee": twenty}, tmp_path / "b")
    assert all(after[key] == part for key, part in before.items())
    assert {part for parts in before.values() for part in parts} == {"train", "test"}


def test_folder_split_keeps_copies_together(tmp_path):
    files = {f"{copy}-{number}.png": number for copy in range(3) for number in range(10)}
    found = place_in_split({"ant": files, "bee": files}, tmp_path)
    assert len(found) == 20
    for parts in found.values():
        assert len(parts) == 3
        assert len(set(parts)) == 1


def test_folder_split_is_about_a_fifth():
    assert 0.15 < np.mean([share(number) < 0.2 for number in range(len(PNGS))]) < 0.25


@pytest.mark.parametrize("number", [1, 3])
def test_folder_class_of_one_image_cannot_be_split(number, tmp_path):
    make_folder(tmp_path, parts=(".",), number=4)
    (tmp_path / "emu").mkdir()
    for copy in range(number):
        (tmp_path / "emu" / f"{copy}.png").write_bytes(PNGS[0])
    folder_refused(tmp_path, "'emu'")


def test_folder_files_beside_the_classes_are_no_matter(tmp_path):
    make_folder(tmp_path, parts=(".",), number=10)
    expected = load_data(f"folder:{tmp_path}").fingerprint
    (tmp_path / "README").write_text("hello")
    assert load_data(f"folder:{tmp_path}").fingerprint == expected


def test_folder_hidden_and_system_files_are_ignored(tmp_path):
    make_folder(tmp_path)
    for name in (".DS_Store", ".hidden.png", "Thumbs.db", "desktop.ini"):
        (tmp_path / "train" / "cat" / name).write_text("x")
    for place in (".git", "__MACOSX", "cat/__MACOSX", "cat/.cache"):
        (tmp_path / "train" / place).mkdir()
        (tmp_path / "train" / place / "x.png").write_text("x")
    data = load_data(f"folder:{tmp_path}")  # any warning is an error
    assert len(data.train) == 4
    assert data.class_names == ("cat", "dog")


@pytest.mark.parametrize("parts", [("train", "test"), (".",)])
def test_folder_files_that_are_no_images_are_skipped_and_counted(parts, tmp_path):
    make_folder(tmp_path, parts, number=6)
    expected = load_data(f"folder:{tmp_path}").fingerprint
    folder = tmp_path / parts[0] / "cat"
    (folder / "notes.txt").write_text("x")
    (folder / "empty").touch()
    (folder.parent / "dog" / "film.mpg").write_bytes(b"\x00\x00\x01\xb3" + bytes(100))
    with pytest.warns(RuntimeWarning, match=r": 3 files ") as told:
        assert load_data(f"folder:{tmp_path}").fingerprint == expected
    assert len(told) == 1


def test_folder_image_without_an_extension_is_read(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "train" / "cat" / "1.png").rename(tmp_path / "train" / "cat" / "picture")
    assert len(load_data(f"folder:{tmp_path}").train) == 4


def test_folder_in_a_class_is_refused(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "train" / "cat" / "more").mkdir()
    folder_refused(tmp_path, tmp_path / "train" / "cat" / "more")


def test_folder_image_that_is_truncated_is_named(tmp_path):
    make_folder(tmp_path)
    for suffix in ("jpg", "png", "bmp", "gif", "webp", "tiff"):
        path = tmp_path / "train" / "cat" / f"9.{suffix}"
        Image.fromarray(pixels(8, 8, 3)).save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        folder_refused(tmp_path, path)
        path.write_bytes(b"hello")
        folder_refused(tmp_path, path)
        path.unlink()


def test_folder_image_that_claims_an_absurd_size_is_not_decoded(tmp_path):
    make_folder(tmp_path)
    path = tmp_path / "train" / "cat" / "9.png"
    Image.new("1", (9000, 9000)).save(path)
    folder_refused(tmp_path, path, image_size=8)


def test_folder_with_one_colour_image_is_all_colour(tmp_path):
    make_folder(tmp_path, channels=1)
    Image.fromarray(pixels(8, 8, 3)).save(tmp_path / "train" / "cat" / "9.png")
    assert load_data(f"folder:{tmp_path}").channels == 3


def test_folder_images_are_resized_and_cropped_in_the_middle(tmp_path):
    make_folder(tmp_path)
    wide = np.zeros((16, 64, 3), np.uint8)
    wide[:, 20:44] = 200  # the middle square, and as far around it as resizing looks
    Image.fromarray(wide).save(tmp_path / "test" / "dog" / "9.bmp")
    data = load_data(f"folder:{tmp_path}", image_size=4)
    assert data.image_size == 4
    assert (data.test.inputs[-1] == 200).all()


@pytest.mark.parametrize("size", [(16, 16), (64, 16)])
def test_folder_images_of_two_sizes_need_a_size(size, tmp_path):
    make_folder(tmp_path)
    path = tmp_path / "test" / "dog" / "9.png"
    Image.new("RGB", size).save(path)
    folder_refused(tmp_path, path, parameter="image_size")


def test_folder_image_is_turned_as_its_exif_says(tmp_path):
    make_folder(tmp_path)
    array = pixels(8, 8, 3, seed=99)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown a quarter turn clockwise
    Image.fromarray(array).save(tmp_path / "test" / "dog" / "9.png", exif=exif)
    image = load_data(f"folder:{tmp_path}").test.inputs[-1].numpy().transpose(1, 2, 0)
    assert np.array_equal(image, np.rot90(array, -1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "YCbCr"])
def test_folder_images_of_every_mode_are_read(mode, tmp_path):
    make_folder(tmp_path, channels=1)
    white = np.full((8, 8), 65535, np.uint16)
    image = Image.fromarray(white) if mode == "I;16" else Image.new("L", (8, 8), 255)
    image = image if image.mode == mode else image.convert("RGB").convert(mode)
    suffix = "jpg" if mode in ("CMYK", "YCbCr") else "png"
    image.save(tmp_path / "test" / "dog" / f"9.{suffix}")
    data = load_data(f"folder:{tmp_path}")
    assert data.channels == (1 if mode in ("1", "L", "LA", "I;16") else 3)
    assert data.test.inputs[-1].min() >= 254


def test_folder_sixteen_bits_become_eight_and_are_not_clipped(tmp_path):
    make_folder(tmp_path, channels=1)
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(values).save(tmp_path / "test" / "dog" / "9.png")
    image = load_data(f"folder:{tmp_path}").test.inputs[-1, 0].numpy()
    assert np.array_equal(image, np.rint(values / 257).astype(np.uint8))


@pytest.mark.parametrize("content", [None, "notes.txt"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_folder_class_without_an_image_is_named(content, tmp_path):
    make_folder(tmp_path)
    (tmp_path / "train" / "emu").mkdir()
    if content:
        (tmp_path / "train" / "emu" / content).write_text("x")
    folder_refused(tmp_path, tmp_path / "train" / "emu")


def test_folder_class_of_one_part_alone_is_named(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "test" / "emu").mkdir()
    smooth(8).save(tmp_path / "test" / "emu" / "0.png")
    folder_refused(tmp_path, tmp_path / "train" / "emu")


@pytest.mark.parametrize(("part", "missing"), [("train", "test"), ("test", "train")])
def test_folder_part_that_is_missing_is_named(part, missing, tmp_path):
    make_folder(tmp_path, parts=(part,))
    folder_refused(tmp_path, tmp_path / missing)
    shutil.rmtree(tmp_path / part)
    folder_refused(tmp_path, tmp_path)


def test_folder_tells_its_progress(tmp_path):
    make_folder(tmp_path)
    seen = []
    load_data(f"folder:{tmp_path}", progress=lambda *call: seen.append(call))
    assert seen == [(4, 4, "decoding training images"), (4, 4, "decoding test images")]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_are_white(tmp_path, mode):
    """A black drawing on a transparent ground, whose hidden colour is black, too."""
    drawing = np.zeros((8, 8, 4), np.uint8)
    drawing[2:5, 2:5, 3] = 255
    drawing[6, 6, 3] = 128
    image = Image.fromarray(drawing)
    if mode == "P":
        image = image.quantize(4)
        assert image.mode == "P"
    elif mode == "LA":
        image = image.convert("LA")
    image.save(tmp_path / "drawing.png")
    for channels in (1, 3):
        found = read_image(tmp_path / "drawing.png", channels, 8, fit=False)
        assert found.shape == (channels, 8, 8)
        assert (found[:, 2:5, 2:5] == 0).all()
        assert (found[:, 0] == 255).all()
        if mode != "P":
            assert (abs(found[:, 6, 6].astype(int) - 127) <= 1).all()


def test_opaque_pixels_are_what_they_were(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 4), np.uint8)
    pixels[..., 3] = 255
    Image.fromarray(pixels).save(tmp_path / "opaque.png")
    found = read_image(tmp_path / "opaque.png", 3, 8, fit=False)
    assert np.array_equal(found.transpose(1, 2, 0), pixels[..., :3])
