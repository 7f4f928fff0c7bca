"""Compare FBPC with random points and with no model at all on six tables, by default settings.

    python benchmarks/tables.py --out results/tables.json

Breast-cancer and diabetes are real; the others are drawn here: two moons, three classes of which
one is rare, a function of five inputs (Friedman 1991), and prices with noise in proportion. The
coresets have 5 points per class, or 10 in all for a regression. *none* predicts the shares of the
classes, or the mean of the targets. Each seed trains its own experts and scores the test points
with one chain.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

import pseudocoreset as pc
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.versions import versions
from script import exit_with

POINTS = 1000
"""Of a table that is drawn; half are test points."""


def moons(rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two half circles."""
    kind, angle = rng.integers(2, size=POINTS), np.pi * rng.random(POINTS)
    side = 1 - 2 * kind
    x = np.stack([side * np.cos(angle) + kind, side * np.sin(angle) + 0.5 * kind], 1)
    return x + 0.2 * rng.standard_normal(x.shape), kind


def rare(rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three Gaussian classes; one has 6 % of the points."""
    kind = rng.choice(3, POINTS, p=(0.6, 0.34, 0.06))
    centres = 1.5 * default_rng(0).standard_normal((3, 8))
    return centres[kind] + rng.standard_normal((POINTS, 8)), kind


def friedman(rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Friedman's first function, with five inputs that do not matter."""
    x = rng.random((POINTS, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3]
    return x, y + 5 * x[:, 4] + rng.standard_normal(POINTS)


def prices(rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """The exponential of a function of four of eight inputs."""
    x = rng.standard_normal((POINTS, 8))
    logs = 12.5 + 0.4 * x[:, 0] + 0.3 * x[:, 1] * (x[:, 2] > 0) + 0.2 * x[:, 3]
    return x, np.exp(logs + 0.2 * rng.standard_normal(POINTS))


DRAWN: dict[str, Callable[[Generator], tuple[np.ndarray, np.ndarray]]] = {
    "moons": moons,
    "rare": rare,
    "friedman": friedman,
    "prices": prices,
}
TABLES = ("breast-cancer", "moons", "rare", "diabetes", "friedman", "prices")


def load(name: str) -> pc.Data:
    """A table."""
    if name not in DRAWN:
        return pc.load_data(name)
    x, y = DRAWN[name](default_rng(1))
    half = POINTS // 2
    return pc.from_arrays(
        x[:half].astype(np.float32), y[:half], x[half:].astype(np.float32), y[half:]
    )


def without_model(data: pc.Data) -> dict[str, float]:
    """Scores of the shares of the classes, or of the mean and deviation of the targets."""
    train, test = (split.targets.double() for split in (data.train, data.test))
    if data.task == "regression":
        away, std = test - train.mean(), train.std(correction=0)
        nll = (away / std).square() / 2 + std.log() + np.log(2 * np.pi) / 2
        return {"rmse": float(away.square().mean().sqrt()), "nll": float(nll.mean())}
    shares = train.long().bincount() / len(train)
    right = shares[test.long()]
    best = (test.long() == shares.argmax()).double().mean()
    return {"accuracy": float(best), "nll": float(-right.log().mean())}


def measure(name: str, seed: int) -> dict[str, Any]:
    """Scores of random points and of FBPC for one seed."""
    data = load(name)
    score, ipc = ("rmse", 10) if data.task == "regression" else ("accuracy", 5)
    own = {"seed": seed, "device": "cpu", "progress": False}
    with tempfile.TemporaryDirectory() as folder:
        experts = pc.train_experts(data, "mlp", out=f"{folder}/experts", **own)
        made = {
            "random": pc.distill(data, experts, "random", ipc=ipc, **own),
            "fbpc": pc.distill(data, experts, ipc=ipc, **own),
        }
    row: dict[str, Any] = {"table": name, "seed": seed, "none": without_model(data)}
    for method, coreset in made.items():
        found = pc.evaluate(coreset, data, first_seed=seed, seeds=1, device="cpu", progress=False)
        row[method] = {each: getattr(found, each) for each in (score, "nll")}
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="*", default=TABLES, choices=TABLES)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    for name in options.tables:
        for seed in range(options.seeds):
            rows.append(measure(name, seed))
            print(rows[-1], flush=True)
    command = f"python benchmarks/tables.py --seeds {options.seeds} --out {options.out.name}"
    found = {"command": command, "device": "cpu", "versions": versions(), "rows": rows}
    write_json(options.out, found)
    return 0


if __name__ == "__main__":
    exit_with(main)
