"""Small made-up runs to report on."""

from typing import Any

import torch

from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import Column, Scaling
from pseudocoreset.forms import Form, Pixels
from pseudocoreset.likelihoods import Gaussian
from pseudocoreset.report import RunReport

MADE = Provenance("fbpc", "convnet", "pets", "fingerprint", 0, 0)


def make_coreset(
    names: tuple[str, ...] = ("cat", "dog", "fox"),
    ipc: int = 2,
    size: int = 8,
    channels: int = 1,
    form: Form | None = None,
    seed: int = 0,
) -> Pseudocoreset:
    images = torch.randn(
        len(names) * ipc, channels, size, size, generator=torch.Generator().manual_seed(seed)
    )
    return Pseudocoreset(
        images,
        torch.arange(len(names)).repeat_interleave(ipc),
        names,
        Scaling((0.5,) * channels, (0.25,) * channels),
        "on",
        MADE,
        form=form or Pixels(),
    )


def make_table(regression: bool = False, points: int = 6) -> Pseudocoreset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(points, 2, generator=generator)
    columns = (Column("age", "number"), Column("<b>size</b>", "number"))
    scaling = Scaling((40.0, 1.0), (10.0, 0.5))
    if regression:
        numbers = torch.randn(points, 1, generator=generator)
        units = Scaling((150.0,), (75.0,))
        like = Gaussian(1, 0.5)
        return Pseudocoreset(inputs, numbers, (), scaling, "", MADE, Pixels(), like, units, columns)
    classes = torch.arange(points) % 2
    names = ("benign", "malignant")
    return Pseudocoreset(inputs, classes, names, scaling, "", MADE, columns=columns)


def make_metrics(updates: int = 6, networks: int = 1) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for update in range(1, updates + 1):
        row: dict[str, Any] = {"update": update}
        for network in range(networks):
            end = f"/{network}" if networks > 1 else ""
            row |= {f"loss_x{end}": 2.0 / update, f"loss_u{end}": 0.5, f"map_loss{end}": 0.05}
            row |= {f"map_steps{end}": 40 + update, f"map_missed{end}": 0}
        rows.append(row)
    return rows


def make_evaluation(accuracy: float = 0.8125, nll: float = 0.654, seeds: int = 2) -> dict[str, Any]:
    means = {
        "accuracy": accuracy,
        "nll": nll,
        "nll_kim": 0.701,
        "ece": 0.093,
        "brier": 0.287,
        "disagreement": 0.123,
    }
    return {
        **means,
        **{f"{name}_std": 0.0125 for name in means},
        "seeds": [means] * seeds,
        "protocol": {
            "sampler": "sghmc",
            "step": 0.03,
            "epochs": 100,
            "every": 10,
            "temperature": 0.001,
            "net": "convnet:depth=2",
            "split": "test",
            "images": 500,
            "versions": {"torch": "2.11.0"},
        },
        "coreset": {"images": 1234},
        "samplers": [
            {
                "seed": 40 + seed,
                "temperature": 0.001,
                "kinetic_temperature": [0.042],
                "loss_trace": [[2.3, 1.1, 0.5, 0.05]],
            }
            for seed in range(seeds)
        ],
        "reliability": {
            "share": [0.0, 0.25, 0.75],
            "confidence": [0.0, 0.6, 0.9],
            "accuracy": [0.0, 0.5, 0.96],
        },
    }


def make_convergence() -> dict[str, Any]:
    traces = [[0.1, 0.2, 0.15, 0.3], [0.8, 0.9, 0.7, 0.75]]
    return {
        "chains": 2,
        "draws": 4,
        "points": 30,
        "quantities": 30,
        "r_hat": {"median": 1.34, "largest": 2.5, "share_above_1.1": 0.6, "share_by_chance": 0.1},
        "effective_size": {"median": 3.2, "smallest": 2.1},
        "loss": {"r_hat": 1.07, "effective_size": 21.0},
        "traces": {"median": traces, "worst": traces},
        "warning": "The 2 chains do not agree.",
    }


def make_pooled(classes: int = 3) -> dict[str, Any]:
    """What an evaluation has beside, since the second edition."""
    rows = [[9 if row == column else 1 for column in range(classes)] for row in range(classes)]
    return {
        "accuracy": 0.8375,
        "nll": 0.611,
        "class_accuracy": [9 / (8 + classes)] * classes,
        "confusion": rows,
    }


def make_examples(regression: bool = False) -> dict[str, Any]:
    """Test points that an evaluation names."""
    if regression:
        rows = [{"index": n, "target": [9.0 * n], "mean": [50.0], "std": [7.0]} for n in range(3)]
        return {"worst": rows[:1], "fitted": rows}
    shares = {"predicted": [0, 2, 1], "probabilities": [0.75, 0.2, 0.05], "entropy": 0.6}
    rows = [{"index": n, "truth": 1, "truth_probability": 0.05, **shares} for n in range(3)]
    return {"uncertain": rows[:2], "wrong": rows[2:]}


def make_regression() -> dict[str, Any]:
    means = {"rmse": 54.321, "nll": 5.432, "coverage": 0.912}
    evaluation = make_evaluation()
    kept = {key: evaluation[key] for key in ("protocol", "coreset", "samplers")}
    spreads = {f"{name}_std": 0.5 for name in means}
    return {**means, **spreads, **kept, "seeds": [means] * 2, "pooled": means, "reliability": {}}


def make_run(name: str = "FBPC, 2 images per class", **changes: Any) -> RunReport:
    values: dict[str, Any] = {
        "coreset": make_coreset(),
        "metrics": make_metrics(),
        "config": {"method": "fbpc", "ipc": 2, "data": "pets", "gamma": 0.05, "seed": 7},
        "evaluation": make_evaluation(),
    }
    return RunReport(name, **(values | changes))
