"""Coresets stored with fewer bytes: what comes back, how far off it is, what it takes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from make_coresets import KINDS, make_coreset
from safetensors import safe_open
from test_coreset_files import content_of, write

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.coreset.precision import LEVELS, Levels, normalised, packed_probabilities
from pseudocoreset.errors import UserError

PRECISIONS = ("full", "half", "byte")


def dtypes_of(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_file_gives_back_the_rounded_coreset(tmp_path, kind, precision):
    coreset = make_coreset(kind)
    coreset.save(tmp_path / "a.safetensors", precision=precision)
    loaded = Pseudocoreset.load(tmp_path / "a.safetensors")
    assert loaded == coreset.rounded(precision)
    assert loaded.precision == precision
    assert loaded.fingerprint == coreset.rounded(precision).fingerprint
    loaded.save(tmp_path / "b.safetensors", precision=precision)
    assert Pseudocoreset.load(tmp_path / "b.safetensors") == loaded
    tensors, _ = content_of(tmp_path / "a.safetensors")
    taken = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    assert loaded.stored_bytes == taken
    assert loaded.stored_numbers == sum(tensor.numel() for tensor in tensors.values())


@pytest.mark.parametrize("kind", ["classes", "soft mosaic", "table"])
def test_bytes_are_off_by_half_a_level_at_most(kind):
    coreset = make_coreset(kind)
    rounded = coreset.rounded("byte")
    channels, back = (c.inputs.double().transpose(0, 1).flatten(1) for c in (coreset, rounded))
    level = (channels.amax(1) - channels.amin(1)) / LEVELS
    far = (back - channels).abs().amax(1)
    assert bool((far <= 0.5 * level + 1e-6).all())
    assert bool((far > 0.4 * level).any())  # a finer scale would not be a byte's
    torch.testing.assert_close(back.amin(1), channels.amin(1))
    torch.testing.assert_close(back.amax(1), channels.amax(1))


def test_channel_of_one_value_comes_back():
    inputs = torch.randn(4, 3, 8, 8)
    inputs[:, 1] = 0.3
    rounded = make_coreset(inputs=inputs, targets=torch.tensor([0, 1, 2, 0])).rounded("byte")
    assert torch.equal(rounded.inputs[:, 1], inputs[:, 1])


@settings(max_examples=100, deadline=None, database=None)
@given(seed=st.integers(0, 10**6), classes=st.sampled_from([2, 10, 100]), sharp=st.floats(0.1, 30))
def test_labels_in_float16_sum_to_one_and_stay(seed, classes, sharp):
    generator = torch.Generator().manual_seed(seed)
    shares = (sharp * torch.randn(50, classes, generator=generator)).softmax(1)
    packed = packed_probabilities(shares)
    read = normalised(packed)
    torch.testing.assert_close(read.sum(1), torch.ones(50), rtol=0, atol=1e-6)
    torch.testing.assert_close(read, shares, rtol=0, atol=2**-11)
    assert torch.equal(packed_probabilities(read), packed)


def test_labels_that_do_not_sum_to_one_are_divided_by_their_sum(tmp_path):
    path = tmp_path / "a.safetensors"
    make_coreset("soft").save(path, half=True)
    tensors, metadata = content_of(path)
    assert tensors["labels"].dtype == torch.float16
    off = torch.tensor([[0.5, 0.25, 0.253]] * 6).half()
    write(path, tensors | {"labels": off}, metadata)
    found = Pseudocoreset.load(path).targets
    torch.testing.assert_close(found, off.float() / off.float().sum(1, keepdim=True))


def test_half_and_byte_take_fewer_bytes_and_classes_stay_as_they_are(tmp_path):
    coreset = make_coreset("soft")
    sizes = [coreset.rounded(precision).stored_bytes for precision in PRECISIONS]
    pixels, labels = 6 * 3 * 8 * 8, 6 * 3
    assert sizes == [4 * pixels + 4 * labels, 2 * pixels + 2 * labels, pixels + 2 * labels]
    make_coreset().save(tmp_path / "a.safetensors", precision="byte")
    assert dtypes_of(tmp_path / "a.safetensors") == {"images": torch.uint8, "labels": torch.int64}
    assert content_of(tmp_path / "a.safetensors")[1]["format"] == 2  # others would misread them
    assert make_coreset().stored_numbers == pixels + 6


@pytest.mark.parametrize(
    "levels",
    [
        None,
        [],
        {"offset": [0.0] * 3},
        {"offset": [0.0] * 2, "scale": [1.0] * 2},
        {"offset": [0.0] * 3, "scale": [1.0, 1.0, -1.0]},
        {"offset": [0.0] * 3, "scale": [1.0, 1.0, float("nan")]},
        {"offset": [0.0] * 3, "scale": ["a"] * 3},
        {"offset": 3, "scale": [1.0] * 3},
    ],
)
def test_bytes_of_unknown_meaning_are_refused(tmp_path, levels):
    path = tmp_path / "a.safetensors"
    make_coreset().save(path, precision="byte")
    tensors, metadata = content_of(path)
    write(path, tensors, metadata | {"levels": levels})
    with pytest.raises(UserError):
        Pseudocoreset.load(path)
    del metadata["levels"]
    write(path, tensors, metadata)
    with pytest.raises(UserError):
        Pseudocoreset.load(path)


def test_damaged_labels_in_float16_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    make_coreset("soft").save(path, precision="half")
    tensors, metadata = content_of(path)
    for labels in (torch.ones(6, 3), torch.zeros(6, 3), torch.full((6, 3), torch.nan)):
        write(path, tensors | {"labels": labels.half()}, metadata)
        with pytest.raises(UserError):
            Pseudocoreset.load(path)


def test_unknown_precision_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"`precision` is bytes .did you mean byte"):
        make_coreset().rounded("bytes")
    with pytest.raises(UserError, match="`precision`"):
        make_coreset().save(tmp_path / "a.safetensors", precision="double")
    assert not list(tmp_path.iterdir())


def test_levels_are_those_of_each_channel():
    inputs = torch.tensor([[[0.0, 1.0]], [[2.0, -3.0]]]).transpose(0, 1)
    levels = Levels.of(inputs)
    assert levels.offset == (0.0, -3.0)
    assert levels.scale == pytest.approx((1 / 255, 5 / 255))
    assert levels.encode(inputs).tolist() == [[[0, 255], [255, 0]]]
