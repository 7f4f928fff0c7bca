"""What posteriors predict for the test images, kept in the work folder: each is sampled once."""

import time
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.files import open_tensors, write_tensors
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.compare import distances
from pseudocoreset.evaluation.convergence import convergence
from pseudocoreset.evaluation.metrics import Predicted, Scores
from pseudocoreset.evaluation.points import points_to_score
from pseudocoreset.posterior import Sampler, named_sampler, sample
from pseudocoreset.reproduce.measure_cell import Work

KIND = "predictions"
EPOCHS = 1000
MOST_STEPS = 9800
"""Of a chain: 50 epochs over 50,000 images. Larger sets have fewer epochs, so that none has more
steps."""
KEPT = 10
"""Samples of a chain."""


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


def sampler_for(points: int) -> Sampler:
    """The default protocol, with as many epochs as `MOST_STEPS` allow.

    Args:
        points: points that networks see
    """
    usual = named_sampler("tuned")
    fitting = MOST_STEPS // ceil(points / usual.batch)
    epochs = KEPT * max(min(EPOCHS, fitting) // KEPT, 1)
    return replace(usual, epochs=epochs, every=epochs // KEPT)


def kept_predictions(name: str, coreset: Pseudocoreset, seed: int, work: Work) -> Kept:
    """What the posterior of a coreset predicts: read, or sampled and written.

    Args:
        name: what to call the file
        coreset: the points
        seed: of the chains
        work: what cells share
    """
    chains, sampler = work.options.chains, sampler_for(coreset.num_seen)
    points = points_to_score(coreset, work.data, work.scope.split)
    path = work.folder / "fidelity" / f"{name}-{chains}-chains-seed{seed}.safetensors"
    asked = {
        "coreset": coreset.fingerprint,
        "data": work.data.fingerprint,
        "sampler": sampler.as_dict(),
    }
    if path.exists():
        return _read(path, asked, chains, points.targets)
    began = time.perf_counter()
    posterior = sample(
        coreset,
        sampler,
        chains=chains,
        seed=seed,
        device=work.device,
        executor=work.executor,
        progress=work.progress,
    )
    place = choose_device(work.device)
    outputs = posterior.outputs(points.inputs.to(place), scaling=posterior.scaling)
    predicted = Predicted(outputs.log_softmax(2).cpu(), points.targets.cpu())
    signs = convergence([posterior], predicted)
    details = {
        **asked,
        "net": posterior.net,
        "temperature": posterior.details["temperature"],
        "versions": posterior.details["versions"],
        "seed": seed,
        "chains": chains,
        "seen": coreset.num_seen,
        "convergence": signs and {k: v for k, v in signs.items() if k not in ("traces", "warning")},
        "seconds": time.perf_counter() - began,
        "device": device_name(place),
    }
    write_tensors(path, {"log_samples": predicted.log_samples}, {"kind": KIND, "details": details})
    return Kept(predicted, chains, details)


def _read(path: Path, asked: dict[str, Any], chains: int, labels: Any) -> Kept:
    with open_tensors(path, KIND) as (tensors, metadata):
        details = metadata["details"]
        if {name: details[name] for name in asked} != asked:
            raise UserError(
                f"{path} was made with other points or another sampler: delete it, or give "
                "another `work`.",
                "work",
            )
        logs = tensors.get_tensor("log_samples")
        if logs.ndim != 3 or logs.shape[1] != len(labels) or len(logs) % chains:
            raise ValueError("its samples do not fit the data")
        return Kept(Predicted(logs, labels.cpu()), chains, details)
