"""Runs and expert stores that the first edition began go on."""

import json

import pytest
import torch
import yaml

from pseudocoreset import distill
from pseudocoreset.methods import Random
from pseudocoreset.run_folder import OtherRunError
from small_world import NET, make_method

STORE_KEYS = {
    *("data", "holdout", "fingerprint", "net", "channels", "image_size", "classes"),
    *("epochs", "first_epoch", "lr", "batch", "dsa", "half", "seed"),
}
"""What the first edition wrote of a store."""


def run(data, stores, method, out, **more):
    net = None if stores else NET
    options = {"ipc": 1, "net": net, "out": out, "device": "cpu", "progress": False, **more}
    return distill(data, stores, method, **options)


def as_of_the_first_edition(folder):
    """Give the configuration of a run the names of before."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    labels, _ = config.pop("labels"), config.pop("form")
    config["recipe"] = "tuned"  # what was asked for, not what was found
    if config["method"] == "random":
        config |= {"init": "real", "checkpoint_every": 25}
    else:
        config["learn_labels"] = labels == "learned"
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


@pytest.mark.parametrize("labels", ["hard", "learned"])
@pytest.mark.parametrize(
    "method",
    [make_method("fbpc"), make_method("bpc-w", start_epochs=1)],
    ids=["fbpc", "bpc-w"],
)
def test_run_of_the_first_edition_goes_on(store, data, tmp_path, method, labels):
    chosen = {"method": method, "labels": labels, "lr_images": 1.0}
    run(data, [store], out=tmp_path / "run", steps=1, **chosen)
    as_of_the_first_edition(tmp_path / "run")
    longer = run(data, [store], out=tmp_path / "run", steps=2, **chosen)
    whole = run(data, [store], out=tmp_path / "whole", steps=2, **chosen)
    assert torch.equal(longer.inputs, whole.inputs)
    assert torch.equal(longer.targets, whole.targets)
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 2


def test_random_coreset_of_the_first_edition_is_made_again(data, tmp_path):
    first = run(data, [], Random(), tmp_path)
    as_of_the_first_edition(tmp_path)
    assert run(data, [], Random(), tmp_path) == first


def test_run_of_the_first_edition_with_other_labels_is_refused(store, data, tmp_path):
    chosen = {"method": make_method("fbpc"), "steps": 1, "out": tmp_path}
    run(data, [store], labels="learned", **chosen)
    as_of_the_first_edition(tmp_path)
    with pytest.raises(OtherRunError, match="labels learned"):
        run(data, [store], labels="hard", **chosen)


def test_store_of_classes_is_as_in_the_first_edition(store):
    index = json.loads((store.path / "index.json").read_text())
    assert index["format"] == 2
    assert index["identity"].keys() == STORE_KEYS
