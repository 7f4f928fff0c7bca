"""Compare the predictions of two posteriors."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.coreset import Pseudocoreset, whole_data
from pseudocoreset.data import Data, Split
from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.engine.progress import ProgressLike, progress_of
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError, require_type
from pseudocoreset.evaluation.evaluate import predictions
from pseudocoreset.evaluation.metrics import Predicted, PredictedNumbers, Scores, scores
from pseudocoreset.evaluation.points import points_to_score
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.nets import NetLike
from pseudocoreset.posterior import Posterior, Sampler
from pseudocoreset.posterior.sample import CHAINS, chains_for, sample_posteriors
from pseudocoreset.posterior.weight import WeightLike

FULL = "full"
"""Stands for all training points."""
SHOWN = ("agreement", "total_variation", "rmse", "kl")
WHAT = "a posterior, a coreset, or 'full' for all training points"
Comparable = Posterior | Pseudocoreset | str


@dataclass(frozen=True)
class Comparison:
    """The comparison of two posteriors a and b.

    Args:
        figures: distances by name, also attributes: `.agreement`, `.total_variation`, `.kl`, …
        a: scores of a, the spread of its samples and how it was sampled
        b: the same for b
        split: the name of the split
        points: the number of points
    """

    figures: Scores
    a: dict[str, Any]
    b: dict[str, Any]
    split: str
    points: int

    def __getattr__(self, name: str) -> Any:
        """A figure by name."""
        if name.startswith("_") or name not in self.figures:
            raise AttributeError(f"a comparison of this task has no {name}")
        return self.figures[name]

    def __repr__(self) -> str:
        shown = [name for name in SHOWN if name in self.figures]
        return ", ".join(f"{name} {self.figures[name]:.4f}" for name in shown)

    def as_json(self) -> dict[str, Any]:
        """The content of the file that `compare --json` writes."""
        return {
            **self.figures,
            "a": self.a,
            "b": self.b,
            "split": self.split,
            "points": self.points,
        }


def compare(
    a: Comparable,
    b: Comparable,
    data: Data,
    sampler: Sampler | str = "tuned",
    *,
    chains: int = CHAINS,
    weight: WeightLike | None = None,
    net: NetLike | None = None,
    seed: int = 0,
    split: str = "test",
    other_data: bool = False,
    device: DeviceLike = "auto",
    progress: ProgressLike = True,
) -> Comparison:
    """Compare the mean predictive distributions of two posteriors, p_a and p_b.

    For classes, means over the points: `agreement`, the share at which both predict the same class;
    `total_variation`, ½ Σ_k |p_a(k) − p_b(k)|; `kl`, KL[p_a ‖ p_b] in nats; `agreement_on_errors`,
    the agreement where b is wrong. For regression: `rmse` between the means, and `kl` between
    normal distributions with the predictions' means and variances. `variance_ratio` is the
    geometric mean over the points of the samples' variance under a divided by that under b.

    Coresets are sampled first, a with `seed` and b with `seed + 1`. Comparing a coreset with itself
    therefore shows the effect of randomness alone.

    Args:
        a: a posterior, a coreset, or `full` for all training points
        b: the same
        data: the data set, whose test points are predicted
        sampler: for a coreset and `full`, a sampler or the name of a protocol
        chains: for a coreset and `full`, the number of chains
        weight: for a coreset, how many times each point counts
        net: for a coreset and `full`, the network; default: that of the coreset, or of the other
        seed: seed of the sampling
        split: `test` or `holdout`
        other_data: allow data that a coreset was not made from
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        progress: whether to show a progress bar
    """
    for name, what in (("a", a), ("b", b)):
        require_type(what, (Posterior, Pseudocoreset, str), name, WHAT)
    require_type(data, Data, "data", "a data set, such as load_data('digits')")
    given = sampler != "tuned" or net is not None or weight is not None
    if given and isinstance(a, Posterior) and isinstance(b, Posterior):
        raise UserError(
            "both are already sampled: leave `sampler`, `net` and `weight` out.", "sampler"
        )
    both = in_place_of_full(a, b, data, net)
    for each in both:
        points = points_to_score(each, data, split, other_data=other_data)
    posteriors: list[Posterior] = []
    for number, (what, each) in enumerate(zip((a, b), both, strict=True)):
        if isinstance(each, Pseudocoreset):
            work = chains_for(each, sampler, chains, 1.0 if what == FULL else weight)
            posteriors += sample_posteriors(
                each, work, net=net, seeds=[seed + number], device=device, progress=progress
            )
        else:
            posteriors.append(each)
    return _compared(posteriors, points, split, device, progress)


def in_place_of_full(
    a: Comparable, b: Comparable, data: Data, net: NetLike | None = None
) -> list[Posterior | Pseudocoreset]:
    """a and b, with the training points in the place of `full`, of the other's network.

    Args:
        a: a posterior, a coreset, or `full`
        b: the same
        data: the data set
        net: the network of `full`; default: the other's
    """
    found: list[Posterior | Pseudocoreset] = []
    for name, what, other in (("a", a, b), ("b", b, a)):
        if isinstance(what, Posterior | Pseudocoreset):
            found.append(what)
            continue
        if what != FULL:
            raise UserError(f"`{name}` is {printable(what)}: give {WHAT}.", name)
        if isinstance(other, Posterior | Pseudocoreset):
            own = other.make_net().spec if net is None else net  # a file's own code is refused
            found.append(whole_data(data, own, other.likelihood))
        elif net is None:
            raise UserError("`net` must be given if both are full.", "net")
        elif data.task == "regression":
            raise UserError(
                f"`{name}` is full, and so is the other: for regression one of them must be a "
                "posterior or a coreset, to set the noise.",
                name,
            )
        else:
            found.append(whole_data(data, net))
    return found


def _compared(
    posteriors: list[Posterior],
    points: Split,
    split: str,
    device: DeviceLike,
    progress: ProgressLike,
) -> Comparison:
    on_device = points.to(choose_device(device))
    found, described = [], []
    with progress_of(progress).task("predict", sum(map(len, posteriors))) as task:
        for posterior in posteriors:
            outputs = posterior.outputs(on_device.inputs, scaling=posterior.scaling, task=task)
            predicted = predictions(posterior, outputs, on_device.targets)
            found.append(predicted)
            described.append(_described(posterior, predicted))
    return Comparison(distances(found[0], found[1]), described[0], described[1], split, len(points))


def _described(posterior: Posterior, predicted: Predicted | PredictedNumbers) -> dict[str, Any]:
    """A posterior's scores, how its samples spread, and how they were drawn."""
    if isinstance(predicted, Predicted):
        log_samples = predicted.log_samples.double()
        information = Categorical(log_samples.shape[2]).predict(log_samples).mutual_information
        values = log_samples.exp()
        spread = {"mutual_information": float(information.mean())}
    else:
        values = predicted.samples.double()
        spread = {"epistemic_std": float(values.var(0, correction=0).mean().sqrt())}
    details = posterior.details
    return {
        **scores(predicted),
        **spread,
        "between_chains": between_chains(values, posterior.chains),
        "samples": len(posterior),
        "net": posterior.net,
        "seed": details["seed"],
        "protocol": {**details["protocol"], "temperature": details["temperature"]},
        "coreset": {"fingerprint": details["coreset"], **details.get("coreset_points", {})},
        "versions": details["versions"],
    }


def between_chains(values: Float[Tensor, "s n k"], chains: int) -> float | None:
    """The share of the samples' variance that lies between the means of chains.

    Var over all samples = mean of the variances within chains + variance of the chains' means;
    both are summed over points and columns. None for one chain, for chains of one sample, and
    where nothing varies.

    Args:
        values: what each sample predicts, one chain after another
        chains: how many chains there are
    """
    each = len(values) // chains
    if chains == 1 or each == 1:
        return None
    means = values.reshape(chains, each, *values.shape[1:]).mean(1)
    total = float(values.var(0, correction=0).sum())
    return float(means.var(0, correction=0).sum()) / total if total > 0 else None


def distances(a: Predicted | PredictedNumbers, b: Predicted | PredictedNumbers) -> Scores:
    """What compares two sets of predictions at the same points.

    Args:
        a: predictions of one posterior
        b: predictions of the other
    """
    if isinstance(a, Predicted) and isinstance(b, Predicted):
        return Scores(_of_classes(a, b))
    assert isinstance(a, PredictedNumbers)
    assert isinstance(b, PredictedNumbers)
    return Scores(_of_numbers(a, b))


def _of_classes(a: Predicted, b: Predicted) -> dict[str, float | None]:
    same = a.log_mean.argmax(1) == b.log_mean.argmax(1)
    wrong = b.log_mean.argmax(1) != b.labels
    apart = (a.probabilities - b.probabilities).abs().sum(1) / 2
    kl = (a.probabilities * (a.log_mean - b.log_mean)).sum(1)
    spread = [each.log_samples.double().exp() for each in (a, b)]
    return {
        "agreement": float(same.double().mean()),
        "total_variation": float(apart.mean()),
        "kl": float(kl.mean()),
        "agreement_on_errors": float(same[wrong].double().mean()) if bool(wrong.any()) else None,
        "variance_ratio": variance_ratio(*spread),
    }


def _of_numbers(a: PredictedNumbers, b: PredictedNumbers) -> dict[str, float | None]:
    away = (a.mean - b.mean).double()
    over = (a.std / b.std).double().square()
    kl = (over - 1 - over.log() + (away / b.std).square()) / 2
    return {
        "rmse": float(away.square().mean().sqrt()),
        "kl": float(kl.sum(1).mean()),
        "variance_ratio": variance_ratio(a.samples.double(), b.samples.double()),
    }


def variance_ratio(a: Float[Tensor, "s n k"], b: Float[Tensor, "r n k"]) -> float | None:
    """exp of the mean over points of log(v_a / v_b), v the samples' variance summed over columns.

    Points at which one of them does not vary are left out; None where all are.

    Args:
        a: what each sample of one posterior predicts
        b: what each sample of the other predicts
    """
    one, other = (each.var(0, correction=0).sum(1) for each in (a, b))
    vary = (one > 0) & (other > 0)
    if not bool(vary.any()):
        return None
    return float(torch.log(one[vary] / other[vary]).mean().exp())
