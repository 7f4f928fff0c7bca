"""Cells of the paper's tables as if they had been measured."""

from pseudocoreset.reproduce.cells import Cell
from pseudocoreset.reproduce.stored import SCORE_KEYS, Measured


def made(cell: Cell, accuracy: float, nll: float = 1.0, kim: float | None = None, std=0.1):
    """A cell as if measured; accuracy and its spread in per cent."""
    scores = {"accuracy": accuracy / 100, "nll": nll, "nll_kim": nll if kim is None else kim}
    content = {**scores, "ece": 0.02, "brier": 0.5}
    spreads = {"accuracy": std / 100, "nll": 0.01, "nll_kim": 0.01, "ece": 0.0, "brier": 0.0}
    content |= {f"{name}_std": value for name, value in spreads.items()}
    size = cell.ipc or 5000
    content |= {
        "seeds": [scores] * 5,
        "samplers": [{"seed": seed} for seed in range(5)],
        "protocol": {
            "sampler": "sghmc",
            "epochs": 50,
            "dsa": "on",
            "temperature": 0.001,
            "weight_decay": 0.1,
        },
        "coreset": {"images": 10 * size, "config": {"steps": 1000}},
        "experts": {"num": 20, "epochs": 30, "fingerprint": "f"} if cell.recipe else None,
        "fingerprints": [f"{cell.file_name} by hand"],
        "duration": {
            "experts_s": 600.0,
            "experts_whole": True,
            "distill_s": 50.0,
            "evaluate_s": 10.0,
            "whole": True,
        },
        "device": "a device",
    }
    plain = {"accuracy": accuracy / 100 - 0.03, "nll": nll + 0.5, "nll_kim": nll + 0.7}
    content["by_paper"] = {name: content[name] for name in SCORE_KEYS} | plain
    return Measured(cell, content)
