"""Predictions of posteriors for the test images, stored in the work folder."""

import time
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import torch

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Split
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.files import lock_file, locked, open_tensors, write_tensors
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.compare import distances
from pseudocoreset.evaluation.convergence import convergence
from pseudocoreset.evaluation.metrics import Predicted, Scores
from pseudocoreset.evaluation.points import points_to_score
from pseudocoreset.posterior import Posterior, Sampler, named_sampler, sample
from pseudocoreset.posterior.weight import PointWeights, weights_for
from pseudocoreset.reproduce.cells import TUNED
from pseudocoreset.reproduce.measure_cell import Work

KIND = "predictions"
EPOCHS = 1000
MOST_STEPS = 9800
"""Of a chain: 50 epochs over 50,000 images. Larger sets have fewer epochs, so that none has more
steps."""
MIXING_STEPS = 11_760
"""Of each chain at temperature 1: 60 epochs over 50,000 images."""
KEPT = 10
"""Samples of a chain."""
DROPPED = 5
"""More samples, at the beginning of a chain at temperature 1, which are dropped."""
MIXING = {"temperature": 1.0, "prior": 100.0}
"""With N(0, 1/τ) at temperature 1, weights forget where they began in αn/(ητ) steps: 1,670 of
50,000 images at τ = 100, and 167,000 at τ = 1."""
CHANGES: dict[str, dict[str, Any]] = {
    "tuned": {},
    "bayes": MIXING,
    "plain": {**MIXING, "dsa": "off"},
}
"""What a cell's protocol changes of the default one."""


@dataclass(frozen=True)
class Kept:
    """Predictions of a posterior, its chains one after another, and how it was sampled."""

    predicted: Predicted
    chains: int
    details: dict[str, Any]

    def halves(self) -> Scores:
        """The first half of each chain beside its second half."""
        logs = self.predicted.log_samples
        steps = logs.reshape(self.chains, -1, *logs.shape[1:])
        half = steps.shape[1] // 2
        first, second = (
            Predicted(part.flatten(0, 1), self.predicted.labels)
            for part in (steps[:, :half], steps[:, -half:])
        )
        return distances(first, second)


def sampler_for(points: int, protocol: str) -> tuple[Sampler, int]:
    """How a posterior is sampled, and how many samples at a chain's beginning are dropped.

    The default protocol has 1,000 epochs, or as many as `MOST_STEPS` allow. At temperature 1 all
    chains make `MIXING_STEPS`, as nearly as whole epochs can.

    Args:
        points: points that networks see
        protocol: of the cell
    """
    usual = replace(named_sampler("tuned"), **CHANGES[protocol])
    steps_an_epoch = ceil(points / usual.batch)
    epochs, dropped = min(EPOCHS, MOST_STEPS // steps_an_epoch), 0
    if protocol != TUNED:
        epochs, dropped = MIXING_STEPS // steps_an_epoch, DROPPED
    every = max(epochs // (KEPT + dropped), 1)
    return replace(usual, epochs=every * (KEPT + dropped), every=every), dropped


def kept_predictions(
    name: str, coreset: Pseudocoreset, seed: int, work: Work, protocol: str = TUNED
) -> Kept:
    """What the posterior of a coreset predicts: read, or sampled and written.

    Processes that need the same wait for the one that samples it.

    Args:
        name: what to call the file
        coreset: the points
        seed: of the chains
        work: settings and stored predictions of all cells
        protocol: of the cell
    """
    chains, (sampler, dropped) = work.options.chains, sampler_for(coreset.num_seen, protocol)
    train = work.data.train
    weight = PointWeights(1.0)
    if protocol != TUNED:
        weight = weights_for(coreset, len(train), train.class_counts(work.data.classes))
    asked = {
        "coreset": coreset.fingerprint,
        "data": work.data.fingerprint,
        "sampler": sampler.as_dict(),
        **weight.as_json(),
        "dropped": dropped,
    }
    points = points_to_score(coreset, work.data, work.scope.split)
    by = "" if protocol == TUNED else f"-{protocol}"
    path = work.folder / "fidelity" / f"{name}{by}-{chains}-chains-seed{seed}.safetensors"
    with lock_file(path.with_suffix(".lock")) as lock, locked(lock, 0, wait=True):
        if not path.exists():
            _sample(path, coreset, sampler, weight, asked, seed, points, work)
        return _read(path, asked, chains, points.targets)


def _sample(
    path: Path,
    coreset: Pseudocoreset,
    sampler: Sampler,
    weight: PointWeights,
    asked: dict[str, Any],
    seed: int,
    points: Split,
    work: Work,
) -> None:
    began = time.perf_counter()
    whole = sample(
        coreset,
        sampler,
        chains=work.options.chains,
        weight=weight,
        seed=seed,
        device=work.device,
        executor=work.executor,
        progress=work.progress,
    )
    posterior, place = without_first(whole, asked["dropped"]), choose_device(work.device)
    outputs = posterior.outputs(points.inputs.to(place), scaling=posterior.scaling)
    predicted = Predicted(outputs.log_softmax(2).cpu(), points.targets.cpu())
    signs = convergence([posterior], predicted)
    details = {
        **asked,
        "net": posterior.net,
        "temperature": posterior.details["temperature"],
        "kinetic_temperature": posterior.details["kinetic_temperature"],
        "steps": sampler.epochs * ceil(coreset.num_seen / sampler.batch),
        "versions": posterior.details["versions"],
        "seed": seed,
        "chains": work.options.chains,
        "seen": coreset.num_seen,
        "convergence": signs and {k: v for k, v in signs.items() if k not in ("traces", "warning")},
        "seconds": time.perf_counter() - began,
        "device": device_name(place),
    }
    write_tensors(path, {"log_samples": predicted.log_samples}, {"kind": KIND, "details": details})


def without_first(posterior: Posterior, number: int) -> Posterior:
    """The same without the first samples of each chain.

    Args:
        posterior: its chains are of the same length
        number: how many samples to drop
    """
    traces, chains = posterior.details["loss_trace"], posterior.chains
    each = len(posterior) // chains
    kept = torch.arange(len(posterior)).reshape(chains, each)[:, number:].flatten()
    later = [trace[len(trace) * number // each :] for trace in traces]
    return replace(
        posterior,
        params=posterior.params[kept],
        buffers=posterior.buffers[kept],
        details={**posterior.details, "loss_trace": later},
    )


def _read(path: Path, asked: dict[str, Any], chains: int, labels: Any) -> Kept:
    with open_tensors(path, KIND) as (tensors, metadata):
        details = metadata["details"]
        if {name: details[name] for name in asked if name in details} != asked:
            raise UserError(
                f"{path} was made with other points or another sampler: delete it, or give "
                "another `work`.",
                "work",
            )
        logs = tensors.get_tensor("log_samples")
        if logs.ndim != 3 or logs.shape[1] != len(labels) or len(logs) % chains:
            raise ValueError("its samples do not fit the data")
        return Kept(Predicted(logs, labels.cpu()), chains, details)
