"""A coreset on disk and as a data set."""

import pytest
import torch

from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.errors import UserError
from small_world import make_data, make_points


def make_coreset(soft=False, seed=0):
    data = make_data()
    images, labels = make_points(data, soft=soft)
    told = Provenance(
        "fbpc", "convnet", data.name, data.fingerprint, 0, seed, {"gamma": 0.1}, ["abc"]
    )
    return Pseudocoreset(images, labels, data.class_names, data.normalisation, "crop", told)


@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_round_trip(tmp_path, soft):
    coreset = make_coreset(soft)
    coreset.save(tmp_path / "a.safetensors")
    loaded = Pseudocoreset.load(tmp_path / "a.safetensors")
    assert torch.equal(loaded.images, coreset.images)
    assert torch.equal(loaded.labels, coreset.labels)
    for name in ("class_names", "normalisation", "dsa", "provenance"):
        assert getattr(loaded, name) == getattr(coreset, name)
    assert loaded.fingerprint == coreset.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_half_precision_round_trip(tmp_path):
    coreset = make_coreset()
    for half in (False, True):
        coreset.save(tmp_path / f"{half}.safetensors", half=half)
    loaded = Pseudocoreset.load(tmp_path / "True.safetensors")
    assert loaded.images.dtype == torch.float32
    assert torch.equal(loaded.images, coreset.images.half().float())
    assert torch.equal(loaded.labels, coreset.labels)
    sizes = [(tmp_path / f"{half}.safetensors").stat().st_size for half in (False, True)]
    # The header's length, which is padded, may differ too.
    assert abs(sizes[0] - sizes[1] - 2 * coreset.images.numel()) <= 16


def test_as_dataset():
    coreset = make_coreset()
    dataset = coreset.as_dataset()
    assert len(dataset) == len(coreset) == 6
    image, label = dataset[4]
    assert torch.equal(image, coreset.images[4])
    assert int(label) == int(coreset.labels[4])
    batch, labels = next(iter(torch.utils.data.DataLoader(dataset, batch_size=4)))
    assert batch.shape == (4, 1, 8, 8)
    assert labels.tolist() == [0, 1, 2, 0]


def test_sizes_and_classes():
    assert make_coreset().ipc == 2
    assert make_coreset(soft=True).classes.tolist() == make_coreset().classes.tolist()


def test_fingerprint_tells_images_and_labels_apart():
    coreset = make_coreset()
    prints = {coreset.fingerprint, make_coreset(soft=True).fingerprint}
    moved = Pseudocoreset(**{**coreset.__dict__, "images": coreset.images + 1e-6})
    assert len({*prints, moved.fingerprint}) == 3
    assert make_coreset(seed=9).fingerprint == coreset.fingerprint


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        Pseudocoreset.load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("no tensors")
    with pytest.raises(UserError, match="can't be read as a coreset"):
        Pseudocoreset.load(tmp_path / "text.safetensors")
