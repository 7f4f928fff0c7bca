"""From a coreset to networks drawn from its posterior."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite

import torch

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.device import DeviceLike
from pseudocoreset.engine.progress import SILENT_TASK, ProgressLike, Task, progress_of
from pseudocoreset.engine.text import printable
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import DivergedError, UserError, require_type
from pseudocoreset.nets import Net, NetLike, Weights
from pseudocoreset.posterior.lane import Chains, Lane
from pseudocoreset.posterior.posterior import Posterior
from pseudocoreset.posterior.protocols import FULL_WEIGHT, PROTOCOLS, named_sampler, sampler_name
from pseudocoreset.posterior.sampler import Sampler
from pseudocoreset.posterior.weight import PointWeights, WeightLike, full_weight
from pseudocoreset.scale import Executor, SerialExecutor
from pseudocoreset.scale import Task as Work

LOOKS = 10
"""Points of the loss trace between two samples."""
AT_ONCE = 8
"""Chains side by side on a GPU, of which one alone leaves much idle."""
CHAINS = 4
"""Chains of a posterior that is kept."""
Start = tuple[int, int]
"""Seed and number of a chain."""


@dataclass
class _Chain:
    """What one chain gave."""

    samples: list[Weights] = field(default_factory=list)
    loss_trace: list[float] = field(default_factory=list)
    kinetic_temperature: float | None = None


def chains_for(
    coreset: Pseudocoreset, sampler: Sampler | str, chains: int, weight: WeightLike | None
) -> Chains:
    """What `sample` is to do, checked.

    Args:
        coreset: the coreset
        sampler: a sampler, or the name of a protocol
        chains: chains of a posterior
        weight: how often each point counts; default: n/m in the protocol `bayes`, or n_c/m_c for a
            point of class c if classes differ in it; 1 elsewhere
    """
    require_type(coreset, Pseudocoreset, "coreset", "a coreset, such as distill gives")
    advice = f"a sampler, such as SGHMC(), or one of the protocols {', '.join(PROTOCOLS)}"
    require_type(sampler, (Sampler, str), "sampler", advice)
    if isinstance(sampler, str) and sampler not in PROTOCOLS:
        raise UserError(f"`sampler` is {printable(sampler)}: give {advice}.", "sampler")
    if chains < 1:
        raise UserError(f"`chains` is {chains}: give 1 or more.", "chains")
    full = isinstance(sampler, str) and sampler in FULL_WEIGHT
    complete = named_sampler(sampler) if isinstance(sampler, str) else sampler.resolved({})
    if weight is None:
        weight = full_weight(coreset) if full else _once(coreset, complete)
    points = weight if isinstance(weight, PointWeights) else PointWeights(weight)
    if not 0 < points.mean < float("inf"):
        raise UserError(f"`weight` is {points.mean}: give a number above 0.", "weight")
    return Chains(complete, chains, points)


def _once(coreset: Pseudocoreset, sampler: Sampler) -> float:
    """Weight 1, with a warning where the posterior of the data was probably meant."""
    known = coreset.provenance.num_train
    if getattr(sampler, "temperature", None) == 1.0 and known and known > coreset.num_seen:
        warnings.warn(
            f"at temperature 1, the {coreset.num_seen:,} points of the coreset count once each, "
            f"so the prior outweighs them. Give `weight` {known / coreset.num_seen:g} for the "
            f"posterior of the {known:,} training points, or 1 for this one.",
            RuntimeWarning,
            stacklevel=4,
        )
    return 1.0


def sample(
    coreset: Pseudocoreset,
    sampler: Sampler | str = "tuned",
    *,
    chains: int = CHAINS,
    weight: WeightLike | None = None,
    net: NetLike | None = None,
    seed: int = 0,
    device: DeviceLike = "auto",
    executor: Executor | None = None,
    progress: ProgressLike = True,
) -> Posterior:
    """Draw networks from the posterior given `coreset`.

    Args:
        coreset: the coreset
        sampler: a sampler such as `pc.SGHMC()`, or a protocol: `tuned`, `paper` or `bayes`
        chains: chains from different starts; their samples are pooled
        weight: how often each point counts; default: n/m in the protocol `bayes`, or n_c/m_c for a
            point of class c if classes differ in it; 1 elsewhere
        net: the network; default: the one that the coreset was made with
        seed: seed of all randomness
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        executor: where chains run, such as `pc.ProcessExecutor(4)`; default: here
        progress: whether to show a progress bar
    """
    work = chains_for(coreset, sampler, chains, weight)
    (posterior,) = sample_posteriors(
        coreset, work, net=net, seeds=[seed], device=device, executor=executor, progress=progress
    )
    return posterior


def sample_posteriors(
    coreset: Pseudocoreset,
    work: Chains,
    *,
    net: NetLike | None = None,
    seeds: Sequence[int],
    device: DeviceLike = "auto",
    executor: Executor | None = None,
    progress: ProgressLike = True,
) -> list[Posterior]:
    """A posterior for each of several seeds, with all their chains side by side.

    Args:
        coreset: the coreset
        work: what `chains_for` gave
        net: the network; default: the one that the coreset was made with
        seeds: a posterior is drawn for each
        device: where to run
        executor: where chains run; default: here
        progress: whether to show a progress bar
    """
    place = (executor or SerialExecutor()).device(device)
    network = coreset.make_net(net)
    work.sampler.check_net(network)
    # Each network of a deep ensemble is trained on its own: as many as a chain would keep.
    of_a_seed = work.chains * (work.keeps if work.sampler.ensemble else 1)
    starts = [(seed, number) for seed in seeds for number in range(of_a_seed)]
    bar = progress_of(progress).task(sampler_name(work.sampler), len(starts) * work.keeps)
    with bar as task:
        if executor is None:
            chains = _run_chains(network, coreset.to(place), work, starts, task)
        else:
            chains = _run_elsewhere(executor, network, coreset, work, starts, place, task)
    return [
        _pooled(network, coreset, work, seed, chains[n * of_a_seed : (n + 1) * of_a_seed])
        for n, seed in enumerate(seeds)
    ]


def _run_chains(
    net: Net, coreset: Pseudocoreset, work: Chains, starts: Sequence[Start], task: Task
) -> list[_Chain]:
    """A chain from each start: as many at once as fill the device, fewer if memory is small."""
    device = coreset.inputs.device
    at_once = chains_at_once(len(starts), net, device)
    chains: list[_Chain] = []
    while len(chains) < len(starts):
        try:
            lanes = [Lane(net, coreset, work, device) for _ in range(at_once)]
            while rest := starts[len(chains) :]:
                chains += _side_by_side(lanes, rest[:at_once], work.sampler, task)
        except torch.OutOfMemoryError:
            if at_once == 1:
                raise
            at_once //= 2
    return chains


def _run_elsewhere(
    executor: Executor,
    net: Net,
    coreset: Pseudocoreset,
    work: Chains,
    starts: Sequence[Start],
    device: torch.device,
    task: Task,
) -> list[_Chain]:
    """A chain from each start; one is a task, or as many as fill a GPU."""
    shared = executor.put((net, coreset.to(torch.device("cpu")), work, device))
    size = min(chains_at_once(len(starts), net, device), ceil(len(starts) / executor.slots))
    gpus = 1.0 if device == torch.device("cuda") else 0.0
    parts = [starts[first : first + size] for first in range(0, len(starts), size)]
    todo = [
        Work(f"chain {part[0][1]} with seed {part[0][0]}", sample_part, (shared, part), gpus)
        for part in parts
    ]
    found: dict[Start, _Chain] = {}
    for done, chains in executor.run(todo):
        for start, chain in zip(done.arguments[1], chains, strict=True):
            found[start] = chain
            for _ in range(work.keeps):
                task.advance(loss=chain.loss_trace[-1])
    return [found[start] for start in starts]


def sample_part(
    shared: tuple[Net, Pseudocoreset, Chains, torch.device], starts: Sequence[Start]
) -> list[_Chain]:
    """What a task does: run some chains.

    Args:
        shared: what all chains share
        starts: seed and number of each chain
    """
    net, coreset, work, device = shared
    chains = _run_chains(net, coreset.to(device), work, starts, SILENT_TASK)
    for chain in chains:
        chain.samples = [Weights(*(part.cpu() for part in each)) for each in chain.samples]
    return chains


def chains_at_once(num: int, net: Net, device: torch.device) -> int:
    """How many of so many chains run side by side."""
    return min(num, AT_ONCE if device.type == "cuda" and not net.draws else 1)


def _side_by_side(
    lanes: Sequence[Lane], starts: Sequence[Start], sampler: Sampler, task: Task
) -> list[_Chain]:
    """One chain from each start, each in a lane of its own."""
    busy = list(zip(lanes, starts, strict=False))
    chains = [_Chain() for _ in busy]
    for lane, start in busy:
        lane.begin(*start)
    if sampler.keeps_first:
        for lane, _ in busy:
            lane.go(1)
        for (lane, _), chain in zip(busy, chains, strict=True):
            chain.loss_trace.append(lane.mean_loss())
            chain.samples.append(lane.weights())
    part = ceil(sampler.every / LOOKS)
    for kept in range(sampler.epochs // sampler.every):
        for done in range(0, sampler.every, part):
            for lane, _ in busy:
                lane.go(min(part, sampler.every - done))
            for (lane, _), chain in zip(busy, chains, strict=True):
                chain.loss_trace.append(lane.mean_loss())
        for (lane, (seed, number)), chain in zip(busy, chains, strict=True):
            weights = lane.weights()
            if not isfinite(chain.loss_trace[-1]) or not bool(weights.params.isfinite().all()):
                raise DivergedError(
                    f"the chain {number} of {sampler_name(sampler)} with seed {seed} diverged (its "
                    f"loss or a weight is not finite): lower `step` ({sampler.step}), or `prior` "
                    f"({sampler.prior}) or `temperature` ({lane.temperature:.3g}) if it is large.",
                    "step",
                )
            if sampler.ensemble:  # of a deep ensemble's network, the end alone
                chain.samples.clear()
            chain.samples.append(weights)
            temperature = lane.kinetic_temperature()
            if kept == 0:
                lane.forget_kinetic()  # what comes before the first sample is no sign
            else:
                chain.kinetic_temperature = temperature
            task.advance(loss=chain.loss_trace[-1])
    for (lane, _), chain in zip(busy, chains, strict=True):
        chain.samples = [each for kept in chain.samples for each in lane.finish(kept)]
    return chains


def _pooled(
    net: Net, coreset: Pseudocoreset, work: Chains, seed: int, chains: Sequence[_Chain]
) -> Posterior:
    """The posterior of one seed out of its chains."""
    scaled = work.scaled_sampler(coreset)
    samples = [sample for chain in chains for sample in chain.samples]
    kinetic = [chain.kinetic_temperature for chain in chains]
    return Posterior(
        net.spec,
        torch.stack([sample.params for sample in samples]),
        torch.stack([sample.buffers for sample in samples]),
        coreset.class_names,
        coreset.scaling,
        coreset.input_shape,
        likelihood=coreset.likelihood,
        target_scaling=coreset.target_scaling,
        columns=coreset.columns,
        network=net,
        details={
            "protocol": {
                "sampler": sampler_name(work.sampler),
                **work.sampler.as_dict(),
                "chains": work.chains,
                **work.weight.as_json(),
            },
            "temperature": scaled.temperature_for(coreset.num_seen),
            "decay": scaled.decay(work.weight.mean * coreset.num_seen),
            "seed": seed,
            "coreset": coreset.fingerprint,
            "versions": versions(),
            "net_source": net.source_digest,
            "train_digest": coreset.provenance.train_digest,
            "test_digest": coreset.provenance.test_digest,
            "coreset_provenance": coreset.provenance.as_json(),
            "coreset_points": {
                "images": len(coreset),
                "ipc": coreset.ipc,
                "seen": coreset.num_seen,
                "stored_numbers": coreset.stored_numbers,
                "stored_bytes": coreset.stored_bytes,
            },
            "loss_trace": [chain.loss_trace for chain in chains],
            "kinetic_temperature": [value for value in kinetic if value is not None],
        },
    )
