"""Coresets for other programs."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
import yaml
from make_coresets import KINDS, make_coreset, make_provenance
from PIL import Image

from pseudocoreset.coreset import export as module
from pseudocoreset.coreset import whole_data
from pseudocoreset.coreset.export import safe_names
from pseudocoreset.data import Scaling, load_data
from pseudocoreset.errors import UserError
from pseudocoreset.interop import read_coreset

pytestmark = pytest.mark.filterwarnings("ignore:.*were clipped:RuntimeWarning")
NASTY = "<script>[x](y)`_\n\x1b"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def bytes_of(coreset) -> torch.Tensor:
    return coreset.scaling.invert(coreset.seen_inputs)


def image_at(path: Path) -> torch.Tensor:
    with Image.open(path) as image:
        return torch.from_numpy(numpy.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize("kind", ["classes", "soft", "mosaic", "soft mosaic"])
def test_png_export_has_a_folder_a_class_and_images_as_seen(tmp_path, kind):
    coreset = make_coreset(kind)
    assert coreset.export("png", tmp_path / "out") == tmp_path / "out"
    expected = bytes_of(coreset)
    for place, label in enumerate(coreset.classes.tolist()):
        found = image_at(tmp_path / "out" / coreset.class_names[label] / f"{place:05}.png")
        assert torch.equal(found, expected[place])
    assert len(list((tmp_path / "out").rglob("*.png"))) == coreset.num_seen
    if "soft" in kind:
        rows = rows_of(tmp_path / "out" / "labels.csv")
        values = [[float(row[name]) for name in coreset.class_names] for row in rows]
        assert torch.allclose(torch.tensor(values), coreset.targets)
        assert all((tmp_path / "out" / row["file"]).is_file() for row in rows)
    else:
        assert not (tmp_path / "out" / "labels.csv").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_png_export_of_a_regression_has_targets_in_their_own_units(tmp_path):
    coreset = make_coreset("image regression")
    coreset.export("png", tmp_path / "out")
    rows = rows_of(tmp_path / "out" / "labels.csv")
    found = torch.tensor([float(row["target"]) for row in rows])
    assert torch.allclose(found, 100 + 10 * coreset.targets[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_npz_export_needs_nothing_else(tmp_path, kind):
    coreset = make_coreset(kind)
    coreset.export("npz", tmp_path / "out.npz")
    with numpy.load(tmp_path / "out.npz", allow_pickle=False) as file:
        arrays = dict(file)
    scaling = Scaling(tuple(arrays["mean"].tolist()), tuple(arrays["std"].tolist()))
    if coreset.is_image:
        assert torch.equal(torch.from_numpy(arrays["images"]), coreset.seen_inputs)
        assert numpy.allclose(arrays["std"], coreset.scaling.std)
    else:
        again = scaling.apply(torch.from_numpy(arrays["inputs"]))
        assert torch.allclose(again, coreset.inputs, atol=1e-5)
        assert arrays["input_names"].tolist()[:3] == ["age", "size", "colour=red"]
    if coreset.class_names:
        assert torch.equal(torch.from_numpy(arrays["labels"]), coreset.seen_targets)
        assert tuple(arrays["class_names"].tolist()) == coreset.class_names
    else:
        units = (arrays["targets"] - arrays["target_mean"]) / arrays["target_std"]
        assert numpy.allclose(units, coreset.targets.numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", ["classes", "soft mosaic"])
def test_hf_export_of_images_names_every_file(tmp_path, kind):
    coreset = make_coreset(kind)
    coreset.export("hf", tmp_path / "out")
    rows = rows_of(tmp_path / "out" / "train" / "metadata.csv")
    expected = bytes_of(coreset)
    for place, row in enumerate(rows):
        assert torch.equal(image_at(tmp_path / "out" / "train" / row["file_name"]), expected[place])
        assert coreset.class_names[int(row["label"])] == row["class_name"]
    assert [int(row["label"]) for row in rows] == coreset.classes.tolist()
    assert ("probability_2" in rows[0]) == ("soft" in kind)


@pytest.mark.parametrize("kind", ["table", "regression"])
def test_hf_export_of_a_table_is_in_its_own_units(tmp_path, kind):
    coreset = make_coreset(kind)
    coreset.export("hf", tmp_path / "out")
    rows = rows_of(tmp_path / "out" / "train.csv")
    ages = torch.tensor([float(row["age"]) for row in rows])
    assert torch.allclose(ages, 1 + 0.5 * coreset.inputs[:, 0])
    if kind == "regression":
        found = torch.tensor([float(row["target"]) for row in rows])
        assert torch.allclose(found, 100 + 10 * coreset.targets[:, 0])
    else:
        assert [int(row["label"]) for row in rows] == coreset.targets.tolist()


def test_hf_export_has_a_card_of_plain_text(tmp_path):
    made = make_provenance(data=NASTY, method=NASTY)
    coreset = make_coreset(names=(NASTY, "b", "c"), provenance=made)
    coreset.export("hf", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    _, front, body = card.split("---\n", 2)
    content = yaml.safe_load(front)
    assert content["size_categories"] == ["n<1K"]
    assert content["task_categories"] == ["image-classification"]
    assert "license" not in content
    assert "Kim, Balhae and Lee, Hyungi and Lee, Juho" in body
    assert "\\[x\\]\\(y\\)" in body
    assert "<script>" not in body
    assert "\x1b" not in card


def test_safe_names_are_different_on_every_file_system():
    names = [
        "cat",
        "CAT",
        "../etc",
        "a/b",
        "a:b",
        "",
        "..",
        "con",
        "NUL.txt",
        "x" * 300,
        "猫",
        NASTY,
    ]
    found = safe_names(names)
    assert len({name.casefold() for name in found}) == len(names)
    assert (found[0], found[10]) == ("cat", "猫")
    for name in found:
        assert Path(name).name == name
        assert not set(name) & set('<>:"/\\|?*\n\x1b')
        assert name.strip(" .") == name
        assert 0 < len(name.encode()) < 100
        assert name.split(".")[0].lower() not in ("con", "nul")


@pytest.mark.parametrize("to", ["png", "npz", "hf"])
def test_export_refuses_what_is_there(tmp_path, to):
    there = tmp_path / "there"
    there.mkdir()
    (there / "file").write_text("mine")
    for out in (there, there / "file"):
        with pytest.raises(UserError) as refused:
            make_coreset().export(to, out)
        assert refused.value.parameter == "out"
    assert [path.name for path in there.iterdir()] == ["file"]
    assert (there / "file").read_text() == "mine"


def test_export_fills_an_empty_folder(tmp_path):
    (tmp_path / "out").mkdir()
    make_coreset().export("hf", tmp_path / "out")
    assert (tmp_path / "out" / "README.md").is_file()


def test_export_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(_):
        raise OSError("the disk is full")

    monkeypatch.setattr(module, "data_card", fail)
    with pytest.raises(UserError):
        make_coreset().export("hf", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "to"), [("table", "png"), ("classes", "jpg")])
def test_export_refuses_formats_that_can_not_be(tmp_path, kind, to):
    with pytest.raises(UserError) as refused:
        make_coreset(kind).export(to, tmp_path / "out")
    assert refused.value.parameter == "to"
    assert list(tmp_path.iterdir()) == []


def test_npz_export_can_be_scored_as_a_set_made_elsewhere(tmp_path):
    data = load_data("digits")
    whole = whole_data(data, "convnet:depth=2,width=8")
    whole.export("npz", tmp_path / "out.npz")
    again = read_coreset(tmp_path / "out.npz", data)
    assert torch.equal(again.inputs, data.scaling.apply(data.train.inputs))
    assert torch.equal(again.targets, data.train.targets)
    extreme = replace(whole, inputs=3 * whole.inputs)
    extreme.export("npz", tmp_path / "extreme.npz")
    assert torch.equal(read_coreset(tmp_path / "extreme.npz", data).inputs, extreme.inputs)


@pytest.mark.parametrize("to", ["png", "hf"])
def test_clipped_pixels_are_told(tmp_path, to):
    inputs = torch.zeros(6, 3, 8, 8)
    make_coreset(inputs=inputs).export(to, tmp_path / "grey")  # and no warning
    inputs[:3, 0] = 10.0
    with pytest.warns(RuntimeWarning, match="17% of the pixel values"):
        make_coreset(inputs=inputs).export(to, tmp_path / "bright")
    if to == "hf":
        assert "clipped to 0 or 255: 16.7%" in (tmp_path / "bright" / "README.md").read_text()


def test_npz_export_needs_its_ending(tmp_path):
    with pytest.raises(UserError) as error:
        make_coreset("classes").export("npz", tmp_path / "out")
    assert error.value.parameter == "out"
    assert not list(tmp_path.iterdir())
