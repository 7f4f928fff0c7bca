"""Measuring: trials, stored one after another in one JSON file."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch

from pseudocoreset.coreset import Pseudocoreset, whole_data
from pseudocoreset.data import Data, load_data
from pseudocoreset.distillation import distill
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.parse import Shape, check_shape, read_json
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.compare import distances
from pseudocoreset.evaluation.convergence import LIMIT, r_hat
from pseudocoreset.evaluation.evaluate import predictions
from pseudocoreset.evaluation.metrics import PredictedNumbers, scores
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.methods import FBPC
from pseudocoreset.nets import Weights
from pseudocoreset.posterior import SGLD, Ensemble, Sampler, named_sampler, sample
from pseudocoreset.reproduce.regression.posterior import Effort, draw, log_posterior
from pseudocoreset.reproduce.text_table import TextTable

FORMAT = 1
DATA, NET, PRIOR = "diabetes", "mlp:depth=1,width=10", 1.0
SIZES = (5, 20, 50)
STEPS = 200
SAMPLER_EPOCHS = 1000
EXPERTS = ExpertOptions(num=10, epochs=60, lr=0.05, batch=32)
METHOD = FBPC(
    from_epoch=20,
    gamma=0.1,
    lr_map=0.01,
    lr_x=0.05,
    lr_u=0.05,
    covariance_steps=10,
    real_batch=64,
)
"""These, and the step sizes below, are the recipe for 10 points, at every size."""
LEARNED: dict[str, Any] = {"labels": "learned", "lr_images": 6.0, "lr_labels": 6.0, "batch": 100}
EFFORT = Effort()
QUIET: dict[str, Any] = {"device": "cpu", "progress": False}
TITLES = {"random": "random points", "fbpc": "FBPC"}
OF_ALL = {
    "hmc": "all points, other chains",
    "sghmc": "all points, SGHMC (`bayes`)",
    "sgld": "all points, SGLD (`bayes`)",
    "ensemble": "all points, an ensemble of 40",
}
ROW: Shape = {
    **dict.fromkeys(("rmse", "nll", "coverage", "r_hat_share"), float),
    "apart": {"rmse": float, "kl": float, "variance_ratio": int | float | None},
}


def path_of(out: Path) -> Path:
    """Where the trials are.

    Args:
        out: folder of the results
    """
    return out / "regression" / f"{DATA}.json"


def names() -> list[str]:
    """The rows of a trial beside the reference."""
    return [*(f"{name}/{size}" for size in SIZES for name in TITLES), *OF_ALL]


def stored(out: Path) -> dict[str, Any]:
    """What was measured; without trials where nothing was.

    Args:
        out: folder of the results
    """
    path = path_of(out)
    if not path.exists():
        return {"format": FORMAT, "trials": []}
    try:
        content = read_json(path)
        rows = {"reference": ROW, **dict.fromkeys(names(), ROW)}
        check_shape(content, {"format": int, "trials": [{"seed": int, "rows": rows}]})
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, not {FORMAT}")
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): delete it to measure again.") from None
    return dict(content)


def measure_regression(out: Path, trials: int, first: int) -> Iterator[str]:
    """Measure the trials that are missing; a line of words after each.

    Args:
        out: folder of the results
        trials: how many
        first: seed of the first
    """
    for seed in range(first, first + trials):
        content = stored(out)
        if seed in [each["seed"] for each in content["trials"]]:
            yield f"regression, seed {seed}: measured before"
            continue
        began = time.perf_counter()
        found = measure_trial(seed)
        seconds = time.perf_counter() - began
        every = [*content["trials"], {"seed": seed, "seconds": seconds, **found}]
        content |= {
            "trials": sorted(every, key=lambda each: int(each["seed"])),
            "net": NET,
            "prior": PRIOR,
            "effort": asdict(EFFORT),
            "steps": STEPS,
            "command": f"pseudocoreset reproduce regression --seed {first} --trials {trials}",
            "device": "cpu",
            "versions": versions(),
        }
        write_json(path_of(out), content)
        yield f"regression, seed {seed}: {seconds:.0f} s"


def measure_trial(seed: int) -> dict[str, Any]:
    """Coresets of all sizes, and samplers on all points, beside HMC on all points.

    Args:
        seed: of experts, points and chains
    """
    data = load_data(DATA)
    with TemporaryDirectory() as folder:
        experts = train_experts(data, NET, Path(folder) / "experts", EXPERTS, seed=seed, **QUIET)
        made = {
            f"{name}/{size}": distill(
                data,
                experts,
                "random" if name == "random" else METHOD,
                ipc=size,
                seed=seed,
                recipe="paper",
                **({} if name == "random" else {"steps": STEPS, **LEARNED}),
                **QUIET,
            )
            for size in SIZES
            for name in TITLES
        }
    everything = whole_data(data, NET, next(iter(made.values())).likelihood)
    reference, signs = by_hmc(everything, data, seed, "reference")
    rows = {"reference": _row(reference, reference, signs)}
    for name, coreset in made.items():
        found, signs = by_hmc(coreset, data, seed, name)
        rows[name] = _row(found, reference, signs)
    for name in OF_ALL:
        if name == "hmc":
            found, signs = by_hmc(everything, data, seed, name)
        else:
            found, signs = _by_sampler(everything, data, seed, name)
        rows[name] = _row(found, reference, signs)
    return {"noise": float(reference.noise[0]), "rows": rows}


def by_hmc(
    coreset: Pseudocoreset, data: Data, seed: int, purpose: str
) -> tuple[PredictedNumbers, dict[str, float]]:
    """Predictions of a posterior in which each point counts n/m times, and signs of its chains.

    Args:
        coreset: the points
        data: whose test points are predicted
        seed: of the chains
        purpose: what the chains are for
    """
    net = coreset.make_net()
    rng = Rng(torch.device("cpu"), seed, "regression", purpose)
    start = torch.stack([net.init(rng.host).params for _ in range(EFFORT.chains)])
    weight = len(data.train) / coreset.num_seen
    drawn = draw(log_posterior(coreset, weight, PRIOR), start, EFFORT, rng.host)
    inputs, none = data.scaling.apply(data.test.inputs), torch.zeros(net.num_buffers)
    with torch.no_grad():
        outputs = torch.func.vmap(lambda p: net.apply(Weights(p, none), inputs))(drawn.by_chain)
    found = _numbers(coreset, outputs, data)
    signs = _signs(found, EFFORT.chains)
    return found, signs | {"accepted": drawn.accepted}


def _by_sampler(
    everything: Pseudocoreset, data: Data, seed: int, name: str
) -> tuple[PredictedNumbers, dict[str, float]]:
    """The package's own samplers at temperature 1."""
    given: Sampler | None = {"sghmc": None, "sgld": SGLD(), "ensemble": Ensemble()}[name]
    protocol = "tuned" if name == "ensemble" else "bayes"
    chains = 4
    complete = named_sampler(protocol, given)
    sampler = replace(complete, epochs=SAMPLER_EPOCHS, every=SAMPLER_EPOCHS // 10)
    posterior = sample(everything, sampler, chains=chains, weight=1.0, seed=seed, **QUIET)
    outputs = posterior.outputs(data.test.inputs, scaling=posterior.scaling)
    found = _numbers(everything, outputs, data)
    return found, _signs(found, posterior.chains)


def _numbers(coreset: Pseudocoreset, outputs: torch.Tensor, data: Data) -> PredictedNumbers:
    found = predictions(coreset, outputs, data.test.targets)
    assert isinstance(found, PredictedNumbers)
    return found


def _signs(found: PredictedNumbers, chains: int) -> dict[str, float]:
    """The share of predictions on which chains disagree; 0 for networks without chains."""
    draws = found.samples.double().reshape(chains, -1, found.samples.shape[1])
    if draws.shape[1] < 4:
        return {"r_hat_share": 0.0}
    return {"r_hat_share": float((r_hat(draws) > LIMIT).double().mean())}


def _row(
    found: PredictedNumbers, reference: PredictedNumbers, signs: dict[str, float]
) -> dict[str, Any]:
    return {**scores(found), **signs, "apart": dict(distances(found, reference))}


HEADER = (
    *("posterior of", "points", "RMSE", "NLL", "coverage of 90 %", "RMSE from the reference"),
    *("KL from the reference", "variance ratio", "R̂ above 1.1"),
)


def regression_table(out: Path) -> TextTable:
    """Means over trials.

    Args:
        out: folder of the results
    """
    trials = [each["rows"] for each in stored(out)["trials"]]
    if not trials:
        return TextTable(HEADER, [])
    rows: list[tuple[str, ...]] = []
    for name in ("reference", *names()):
        method, _, size = name.partition("/")
        title = {"reference": "all points, HMC: the reference", **TITLES, **OF_ALL}[method]

        def mean(key: str, of: str | None = None, name: str = name) -> float:
            found = [each[name][of] if of else each[name] for each in trials]
            return fmean(each[key] or 0.0 for each in found)

        own = (f"{mean('rmse'):.2f}", f"{mean('nll'):.3f}", f"{mean('coverage'):.1%}")
        apart = (
            ("–",) * 3
            if name == "reference"
            else (
                f"{mean('rmse', 'apart'):.2f}",
                f"{mean('kl', 'apart'):.3f}",
                f"{mean('variance_ratio', 'apart'):.2f}",
            )
        )
        signs = "–" if name == "ensemble" else f"{mean('r_hat_share'):.0%}"
        rows.append((title, size or "all", *own, *apart, signs))
    return TextTable(HEADER, [rows])
