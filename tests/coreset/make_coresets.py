"""Small coresets of every kind."""

from typing import Any

import torch

from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import Column, Scaling
from pseudocoreset.forms import Mosaic
from pseudocoreset.likelihoods import Gaussian

NAMES = ("cat", "dog", "fox")
KINDS = ("classes", "soft", "mosaic", "soft mosaic", "table", "regression", "image regression")


def make_provenance(**changes: Any) -> Provenance:
    values: dict[str, Any] = {
        "method": "fbpc",
        "net": "convnet",
        "data": "pets",
        "data_fingerprint": "abc",
        "holdout": 0,
        "seed": 7,
        "config": {"gamma": 0.1},
        "experts": ["def"],
        "num_train": 600,
        "class_counts": [300, 200, 100],
        "train_digest": "t",
        "test_digest": "u",
    }
    return Provenance(**(values | changes))


def make_coreset(
    kind: str = "classes", names: tuple[str, ...] = NAMES, ipc: int = 2, **changes: Any
) -> Pseudocoreset:
    """A coreset of a kind; `changes` are of its fields."""
    generator = torch.Generator().manual_seed(0)
    number = len(names) * ipc
    values: dict[str, Any] = {
        "inputs": torch.randn(number, 3, 8, 8, generator=generator),
        "targets": torch.arange(len(names)).repeat(ipc),
        "class_names": names,
        "scaling": Scaling((0.5, 0.4, 0.3), (0.25, 0.2, 0.15)),
        "dsa": "crop",
        "provenance": make_provenance(),
    }
    if "mosaic" in kind:
        values["form"] = Mosaic(2)
        number *= 4
    if "soft" in kind:
        values["targets"] = torch.randn(number, len(names), generator=generator).softmax(1)
    if kind in ("table", "regression"):
        values["inputs"] = torch.randn(number, 4, generator=generator)
        values["scaling"] = Scaling((1.0, 20.0, 0.5, 0.5), (0.5, 10.0, 0.25, 0.25))
        categories = Column("colour", "category", ("red", "<b>blue</b>"))
        values["columns"] = (Column("age", "number"), Column("size", "number"), categories)
        values["dsa"] = ""
    if "regression" in kind:
        values["targets"] = torch.randn(number, 1, generator=generator)
        values["class_names"] = ()
        values["likelihood"] = Gaussian(1, 0.5)
        values["target_scaling"] = Scaling((100.0,), (10.0,))
        values["provenance"] = make_provenance(class_counts=[])
    return Pseudocoreset(**(values | changes))
