"""An MLP on a table with numbers as targets."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pseudocoreset.coreset import Pseudocoreset, whole_data
from pseudocoreset.data import Data, load_data
from pseudocoreset.distillation import distill
from pseudocoreset.engine.parse import Shape
from pseudocoreset.evaluation.compare import distances
from pseudocoreset.evaluation.evaluate import predictions
from pseudocoreset.evaluation.metrics import PredictedNumbers, scores
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.methods import FBPC
from pseudocoreset.posterior import SGHMC, SGLD, Ensemble, Sampler, named_sampler, sample
from pseudocoreset.reproduce.fidelity.predictions import without_first
from pseudocoreset.reproduce.small.posterior import Effort, Found, by_hmc, signs_of
from pseudocoreset.reproduce.small.study import REFERENCE, Study

DATA, NET, PRIOR = "diabetes", "mlp:depth=1,width=10", 1.0
SIZES = (5, 20, 50)
STEPS = 200
SAMPLER_EPOCHS, DRAWS, DROPPED = 4000, 100, 20
"""Of a chain of SGHMC or SGLD: epochs, samples, and how many of these are dropped at first."""
ENSEMBLE_EPOCHS = 1000
SHOWN_CHAINS = 4
"""Chains whose traces are kept, at the first test point."""
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
    "sghmc-friction": "the same with friction 0.03",
    "sghmc-cosine": "all points, SGHMC, cosine cycles",
    "sgld": "all points, SGLD (`bayes`)",
    "ensemble": "all points, an ensemble of 40",
}
ALONE = "ensemble"
"""Networks that are no chains."""
TRACED = ("reference", "sghmc", "sghmc-cosine", "sgld")
"""Rows that keep traces of one prediction."""


def names() -> list[str]:
    """The rows of a trial beside the reference."""
    return [*(f"{name}/{size}" for size in SIZES for name in TITLES), *OF_ALL]


def _shape(name: str) -> Shape:
    """What is stored of a row."""
    return {
        **dict.fromkeys(("rmse", "nll", "coverage"), float),
        "apart": {"rmse": float, "kl": float, "variance_ratio": int | float | None},
        **({} if name == ALONE else {"r_hat_share": float, "effective_size": float}),
        **({"trace": [[float]]} if name in TRACED else {}),
    }


def measure_trial(seed: int, missing: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Coresets, and samplers on all points, beside HMC on all points: name and row, one by one.

    Args:
        seed: of experts, points and chains
        missing: the rows to measure beside the reference
    """
    data = load_data(DATA)
    of_coresets = [name for name in missing if name not in OF_ALL]
    with TemporaryDirectory() as folder:
        experts = train_experts(data, NET, Path(folder) / "experts", EXPERTS, seed=seed, **QUIET)
        made = {}
        for each in [f"random/{SIZES[0]}", *of_coresets]:  # one always: it has the noise
            name, _, size = each.partition("/")
            made[each] = distill(
                data,
                experts,
                "random" if name == "random" else METHOD,
                ipc=int(size),
                seed=seed,
                recipe="paper",
                **({} if name == "random" else {"steps": STEPS, **LEARNED}),
                **QUIET,
            )
    everything = whole_data(data, NET, next(iter(made.values())).likelihood)
    reference = _by_hmc(everything, data, seed, REFERENCE)
    noise = float(_numbers(reference).noise[0])
    yield REFERENCE, {**_row(REFERENCE, reference, reference), "noise": noise}
    for name in missing:
        if name in of_coresets:
            found = _by_hmc(made[name], data, seed, name)
        elif name == "hmc":
            found = _by_hmc(everything, data, seed, name)
        else:
            found = _by_sampler(everything, data, seed, name)
        yield name, _row(name, found, reference)


def _by_hmc(coreset: Pseudocoreset, data: Data, seed: int, name: str) -> Found:
    return by_hmc(coreset, data, PRIOR, EFFORT, seed, STUDY.name, name)


def _by_sampler(everything: Pseudocoreset, data: Data, seed: int, name: str) -> Found:
    """The package's own samplers at temperature 1, and an ensemble."""
    given: dict[str, Sampler] = {
        "sghmc": SGHMC(),
        "sghmc-friction": SGHMC(friction=0.03),
        "sghmc-cosine": SGHMC(schedule="cosine"),
        "sgld": SGLD(),
        "ensemble": Ensemble(),
    }
    alone = name == ALONE
    sampler = named_sampler("tuned" if alone else "bayes", given[name])
    if alone:
        sampler = replace(sampler, epochs=ENSEMBLE_EPOCHS, every=ENSEMBLE_EPOCHS // 10)
    else:
        sampler = replace(sampler, epochs=SAMPLER_EPOCHS, every=SAMPLER_EPOCHS // DRAWS)
    posterior = sample(everything, sampler, chains=4, weight=1.0, seed=seed, **QUIET)
    posterior = posterior if alone else without_first(posterior, DROPPED)
    outputs = posterior.outputs(data.test.inputs, scaling=posterior.scaling)
    found = predictions(everything, outputs, data.test.targets)
    return Found(found, posterior.chains, {} if alone else signs_of(found, posterior.chains))


def _numbers(found: Found) -> PredictedNumbers:
    assert isinstance(found.predicted, PredictedNumbers)
    return found.predicted


def _row(name: str, found: Found, reference: Found) -> dict[str, Any]:
    """Scores, signs of convergence, how far it is from the reference, and traces of some rows."""
    traces = {}
    if name in TRACED:
        draws = _numbers(found).samples[:, 0, 0].double().reshape(found.chains, -1)
        shown = draws[:SHOWN_CHAINS, :: max(1, draws.shape[1] // DRAWS)]
        traces["trace"] = [[round(value, 2) for value in chain] for chain in shown.tolist()]
    return {
        **scores(found.predicted),
        **found.signs,
        **traces,
        "apart": dict(distances(found.predicted, reference.predicted)),
    }


def _settings() -> dict[str, Any]:
    return {"net": NET, "prior": PRIOR, "effort": asdict(EFFORT), "steps": STEPS}


STUDY = Study("regression", DATA, names, _shape, measure_trial, _settings)
