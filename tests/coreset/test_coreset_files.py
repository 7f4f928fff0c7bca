"""A coreset as a value, on disk, and as a data set."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from make_coresets import KINDS, make_coreset, make_provenance
from safetensors import safe_open
from safetensors.torch import save_file

from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import Column, Scaling
from pseudocoreset.errors import UserError
from pseudocoreset.forms import Mosaic
from pseudocoreset.likelihoods import Gaussian

ROOT = Path(__file__).parents[2]
SHIPPED = {
    path.name: path
    for folder in (ROOT / "results" / "coresets", ROOT / "src" / "pseudocoreset" / "gallery")
    for path in folder.glob("*.safetensors")
}
FIELDS = ("class_names", "scaling", "dsa", "provenance", "form", "likelihood", "target_scaling")


def content_of(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A file's tensors and metadata."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["pseudocoreset"])


def write(path: Path, tensors: dict[str, torch.Tensor], metadata: Any) -> None:
    save_file(tensors, path, {"pseudocoreset": json.dumps(metadata)})


@pytest.mark.parametrize("kind", KINDS)
def test_coreset_is_the_same_after_a_round_trip(tmp_path, kind):
    coreset = make_coreset(kind)
    coreset.save(tmp_path / "a.safetensors")
    loaded = Pseudocoreset.load(tmp_path / "a.safetensors")
    assert torch.equal(loaded.inputs, coreset.inputs)
    assert torch.equal(loaded.targets, coreset.targets)
    for name in (*FIELDS, "columns", "fingerprint", "task", "num_seen"):
        assert getattr(loaded, name) == getattr(coreset, name)
    assert loaded == coreset
    assert hash(loaded) == hash(coreset)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize(
    ("kind", "number", "names"),
    [
        ("classes", 1, {"images", "labels"}),
        ("soft", 1, {"images", "labels"}),
        ("mosaic", 2, {"images", "labels"}),
        ("table", 2, {"inputs", "labels"}),
        ("regression", 2, {"inputs", "targets"}),
        ("image regression", 2, {"images", "targets"}),
    ],
)
def test_file_has_the_format_that_readers_of_before_need(tmp_path, kind, number, names):
    coreset = make_coreset(kind)
    coreset.save(tmp_path / "a.safetensors")
    tensors, metadata = content_of(tmp_path / "a.safetensors")
    assert metadata["format"] == number
    assert tensors.keys() == names
    assert metadata["form"] == str(coreset.form)
    assert metadata["n"] == 600
    assert metadata["digests"] == {"train": "t", "test": "u"}


def test_saving_over_a_link_leaves_its_target(tmp_path):
    make_coreset("classes").save(tmp_path / "kept.safetensors")
    before = (tmp_path / "kept.safetensors").read_bytes()
    (tmp_path / "link.safetensors").symlink_to("kept.safetensors")
    make_coreset("soft").save(tmp_path / "link.safetensors")
    assert (tmp_path / "kept.safetensors").read_bytes() == before


def test_file_of_the_first_edition_is_read(tmp_path):
    coreset = make_coreset()
    coreset.save(tmp_path / "a.safetensors")
    tensors, metadata = content_of(tmp_path / "a.safetensors")
    for name in ("form", "n", "digests", "likelihood"):
        del metadata[name]
    for name in ("train_digest", "test_digest", "num_train", "class_counts", "net_source"):
        del metadata["provenance"][name]
    write(tmp_path / "old.safetensors", tensors, metadata)
    loaded = Pseudocoreset.load(tmp_path / "old.safetensors")
    assert loaded == coreset
    made = loaded.provenance
    assert (made.train_digest, made.num_train, made.config) == ("", None, {"gamma": 0.1})
    assert made.class_counts == []


@pytest.mark.parametrize("path", sorted(SHIPPED.values()), ids=lambda path: path.stem)
def test_shipped_coreset_is_read(path):
    coreset = Pseudocoreset.load(path)
    data, method, ipc = re.fullmatch(
        r"(.+?)-(best|fbpc.*|vbpc|bpc-.*)-ipc(\d+)", path.stem
    ).groups()
    classes = {"cifar100": 100, "tiny-imagenet": 200}.get(data, 10)
    assert coreset.provenance.data == data
    assert coreset.ipc == int(ipc)
    assert len(coreset) == classes * coreset.ipc
    assert coreset.precision in ("half", "byte") or path.stat().st_size < 500_000
    if method != "best":  # which is a mosaic of whichever method
        assert coreset.provenance.method == method
        assert coreset.num_seen == len(coreset)
    assert coreset.make_net().outputs == classes


def test_half_precision_halves_the_file(tmp_path):
    coreset = make_coreset()
    for half in (False, True):
        coreset.save(tmp_path / f"{half}.safetensors", half=half)
    loaded = Pseudocoreset.load(tmp_path / "True.safetensors")
    assert loaded.inputs.dtype == torch.float32
    assert torch.equal(loaded.inputs, coreset.inputs.half().float())
    assert torch.equal(loaded.targets, coreset.targets)
    sizes = [(tmp_path / f"{half}.safetensors").stat().st_size for half in (False, True)]
    # The header's padding may differ too.
    assert abs(sizes[0] - sizes[1] - 2 * coreset.inputs.numel()) <= 16


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": make_coreset().inputs + 1e-6},
        {"targets": make_coreset().targets.flip(0)},
        {"targets": make_coreset("soft").targets},
        {"class_names": ("cat", "dog", "cow")},
        {"scaling": Scaling((0.5, 0.4, 0.3), (0.25, 0.2, 0.16))},
        {"dsa": "color"},
        {"form": Mosaic(2)},
        {"likelihood": Gaussian(3)},
        {"target_scaling": Scaling((1.0,), (2.0,))},
        {"columns": (Column("a", "number"),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_coresets_that_differ_are_not_equal(change):
    assert make_coreset(**change) != make_coreset()


def test_coresets_are_equal_wherever_they_come_from():
    other = make_coreset(provenance=make_provenance(seed=9), source=Path("a"), trust_code=True)
    assert other == make_coreset()
    assert hash(other) == hash(make_coreset())
    assert make_coreset() != "a coreset"


def test_fingerprint_follows_what_is_stored():
    coreset = make_coreset()
    others = [make_coreset("soft"), make_coreset("mosaic"), make_coreset(inputs=coreset.inputs + 1)]
    assert len({coreset.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert replace(coreset, provenance=make_provenance(seed=9)).fingerprint == coreset.fingerprint


def test_repr_is_one_line_without_control_characters():
    assert repr(make_coreset("mosaic")) == "Pseudocoreset(6 of 3×8×8, mosaic:2, fbpc on pets)"
    assert repr(make_coreset("table")) == "Pseudocoreset(6 of 4, fbpc on pets)"
    nasty = make_coreset(provenance=make_provenance(method="a\nb\x1b[31m", data="\u202e"))
    assert not {"\n", "\x1b", "\u202e"} & set(repr(nasty))


@pytest.mark.parametrize("kind", KINDS)
def test_as_dataset_gives_what_networks_see(kind):
    coreset = make_coreset(kind)
    dataset = coreset.as_dataset()
    assert len(dataset) == coreset.num_seen
    loader = torch.utils.data.DataLoader(dataset, batch_size=len(dataset))
    inputs, targets = next(iter(loader))
    assert torch.equal(inputs, coreset.form.decode(coreset.inputs))
    expected = coreset.targets
    if not expected.is_floating_point():
        expected = torch.stack([expected] * coreset.form.seen, 1).flatten()
    assert torch.equal(targets, expected)


def test_sizes_count_what_is_stored_and_what_is_seen():
    mosaic = make_coreset("soft mosaic")
    assert (len(mosaic), mosaic.ipc, mosaic.num_seen) == (6, 2, 24)
    assert (make_coreset("regression").ipc, make_coreset("regression").task) == (6, "regression")
    assert mosaic.classes.tolist() == mosaic.targets.argmax(1).tolist()


# ---------------------------------------------------------------------------------------------
# Damage


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.safetensors").write_text("no tensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    for name in ("none", "text", "foreign"):
        with pytest.raises(UserError):
            Pseudocoreset.load(tmp_path / f"{name}.safetensors")


@pytest.mark.parametrize(
    ("kind", "name", "tensor"),
    [
        ("classes", "labels", torch.full((6,), 3)),
        ("classes", "labels", torch.full((6,), -1)),
        ("classes", "labels", torch.zeros(5, dtype=torch.int64)),
        ("classes", "labels", torch.zeros(6, dtype=torch.uint8)),
        ("classes", "labels", torch.zeros(6, 3, dtype=torch.complex64)),
        ("classes", "labels", torch.ones(6, 3)),
        ("classes", "images", torch.full((6, 3, 8, 8), torch.nan)),
        ("classes", "images", torch.zeros(6, 2, 8, 8)),
        ("classes", "images", torch.zeros(6, 3, 0, 0)),
        ("classes", "images", torch.zeros(6, 3, 8)),
        ("mosaic", "images", torch.zeros(6, 3, 9, 9)),
        ("soft mosaic", "labels", torch.full((6, 3), 1 / 3)),
        ("table", "inputs", torch.zeros(6, 5)),
        ("regression", "targets", torch.zeros(6, 2)),
        ("regression", "targets", torch.zeros(6, dtype=torch.int64)),
        ("regression", "targets", torch.full((6, 1), torch.inf)),
    ],
)
def test_damaged_tensors_are_refused(tmp_path, kind, name, tensor):
    path = tmp_path / "a.safetensors"
    make_coreset(kind).save(path)
    tensors, metadata = content_of(path)
    write(path, tensors | {name: tensor}, metadata)
    with pytest.raises(UserError):
        Pseudocoreset.load(path)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("classes", "format", 3),
        ("classes", "class_names", "cat"),
        ("classes", "class_names", []),
        ("classes", "class_names", ["a", "b", 3]),
        ("classes", "dsa", None),
        ("classes", "form", "mosaic:3"),
        ("classes", "form", 2),
        ("classes", "normalisation", {"mean": [10**400] * 3, "std": [1, 1, 1]}),
        ("classes", "normalisation", {"mean": [0, 0, 0], "std": [1, 1, 0]}),
        ("classes", "normalisation", []),
        ("classes", "likelihood", {"kind": "gaussian", "targets": 3, "noise": 1.0}),
        ("classes", "likelihood", {"kind": "categorical", "classes": 4}),
        ("classes", "provenance", {"method": "fbpc"}),
        ("classes", "provenance", {**make_provenance().as_json(), "versions": 3}),
        ("classes", "provenance", {**make_provenance().as_json(), "seed": "7"}),
        ("classes", "provenance", {**make_provenance().as_json(), "num_train": 0.5}),
        ("classes", "provenance", {**make_provenance().as_json(), "net_source": [1]}),
        ("table", "columns", [{"name": "age", "kind": "number", "categories": []}]),
        ("table", "columns", None),
        ("regression", "target_scaling", {"mean": [0, 0], "std": [1, 1]}),
        ("regression", "likelihood", None),
    ],
)
def test_damaged_metadata_are_refused(tmp_path, kind, name, value):
    path = tmp_path / "a.safetensors"
    make_coreset(kind).save(path)
    tensors, metadata = content_of(path)
    write(path, tensors, metadata | {name: value})
    with pytest.raises(UserError):
        Pseudocoreset.load(path)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("classes", {"class_counts": 600}),
        ("classes", {"class_counts": [300, 300]}),
        ("classes", {"class_counts": [300, 200, 101]}),
        ("classes", {"class_counts": [700, -200, 100]}),
        ("classes", {"class_counts": [300, 200, 100.0]}),
        ("classes", {"class_counts": [599, 0, True]}),
        ("classes", {"class_counts": [300, 200, [100]]}),
        ("classes", {"num_train": None}),
        ("regression", {"class_counts": [300, 200, 100]}),
    ],
)
def test_class_counts_that_contradict_the_rest_are_refused(tmp_path, kind, changes):
    path = tmp_path / "a.safetensors"
    make_coreset(kind).save(path)
    tensors, metadata = content_of(path)
    write(path, tensors, metadata)
    assert Pseudocoreset.load(path).provenance == make_coreset(kind).provenance
    metadata["provenance"] |= changes
    write(path, tensors, metadata)
    with pytest.raises(UserError):
        Pseudocoreset.load(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "null", "{", '{"kind": "a coreset"}'])
def test_metadata_of_anything_are_refused(tmp_path, text):
    path = tmp_path / "a.safetensors"
    save_file(content_of_kind("classes", tmp_path)[0], path, {"pseudocoreset": text})
    with pytest.raises(UserError):
        Pseudocoreset.load(path)


def content_of_kind(kind: str, folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    make_coreset(kind).save(folder / "whole.safetensors")
    return content_of(folder / "whole.safetensors")


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([10**400, -1, 0, 2, 3]),
        st.floats(),
        st.text(max_size=6),
        st.sampled_from(["mosaic:2", "mosaic:4", "pixels", "\ud800", "a:b"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    found = []
    for key, inner in items:
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += places_in(inner, (*path, key))
    return found


@settings(max_examples=200, deadline=None, database=None)
@given(kind=st.sampled_from(KINDS), choice=st.data())
def test_mutated_metadata_give_a_coreset_or_a_sentence(tmp_path_factory, kind, choice):
    folder = tmp_path_factory.mktemp("damage")
    tensors, metadata = content_of_kind(kind, folder)
    for _ in range(choice.draw(st.integers(1, 2))):
        places = places_in(metadata)
        if not places:
            break
        *outer, last = choice.draw(st.sampled_from(places))
        holder = metadata
        for key in outer:
            holder = holder[key]
        if choice.draw(st.booleans()):
            holder[last] = choice.draw(VALUES)
        else:
            del holder[last]
    write(folder / "a.safetensors", tensors, metadata)
    try:
        loaded = Pseudocoreset.load(folder / "a.safetensors")
    except UserError:
        pass
    else:
        again = folder / "again.safetensors"
        assert isinstance(repr(loaded), str)
        assert isinstance(loaded.provenance, Provenance)
        assert len(loaded.as_dataset()) == loaded.num_seen
        loaded.save(again)
        assert Pseudocoreset.load(again) == loaded
    finally:
        shutil.rmtree(folder)
