"""Measure trials and store them in one JSON file."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
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
from pseudocoreset.evaluation.convergence import LIMIT, effective_size, r_hat
from pseudocoreset.evaluation.evaluate import predictions
from pseudocoreset.evaluation.metrics import PredictedNumbers, scores
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.methods import FBPC
from pseudocoreset.nets import Weights
from pseudocoreset.posterior import SGHMC, SGLD, Ensemble, Sampler, named_sampler, sample
from pseudocoreset.reproduce.fidelity.predictions import without_first
from pseudocoreset.reproduce.regression.posterior import Effort, draw, log_posterior

FORMAT = 1
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
    "sghmc-cosine": "all points, SGHMC, cosine cycles",
    "sgld": "all points, SGLD (`bayes`)",
    "ensemble": "all points, an ensemble of 40",
}
ROW: Shape = {
    **dict.fromkeys(("rmse", "nll", "coverage", "r_hat_share"), float),
    "apart": {"rmse": float, "kl": float, "variance_ratio": int | float | None},
}
TRACED = ("reference", "sghmc", "sghmc-cosine", "sgld")
"""Rows that keep traces of one prediction."""


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
    """What was measured; without trials if nothing was.

    Args:
        out: folder of the results
    """
    path = path_of(out)
    if not path.exists():
        return {"format": FORMAT, "trials": []}
    try:
        content = read_json(path)
        check_shape(content, {"format": int, "trials": [{"seed": int, "rows": dict}]})
        for trial in content["trials"]:
            _check_rows(trial["rows"])
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, not {FORMAT}")
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): delete it to measure again.") from None
    return dict(content)


def _check_rows(rows: dict[str, Any]) -> None:
    """Raise ValueError where rows are not known, lack something, or have no numbers."""
    if "reference" not in rows or not {"reference", *names()} >= rows.keys():
        raise ValueError("its rows are not known")
    for name, row in rows.items():
        check_shape({name: row}, {name: ROW})
        check_shape(row, {"effective_size": float} if "effective_size" in row else {})
        if name in TRACED:
            check_shape(row, {"trace": [[float]]})


def measure_regression(out: Path, trials: int, first: int) -> Iterator[str]:
    """Measure missing trials and yield a line after each.

    Args:
        out: folder of the results
        trials: how many
        first: seed of the first
    """
    for seed in range(first, first + trials):
        content = stored(out)
        known = {each["seed"]: each for each in content["trials"]}.get(seed, {"rows": {}})
        missing = [name for name in names() if name not in known["rows"]]
        if not missing:
            yield f"regression, seed {seed}: measured before"
            continue
        began = time.perf_counter()
        found = measure_trial(seed, missing)
        found["rows"] = {**known["rows"], **found["rows"]}
        seconds = known.get("seconds", 0.0) + time.perf_counter() - began
        others = [each for each in content["trials"] if each["seed"] != seed]
        every = [*others, {"seed": seed, "seconds": seconds, **found}]
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


def measure_trial(seed: int, missing: Sequence[str]) -> dict[str, Any]:
    """Coresets, and samplers on all points, beside HMC on all points.

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
    reference, signs = by_hmc(everything, data, seed, "reference")
    rows = {"reference": _row(reference, reference, signs)}
    for name in missing:
        if name in of_coresets:
            found, signs = by_hmc(made[name], data, seed, name)
        elif name == "hmc":
            found, signs = by_hmc(everything, data, seed, name)
        else:
            found, signs = _by_sampler(everything, data, seed, name)
        rows[name] = _row(found, reference, signs)
    return {"noise": float(reference.noise[0]), "rows": rows}


def by_hmc(
    coreset: Pseudocoreset, data: Data, seed: int, purpose: str
) -> tuple[PredictedNumbers, dict[str, Any]]:
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
) -> tuple[PredictedNumbers, dict[str, Any]]:
    """The package's own samplers at temperature 1, and an ensemble."""
    given: dict[str, Sampler] = {
        "sghmc": SGHMC(),
        "sghmc-cosine": SGHMC(schedule="cosine"),
        "sgld": SGLD(),
        "ensemble": Ensemble(),
    }
    alone = name == "ensemble"
    sampler = named_sampler("tuned" if alone else "bayes", given[name])
    if alone:
        sampler = replace(sampler, epochs=ENSEMBLE_EPOCHS, every=ENSEMBLE_EPOCHS // 10)
    else:
        sampler = replace(sampler, epochs=SAMPLER_EPOCHS, every=SAMPLER_EPOCHS // DRAWS)
    posterior = sample(everything, sampler, chains=4, weight=1.0, seed=seed, **QUIET)
    posterior = posterior if alone else without_first(posterior, DROPPED)
    outputs = posterior.outputs(data.test.inputs, scaling=posterior.scaling)
    found = _numbers(everything, outputs, data)
    return found, _signs(found, posterior.chains)


def _numbers(coreset: Pseudocoreset, outputs: torch.Tensor, data: Data) -> PredictedNumbers:
    found = predictions(coreset, outputs, data.test.targets)
    assert isinstance(found, PredictedNumbers)
    return found


def _signs(found: PredictedNumbers, chains: int) -> dict[str, Any]:
    """The share of predictions on which chains disagree, the median effective sample size, and
    traces of one prediction; without a share for networks that are no chains.
    """
    draws = found.samples.double().reshape(chains, -1, found.samples.shape[1])
    if draws.shape[1] < 4:
        return {"r_hat_share": 0.0}
    trace = draws[:SHOWN_CHAINS, :: max(1, draws.shape[1] // DRAWS), 0]
    return {
        "r_hat_share": float((r_hat(draws) > LIMIT).double().mean()),
        "effective_size": float(effective_size(draws).median()),
        "trace": [[round(value, 2) for value in chain] for chain in trace.tolist()],
    }


def _row(
    found: PredictedNumbers, reference: PredictedNumbers, signs: dict[str, Any]
) -> dict[str, Any]:
    return {**scores(found), **signs, "apart": dict(distances(found, reference))}
