"""Measure variances of a small network on the digits."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import load_data
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.parse import Shape, check_shape, read_json
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.methods import FBPC, Context, Points
from pseudocoreset.methods.function_space import OutputVariance
from pseudocoreset.methods.map_solution import MapSolver
from pseudocoreset.nets import Weights, make_net
from pseudocoreset.reproduce.covariance.linearised import linearised_variance, posterior_covariance
from pseudocoreset.reproduce.text_table import TextTable
from pseudocoreset.training import RealPoints, coreset_points

FORMAT = 1
DATA, PRIOR, POINTS = "digits", 1.0, 100
NET = "pseudocoreset.reproduce.covariance.networks:centred"
EXPERTS = ExpertOptions(num=5, epochs=40, lr=0.1, batch=64, dsa="off")
SNAPSHOTS = (2, 10, 40)
STEPS = (30, 300)
METHOD = FBPC(gamma=0.1, lr_map=0.01, max_map_steps=2000, lr_x=0.05, lr_u=0.01, real_batch=256)
FIGURES = {
    "exact": "J Σ Jᵀ",
    "ratio": "Ψ̂ / J Σ Jᵀ",
    "all": "correlation",
    "points": "over points",
    "classes": "over classes",
    "again": "of Ψ̂ and another Ψ̂",
}
Variances = list[Float[Tensor, "m k"]]
ROW: Shape = {"where": str, "steps": int, **dict.fromkeys(FIGURES, float)}


def path_of(out: Path) -> Path:
    """Where the rows are.

    Args:
        out: folder of the results
    """
    return out / "covariance.json"


def compared(found: Float[Tensor, "m k"], exact: Float[Tensor, "m k"]) -> dict[str, float]:
    """How near two sets of variances are, by their logs.

    Geometric means of the exact ones and of the ratio; the correlation over all outputs, over
    points (of means over classes), and over classes (within a point, mean over points).

    Args:
        found: variances
        exact: those that they are compared with
    """
    a, b = found.double().log(), exact.double().log()
    within = [_correlation(one, other) for one, other in zip(a, b, strict=True)]
    return {
        "exact": float(b.mean().exp()),
        "ratio": float((a - b).mean().exp()),
        "all": _correlation(a.flatten(), b.flatten()),
        "points": _correlation(found.double().mean(1).log(), exact.double().mean(1).log()),
        "classes": fmean(within),
    }


def _correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def measure_covariance(out: Path, seed: int) -> Iterator[str]:
    """Measure missing rows and yield a line after each.

    Args:
        out: folder of the results
        seed: of all randomness
    """
    if path_of(out).exists():
        stored(out)
        yield f"covariance: measured before (delete {path_of(out)} to measure it again)"
        return
    rows = []
    for row in _rows(seed):
        rows.append(row)
        yield f"covariance, {row['where']}, {row['steps']} steps: ratio {row['ratio']:.3g}"
    content = {
        "format": FORMAT,
        "rows": rows,
        "data": DATA,
        "net": NET,
        "prior": PRIOR,
        "points": POINTS,
        "experts": asdict(EXPERTS),
        "method": METHOD.as_dict(),
        "command": f"pseudocoreset reproduce covariance --seed {seed}",
        "device": "cpu",
        "versions": versions(),
    }
    write_json(path_of(out), content)


def _rows(seed: int) -> Iterator[dict[str, Any]]:
    """At snapshots of experts on the data's side, and at MAP solutions on the coreset's."""
    bench, cpu = _Bench(seed), torch.device("cpu")
    with TemporaryDirectory() as folder:
        experts = train_experts(
            load_data(DATA), NET, Path(folder), EXPERTS, seed=seed, device=cpu, progress=False
        )
        for epoch in SNAPSHOTS:
            at = [experts.snapshot(path, epoch, cpu) for path in experts.trajectories]
            exact = bench.exact(at, bench.everything, 1.0)
            for steps in STEPS:
                found, again = (bench.on_data(at, steps, order) for order in bench.orders)
                yield _row(f"data, experts of epoch {epoch}", steps, found, exact, again)
    at = bench.solutions(EXPERTS.num)
    exact = bench.exact(at, bench.coreset, len(bench.everything.inputs) / POINTS)
    for steps in STEPS:
        found = bench.on_coreset(at, steps)
        # The same steps again are the same; those from another solution are not.
        yield _row("coreset, MAP solutions", steps, found, exact, [*found[1:], found[0]])


def _row(
    where: str, steps: int, found: Variances, exact: Variances, again: Variances
) -> dict[str, Any]:
    """Means over the weights."""
    figures = [compared(*pair) for pair in zip(found, exact, strict=True)]
    repeated = [compared(*pair)["all"] for pair in zip(again, found, strict=True)]
    means = {name: fmean(each[name] for each in figures) for name in figures[0]}
    return {"where": where, "steps": steps, **means, "again": fmean(repeated)}


class _Bench:
    """The network, its data, and some of them as a coreset."""

    def __init__(self, seed: int) -> None:
        data, device = load_data(DATA), torch.device("cpu")
        self._net = make_net(NET, **data.shape)
        self._rng = Rng(device, seed, "covariance")
        real = RealPoints(data.train, data.scaling)
        likelihood = Categorical(data.classes)
        self._context = Context(self._net, None, real, Augmentation(()), likelihood, 10**9)
        self.everything = Points(*real({}, None))
        number, host = len(data.train), self._rng.host
        chosen = torch.randperm(number, generator=host)[:POINTS]
        self.coreset = Points(*(part[chosen] for part in self.everything))
        needed = max(STEPS) * METHOD.real_batch
        self.orders = [torch.randint(number, (needed,), generator=host) for _ in range(2)]
        """Batches of the data, drawn twice."""

    def exact(self, at: list[Weights], points: Points, weight: float) -> Variances:
        """The diagonal of J Σ Jᵀ at the coreset, Σ being that of these points' posterior."""
        found = []
        for one in at:
            sigma = posterior_covariance(
                self._net, one, points, self._context.likelihood, weight=weight, prior=PRIOR
            )
            found.append(linearised_variance(self._net, one, self.coreset.inputs, sigma))
        return found

    def on_data(self, at: list[Weights], steps: int, order: Tensor) -> Variances:
        """Ψ̂_x at the coreset."""
        real = self._context.real
        over = OutputVariance(self._context, real, METHOD.lr_x, steps, METHOD.real_batch, self._rng)
        return [over.along(one, self.coreset.inputs, {}, order).clone() for one in at]

    def on_coreset(self, at: list[Weights], steps: int) -> Variances:
        """Ψ̂_u at the coreset."""
        over = OutputVariance(self._context, coreset_points, METHOD.lr_u, steps, None, self._rng)
        inputs = self.coreset._asdict()
        return [over.along(one, self.coreset.inputs, inputs, None).clone() for one in at]

    def solutions(self, number: int) -> list[Weights]:
        """MAP solutions of the coreset, as FBPC finds them."""
        solver = MapSolver(METHOD, self._context, None, self._rng)
        found = (solver.solve(self.coreset).weights for _ in range(number))
        return [Weights(*(part.clone() for part in weights)) for weights in found]


def stored(out: Path) -> dict[str, Any]:
    """What was measured; without rows if nothing was.

    Args:
        out: folder of the results
    """
    path = path_of(out)
    if not path.exists():
        return {"format": FORMAT, "rows": []}
    try:
        content = read_json(path)
        check_shape(content, {"format": int, "rows": [ROW]})
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, not {FORMAT}")
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): delete it to measure again.") from None
    return dict(content)


def covariance_table(out: Path) -> TextTable:
    """A row for each kind of weights and number of steps.

    Args:
        out: folder of the results
    """
    rows = [
        (
            row["where"],
            str(row["steps"]),
            *(f"{row[name]:.2g}" for name in list(FIGURES)[:2]),
            *(f"{row[name]:.2f}" for name in list(FIGURES)[2:]),
        )
        for row in stored(out)["rows"]
    ]
    return TextTable(("at", "K", *FIGURES.values()), [rows])
