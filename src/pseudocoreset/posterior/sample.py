"""From a coreset to networks drawn from its posterior."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isfinite

import torch
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.engine.progress import Progress, ProgressLike, Task, progress_of
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.engine.text import printable
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError, require_type
from pseudocoreset.nets import Net, NetLike, Weights
from pseudocoreset.posterior.posterior import Posterior
from pseudocoreset.posterior.protocols import FULL_WEIGHT, PROTOCOLS, named_sampler, sampler_name
from pseudocoreset.posterior.sampler import Sampler
from pseudocoreset.posterior.sghmc import SGHMCRule
from pseudocoreset.training import FixedPoints, Training

LOOKS = 10
"""Points of the loss trace between two samples."""
AT_ONCE = 8
"""Chains side by side on a GPU, of which one alone leaves much idle."""
CHAINS = 4
"""Chains of a posterior that is kept."""


@dataclass(frozen=True)
class Chains:
    """How many chains, by which sampler, and how often each point counts."""

    sampler: Sampler
    chains: int
    weight: float

    @property
    def keeps(self) -> int:
        """Samples that a chain keeps."""
        return self.sampler.epochs // self.sampler.every


def chains_for(
    coreset: Pseudocoreset, sampler: Sampler | str, chains: int, weight: float | None
) -> Chains:
    """What `sample` is to do, checked.

    Args:
        coreset: the coreset
        sampler: a sampler, or the name of a protocol
        chains: chains of a posterior
        weight: how often each point counts; default: n/m in the protocol `bayes`, 1 elsewhere
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
        weight = full_weight(coreset) if full else 1.0
    if not 0 < weight < float("inf"):
        raise UserError(f"`weight` is {weight}: give a number above 0.", "weight")
    return Chains(complete, chains, weight)


def full_weight(coreset: Pseudocoreset) -> float:
    """n/m: with it, the coreset counts as much as the data it was made of."""
    if coreset.provenance.num_train is None:
        raise UserError(
            "the coreset does not say of how many training points it was made: give `weight`, "
            "their number divided by the points that networks see.",
            "weight",
        )
    return coreset.provenance.num_train / coreset.num_seen


def sample(
    coreset: Pseudocoreset,
    sampler: Sampler | str = "tuned",
    *,
    chains: int = CHAINS,
    weight: float | None = None,
    net: NetLike | None = None,
    seed: int = 0,
    device: DeviceLike = "auto",
    progress: ProgressLike = True,
) -> Posterior:
    """Draw networks from the posterior given `coreset`.

    Args:
        coreset: the coreset
        sampler: a sampler such as `pc.SGHMC()`, or a protocol: `tuned`, `paper` or `bayes`
        chains: chains from different starts; their samples are pooled
        weight: how often each point counts; default: n/m in the protocol `bayes`, 1 elsewhere
        net: the network; default: the one that the coreset was made with
        seed: seed of all randomness
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        progress: whether to show a progress bar
    """
    work = chains_for(coreset, sampler, chains, weight)
    (posterior,) = sample_posteriors(
        coreset, work, net=net, seeds=[seed], device=device, progress=progress
    )
    return posterior


def sample_posteriors(
    coreset: Pseudocoreset,
    work: Chains,
    *,
    net: NetLike | None = None,
    seeds: Sequence[int],
    device: DeviceLike = "auto",
    progress: ProgressLike = True,
) -> list[Posterior]:
    """A posterior for each of several seeds, with all their chains side by side.

    Args:
        coreset: the coreset
        work: what `chains_for` gave
        net: the network; default: the one that the coreset was made with
        seeds: a posterior is drawn for each
        device: where to run
        progress: whether to show a progress bar
    """
    place = choose_device(device)
    network = coreset.make_net(net)
    work.sampler.check_net(network)
    # Each network of a deep ensemble is trained on its own: as many as a chain would keep.
    of_a_seed = work.chains * (work.keeps if work.sampler.ensemble else 1)
    starts = [(seed, number) for seed in seeds for number in range(of_a_seed)]
    on_device = coreset.to(place)
    at_once, bars = chains_at_once(len(starts), network, place), progress_of(progress)
    while (sampled := _sampled(network, on_device, work, starts, at_once, bars)) is None:
        at_once //= 2
    lane, chains = sampled
    return [
        _pooled(network, coreset, lane, seed, chains[n * of_a_seed : (n + 1) * of_a_seed])
        for n, seed in enumerate(seeds)
    ]


def _sampled(
    net: Net,
    coreset: Pseudocoreset,
    work: Chains,
    starts: Sequence[tuple[int, int]],
    at_once: int,
    progress: Progress,
) -> "tuple[_Lane, list[_Chain]] | None":
    """A lane, and a chain from each start; None if memory is too small for so many at once."""
    device = coreset.inputs.device
    try:
        lanes = [_Lane(net, coreset, work, device) for _ in range(at_once)]
        chains: list[_Chain] = []
        with progress.task(sampler_name(work.sampler), len(starts) * work.keeps) as task:
            for first in range(0, len(starts), at_once):
                chains += _side_by_side(lanes, starts[first : first + at_once], work.sampler, task)
    except torch.OutOfMemoryError:
        if at_once == 1:
            raise
        return None
    return lanes[0], chains


def chains_at_once(num: int, net: Net, device: torch.device) -> int:
    """How many of so many chains run side by side."""
    return min(num, AT_ONCE if device.type == "cuda" and not net.draws else 1)


@dataclass
class _Chain:
    """What one chain gave."""

    samples: list[Weights] = field(default_factory=list)
    loss_trace: list[float] = field(default_factory=list)
    kinetic_temperature: float | None = None


def _side_by_side(
    lanes: Sequence["_Lane"], starts: Sequence[tuple[int, int]], sampler: Sampler, task: Task
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
                raise UserError(
                    f"the chain {number} of {sampler_name(sampler)} with seed {seed} diverged (its "
                    f"loss or a weight is not finite): lower `step` ({sampler.step}), or `prior` "
                    f"({sampler.prior}) or `temperature` ({lane.temperature:.3g}) where it is "
                    "large.",
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
    net: Net, coreset: Pseudocoreset, lane: "_Lane", seed: int, chains: Sequence[_Chain]
) -> Posterior:
    """The posterior of one seed out of its chains."""
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
                "sampler": sampler_name(lane.work.sampler),
                **lane.work.sampler.as_dict(),
                "chains": lane.work.chains,
                "weight": lane.work.weight,
            },
            "temperature": lane.temperature,
            "decay": lane.decay,
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


class _Lane:
    """Where chains run one after another, beside other lanes; its step is captured once.

    A chain's random numbers follow from its seed and number, whichever lane it runs in.
    """

    def __init__(
        self, net: Net, coreset: Pseudocoreset, work: Chains, device: torch.device
    ) -> None:
        assert coreset.likelihood is not None
        sampler, points = work.sampler, coreset.num_seen
        sampler = replace(sampler, step=sampler.step * coreset.likelihood.step_scale)
        self.work = work
        self.temperature = sampler.temperature_for(points)
        self.decay = sampler.decay(work.weight * points)
        self._net = net
        self._coreset = coreset
        self._points = points
        self._rng = Rng(device, 0)
        self._side = SideStream(device)
        self._rule = sampler.rule(points, work.weight)
        # Batches of one size, which a captured step needs: 500 points are 2 × 250, not 256 + 244.
        self._steps_an_epoch = ceil(points / sampler.batch)
        augmentation = Augmentation.parse(coreset.dsa, True) if sampler.dsa == "on" else None
        self._training = Training(
            net,
            self._rule,
            FixedPoints(coreset.seen_inputs, coreset.seen_targets),
            augmentation or Augmentation(()),
            coreset.likelihood,
            self._rng.device,
            batch=None if self._steps_an_epoch == 1 else ceil(points / self._steps_an_epoch),
        )
        self._steps = 0  # since the loss was looked at
        self._kinetic_steps = 0

    def begin(self, seed: int, number: int) -> None:
        """Start the chain of this number."""
        with self._side:
            self._rng.reseed(seed, "chain", number)
            self._training.start(self._net.init(self._rng.device))
        self._steps = self._kinetic_steps = 0

    def go(self, epochs: int) -> None:
        """Begin some more epochs, without waiting for them."""
        with self._side:
            if self._steps_an_epoch == 1:
                self._training.run(epochs)
            else:
                for _ in range(epochs):
                    self._training.set_order(self._order())
                    self._training.run(self._steps_an_epoch)
        self._steps += epochs * self._steps_an_epoch
        self._kinetic_steps += epochs * self._steps_an_epoch

    def mean_loss(self) -> float:
        """The mean over the steps since the last look; waits for them."""
        self._side.wait()
        loss = self._training.take("loss_sum") / self._steps
        self._steps = 0
        return loss

    def weights(self) -> Weights:
        """A copy of where the chain is."""
        return Weights(*(part.clone() for part in self._training.weights))

    def finish(self, weights: Weights) -> list[Weights]:
        """The samples that kept weights give."""
        work = self.work
        return work.sampler.finish(self._net, weights, self._coreset, work.weight, self._rng.device)

    def kinetic_temperature(self) -> float | None:
        """The temperature that the velocities since the first sample tell of."""
        if not isinstance(self._rule, SGHMCRule):
            return None
        mean_square = float(self._training.state["kinetic_sum"]) / self._kinetic_steps
        return self._rule.kinetic_temperature(mean_square)

    def forget_kinetic(self) -> None:
        """Begin to gather the velocities anew."""
        if isinstance(self._rule, SGHMCRule):
            self._training.take("kinetic_sum")
        self._kinetic_steps = 0

    def _order(self) -> Tensor:
        generator = self._rng.device
        return torch.randperm(self._points, generator=generator, device=generator.device)
