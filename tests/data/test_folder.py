import numpy as np
import pytest
from make_data import make_folder, pixels, smooth
from PIL import Image

from pseudocoreset.data import load_data
from pseudocoreset.errors import UserError


def error(root, **options):
    with pytest.raises(UserError) as raised:
        load_data(f"folder:{root}", **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_images_come_back_as_they_were_saved(channels, tmp_path):
    written = make_folder(tmp_path, channels=channels)
    data = load_data(f"folder:{tmp_path}")
    assert data.class_names == ("cat", "dog")
    assert data.name == f"folder:{tmp_path.name}"
    for split, part in ((data.train, "train"), (data.test, "test")):
        files = [path for path in written if path.parts[-3] == part]
        assert split.labels.tolist() == [0, 0, 1, 1]
        for image, path in zip(split.images.numpy(), files, strict=True):
            assert np.array_equal(
                image.transpose(1, 2, 0).reshape(written[path].shape), written[path]
            )


def test_without_train_and_test_a_fifth_of_each_class_is_drawn_for_testing(tmp_path):
    written = make_folder(tmp_path, parts=(".",), number=10)
    (tmp_path / "README").write_text("files beside the classes are no matter")
    data = load_data(f"folder:{tmp_path}")
    assert data.train.labels.tolist() == [0] * 8 + [1] * 8
    assert data.test.labels.tolist() == [0] * 2 + [1] * 2
    found = {image.tobytes() for s in (data.train, data.test) for image in s.images.numpy()}
    assert found == {array.transpose(2, 0, 1).tobytes() for array in written.values()}
    assert load_data(f"folder:{tmp_path}").fingerprint == data.fingerprint


def test_one_colour_image_makes_all_of_them_colour(tmp_path):
    make_folder(tmp_path, channels=1)
    Image.fromarray(pixels(8, 8, 3)).save(tmp_path / "train" / "cat" / "9.png")
    assert load_data(f"folder:{tmp_path}").channels == 3


def test_images_of_any_size_are_resized_and_cropped_in_the_middle(tmp_path):
    make_folder(tmp_path)
    wide = np.zeros((16, 64, 3), np.uint8)
    wide[:, 20:44] = 200  # the middle square, and as far around it as resizing looks
    Image.fromarray(wide).save(tmp_path / "test" / "dog" / "9.bmp")
    assert "give --image-size" in error(tmp_path)
    data = load_data(f"folder:{tmp_path}", image_size=4)
    assert data.image_size == 4
    assert (data.test.images[-1] == 200).all()


def test_square_images_of_two_sizes_need_a_size(tmp_path):
    make_folder(tmp_path)
    smooth(16).save(tmp_path / "test" / "dog" / "9.png")
    assert f"{tmp_path / 'test' / 'dog' / '9.png'}: is 16×16 pixels" in error(tmp_path)


def test_an_image_is_turned_as_its_exif_says(tmp_path):
    make_folder(tmp_path)
    array = pixels(8, 8, 3, seed=99)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown a quarter turn clockwise
    Image.fromarray(array).save(tmp_path / "test" / "dog" / "9.png", exif=exif)
    image = load_data(f"folder:{tmp_path}").test.images[-1].numpy().transpose(1, 2, 0)
    assert np.array_equal(image, np.rot90(array, -1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "YCbCr"])
def test_images_of_every_mode(mode, tmp_path):
    make_folder(tmp_path, channels=1)
    white = np.full((8, 8), 65535, np.uint16)
    image = Image.fromarray(white) if mode == "I;16" else Image.new("L", (8, 8), 255)
    image = image if image.mode == mode else image.convert("RGB").convert(mode)
    suffix = "jpg" if mode in ("CMYK", "YCbCr") else "png"
    image.save(tmp_path / "test" / "dog" / f"9.{suffix}")
    data = load_data(f"folder:{tmp_path}")
    assert data.channels == (1 if mode in ("1", "L", "LA", "I;16") else 3)
    assert data.test.images[-1].min() >= 254


def test_sixteen_bits_become_eight_and_are_not_clipped(tmp_path):
    make_folder(tmp_path, channels=1)
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(values).save(tmp_path / "test" / "dog" / "9.png")
    image = load_data(f"folder:{tmp_path}").test.images[-1, 0].numpy()
    assert np.array_equal(image, np.rint(values / 257).astype(np.uint8))


def test_hidden_files_are_passed_over_and_others_are_named(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "train" / "cat" / ".DS_Store").write_text("x")
    (tmp_path / "train" / ".git").mkdir()
    assert len(load_data(f"folder:{tmp_path}").train) == 4
    path = tmp_path / "train" / "cat" / "notes.txt"
    path.write_text("x")
    assert f"{path}: expected an image file" in error(tmp_path)
    path.unlink()
    path.mkdir()
    assert f"{path}: expected an image file" in error(tmp_path)


def test_a_truncated_image_is_named(tmp_path):
    make_folder(tmp_path)
    for suffix in ("jpg", "png", "bmp", "gif", "webp", "tiff"):
        path = tmp_path / "train" / "cat" / f"9.{suffix}"
        Image.fromarray(pixels(8, 8, 3)).save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert f"{path}: expected an image file" in error(tmp_path)
        path.unlink()


def test_an_image_that_claims_an_absurd_size_is_not_decoded(tmp_path):
    make_folder(tmp_path)
    path = tmp_path / "train" / "cat" / "9.png"
    Image.new("1", (9000, 9000)).save(path)
    assert f"{path}: 9000×9000 pixels are more than" in error(tmp_path, image_size=8)


def test_a_class_without_an_image(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "train" / "emu").mkdir()
    assert f"{tmp_path / 'train' / 'emu'}: the class has no image" in error(tmp_path)


def test_classes_that_differ(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "test" / "emu").mkdir()
    smooth(8).save(tmp_path / "test" / "emu" / "0.png")
    assert f"{tmp_path / 'train' / 'emu'}: no such folder" in error(tmp_path)


def test_a_part_that_is_missing(tmp_path):
    make_folder(tmp_path, parts=("train",))
    assert f"{tmp_path / 'test'}: no such folder" in error(tmp_path)


def test_a_class_of_one_image_cannot_be_split(tmp_path):
    make_folder(tmp_path, parts=(".",), number=1)
    assert "expected at least 2" in error(tmp_path)


def test_a_folder_without_classes(tmp_path):
    assert "has no class in it" in error(tmp_path)


def test_progress_is_told(tmp_path):
    make_folder(tmp_path)
    seen = []
    load_data(f"folder:{tmp_path}", progress=lambda *call: seen.append(call))
    assert seen == [(4, 4, "decoding training images"), (4, 4, "decoding test images")]
