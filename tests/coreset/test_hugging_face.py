"""What `export --to hf` writes, read by Hugging Face's own library; needs the extra `hf`."""

import gc
import warnings

import numpy
import pytest
import torch
from make_coresets import make_coreset

datasets = pytest.importorskip("datasets", reason="Hugging Face's datasets: extra `hf`")

pytestmark = pytest.mark.filterwarnings("ignore:.*were clipped:RuntimeWarning")


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Export and read back; the library leaves files for the garbage collector to close."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")

    def both(coreset):
        folder, cache = coreset.export("hf", tmp_path / "out"), tmp_path / "cache"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            found = datasets.load_dataset(str(folder), split="train", cache_dir=str(cache))
            rows = found[:]
            del found
            gc.collect()
        return rows

    return both


@pytest.mark.parametrize("kind", ["classes", "soft mosaic"])
def test_images_are_read_with_their_labels(read, kind):
    coreset = make_coreset(kind)
    found = read(coreset)
    assert len(found["image"]) == coreset.num_seen
    pixels = coreset.scaling.invert(coreset.seen_inputs).numpy().transpose(0, 2, 3, 1)
    for image, expected in zip(found["image"], pixels, strict=True):
        assert numpy.array_equal(numpy.asarray(image).reshape(expected.shape), expected)
    assert found["label"] == coreset.classes.tolist()
    names = [coreset.class_names[label] for label in coreset.classes.tolist()]
    assert found["class_name"] == names
    if coreset.targets.is_floating_point():
        columns = [found[f"probability_{label}"] for label in range(len(coreset.class_names))]
        assert torch.allclose(torch.tensor(columns).T, coreset.seen_targets, atol=1e-6)


@pytest.mark.parametrize("kind", ["table", "regression"])
def test_tables_are_read_in_their_own_units(read, kind):
    coreset = make_coreset(kind)
    found = read(coreset)
    assert torch.allclose(torch.tensor(found["age"]).float(), 1 + 0.5 * coreset.inputs[:, 0])
    if kind == "regression":
        targets = torch.tensor(found["target"]).float()
        assert torch.allclose(targets, 100 + 10 * coreset.targets[:, 0])
    else:
        assert found["label"] == coreset.targets.tolist()
