"""An MLP on the digits: coresets of several methods, with hard, learned and the experts' labels."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pseudocoreset.coreset import Pseudocoreset, whole_data
from pseudocoreset.data import Data, load_data
from pseudocoreset.distillation import distill
from pseudocoreset.engine.parse import Shape
from pseudocoreset.evaluation.compare import distances
from pseudocoreset.evaluation.evaluate import predictions
from pseudocoreset.evaluation.metrics import scores
from pseudocoreset.experts import ExpertOptions, ExpertStore, train_experts
from pseudocoreset.methods import VBPC, BPCContrastive, BPCForwardKL, Method
from pseudocoreset.posterior import SGHMC, named_sampler, sample
from pseudocoreset.reproduce.fidelity.predictions import without_first
from pseudocoreset.reproduce.small.exact_kl import FORWARD, REVERSE, Descent, along_kl
from pseudocoreset.reproduce.small.posterior import Effort, Found, by_hmc, log_posterior, signs_of
from pseudocoreset.reproduce.small.regression import METHOD
from pseudocoreset.reproduce.small.study import REFERENCE, Study

DATA, NET, PRIOR = "digits", "mlp:depth=1,width=20", 1.0
SIZES = (2, 10)
REAL_SIZES = (1, 2, 5, 10, 20, 40)
"""Real images per class, for a control with the same accuracy."""
EXPERTS = ExpertOptions(num=10, epochs=60, lr=0.1, batch=64, dsa="off")
EFFORT = Effort(chains=4)
SAMPLER_EPOCHS, DRAWS, DROPPED = 2400, 60, 20
"""Of a chain of SGHMC: epochs, samples, and how many of these are dropped at first."""
QUIET: dict[str, Any] = {"device": "cpu", "progress": False}


@dataclass(frozen=True)
class Made:
    """A way to make a coreset.

    Args:
        title: what it is called
        method: its method
        options: of `distill`
        lr_images: for one image per class; the gradient is that of a mean over the images
        after: the way whose coreset this one starts from; default: real images
    """

    title: str
    method: Method
    options: dict[str, Any] = field(default_factory=dict)
    lr_images: float | None = None
    after: str | None = None


_SGD = {"steps": 300, "batch": 1000}
_MOVED = {"batch": 1000, "optimizer": "adam", "momentum": 0.9}
_ADAM = {**_MOVED, "steps": 1000, "lr_images": 0.003}
_CHAINS = BPCContrastive(
    chains=16,
    chain_steps=20,
    warm_up=500,
    lr_chains=0.2,
    friction=0.02,
    prior=PRIOR,
    real_batch=10_000,
)
"""Chains that forget where they were within a few updates; batches of all real images."""
_LEARNED = {"labels": "learned", "lr_labels": 0.02}
MADE = {
    "random+experts": Made(
        "random real images, experts' labels", METHOD, {"labels": "experts", "steps": 0}
    ),
    "fbpc": Made("FBPC", METHOD, _SGD, 10.0),
    "fbpc+experts": Made("FBPC, experts' labels", METHOD, {**_SGD, "labels": "experts"}, 10.0),
    "bpc-fkl": Made("BPC-fKL", BPCForwardKL(), _SGD, 3.0),
    "bpc-cd": Made("BPC-CD", _CHAINS, {**_MOVED, "steps": 600}, 0.001),
    "vbpc": Made("VBPC, learned labels", VBPC(), {**_ADAM, **_LEARNED}),
    "vbpc+hard": Made("VBPC, hard labels", VBPC(), _ADAM),
    "vbpc-after-fbpc": Made(
        "VBPC from FBPC's images, learned labels", VBPC(), {**_ADAM, **_LEARNED}, after="fbpc"
    ),
    "fbpc-after-vbpc": Made("FBPC from VBPC's images", METHOD, _SGD, 10.0, after="vbpc+hard"),
}
DESCENT = Descent()
EXACT = {
    "forward-kl": ("forward KL, samples by HMC", FORWARD),
    "reverse-kl": ("reverse KL, samples by HMC", REVERSE),
}
"""Ways down a KL between both posteriors, with exact chains: title and direction."""
OF_ALL = {
    "hmc": "all images, other chains",
    "bayes": "all images, SGHMC, protocol `bayes`",
    "bayes-friction": "the same with friction 0.03",
    "tuned": "all images, SGHMC, protocol `tuned`",
}
SAMPLERS = {
    "bayes": named_sampler("bayes"),
    "bayes-friction": named_sampler("bayes", SGHMC(friction=0.03)),
    "tuned": named_sampler("tuned"),
}


def names() -> list[str]:
    """The rows of a trial beside the reference."""
    made = [f"{name}/{size}" for size in SIZES for name in (*MADE, *EXACT)]
    return [*made, *(f"random/{size}" for size in REAL_SIZES), *OF_ALL]


def _shape(name: str) -> Shape:  # noqa: ARG001 (all rows are alike)
    """What is stored of a row."""
    return {
        **dict.fromkeys(("accuracy", "nll", "ece", "r_hat_share", "effective_size"), float),
        "apart": {
            **dict.fromkeys(("agreement", "total_variation", "kl"), float),
            "variance_ratio": int | float | None,
        },
    }


def measure_trial(seed: int, missing: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Coresets, and samplers on all images, beside HMC on all images: name and row, one by one.

    Args:
        seed: of experts, images and chains
        missing: the rows to measure beside the reference
    """
    data = load_data(DATA)
    everything = whole_data(data, NET)
    reference = _by_hmc(everything, data, seed, REFERENCE)
    yield REFERENCE, _row(reference, reference)
    with TemporaryDirectory() as folder:
        experts = train_experts(data, NET, Path(folder) / "experts", EXPERTS, seed=seed, **QUIET)
        for name in missing:
            if name in SAMPLERS:
                found = _by_sampler(everything, data, seed, name)
            else:
                points = everything
                if name.partition("/")[0] in EXACT:
                    points = _along_kl(name, data, reference, seed)
                elif name != "hmc":
                    points = _made(name, data, experts, seed)
                found = _by_hmc(points, data, seed, name)
            yield name, _row(found, reference)


def _made(name: str, data: Data, experts: ExpertStore, seed: int) -> Pseudocoreset:
    """The coreset of a row."""
    method, _, size = name.partition("/")
    asked: dict[str, Any] = {"ipc": int(size), "seed": seed, "recipe": "paper", **QUIET}
    if method == "random":
        return distill(data, (), method, net=NET, **asked)
    how = MADE[method]
    if how.lr_images is not None:
        asked["lr_images"] = how.lr_images * int(size)
    if how.after is not None:
        asked["init"] = _made(f"{how.after}/{size}", data, experts, seed)
    if how.method.needs_experts:
        return distill(data, experts, how.method, **asked, **how.options)
    return distill(data, (), how.method, net=NET, dsa="off", **asked, **how.options)


def _along_kl(name: str, data: Data, reference: Found, seed: int) -> Pseudocoreset:
    """The coreset of a row that follows the gradient of a KL, from random images."""
    way, _, size = name.partition("/")
    start = distill(data, (), "random", ipc=int(size), net=NET, seed=seed, recipe="paper", **QUIET)
    of_data = log_posterior(whole_data(data, NET), 1.0, PRIOR)
    assert reference.weights is not None
    direction, samples = EXACT[way][1], reference.weights
    return along_kl(direction, start, of_data, samples, DESCENT, PRIOR, seed)


def _by_hmc(coreset: Pseudocoreset, data: Data, seed: int, name: str) -> Found:
    return by_hmc(coreset, data, PRIOR, EFFORT, seed, STUDY.name, name)


def _by_sampler(everything: Pseudocoreset, data: Data, seed: int, name: str) -> Found:
    """The package's own chains."""
    sampler = replace(
        SAMPLERS[name], epochs=SAMPLER_EPOCHS, every=SAMPLER_EPOCHS // DRAWS, dsa="off"
    )
    whole = sample(everything, sampler, chains=EFFORT.chains, weight=1.0, seed=seed, **QUIET)
    posterior = without_first(whole, DROPPED)
    outputs = posterior.outputs(data.test.inputs, scaling=posterior.scaling)
    found = predictions(everything, outputs, data.test.targets)
    return Found(found, posterior.chains, signs_of(found, posterior.chains))


def _row(found: Found, reference: Found) -> dict[str, Any]:
    """Scores, signs of convergence, and how far it is from the reference."""
    apart = dict(distances(found.predicted, reference.predicted))
    return {**scores(found.predicted), **found.signs, "apart": apart}


def _settings() -> dict[str, Any]:
    made = {
        name: {**asdict(how), "method": how.method.name, **how.method.as_dict()}
        for name, how in MADE.items()
    }
    made |= {name: {**asdict(DESCENT), "direction": way} for name, (_, way) in EXACT.items()}
    return {"net": NET, "prior": PRIOR, "effort": asdict(EFFORT), "made": made}


STUDY = Study("classification", DATA, names, _shape, measure_trial, _settings)
