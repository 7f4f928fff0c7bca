"""Estimate disk, memory and time of a command by running a few of its steps.

The steps are those of the command itself, on part of the data; what takes long but once (kernels
chosen, compiled and captured, files read) is counted separately from what each step takes.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from statistics import fmean

import torch

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data, Split
from pseudocoreset.distillation import SLOTS, Job, run
from pseudocoreset.engine.device import DeviceLike, choose_device, device_name
from pseudocoreset.engine.files import open_tensors
from pseudocoreset.engine.progress import SILENT, Progress
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.experts import ExpertOptions, ExpertStore, train_experts
from pseudocoreset.experts.train import experts_at_once
from pseudocoreset.methods import method_name
from pseudocoreset.nets import Net, NetLike, default_net, make_net
from pseudocoreset.plan.measure import (
    Enough,
    PeakMemory,
    Stopwatch,
    seconds_a_step,
    stand_in_experts,
    synchronize,
)
from pseudocoreset.plan.record import Plan
from pseudocoreset.posterior import Sampler, sampler_name
from pseudocoreset.posterior.weight import WeightLike
from pseudocoreset.predictor import TEST_BATCH

BUDGET_S = 5.0
"""About how many seconds steps are measured for, after the first."""
LEAST_UPDATES = 3
FEW_STEPS = 4
"""Steps of an expert's epoch where it is measured first."""
EPOCH_S = 0.2
"""Seconds of an epoch that is long enough to measure."""
MANY_EPOCHS = 100
"""No more epochs of an expert than this are measured."""
FEW_EPOCHS = 10
"""Epochs of a chain where it is measured first."""
FROZEN = 1e-9
"""A learning rate of images that changes nothing."""


def plan_experts(
    data: Data, net: NetLike, settings: ExpertOptions, *, device: DeviceLike = "auto"
) -> Plan:
    """Estimate the cost of experts from a few training steps."""
    settings = settings.suited_to(data)
    place, network = choose_device(device), make_net(net, **data.shape)
    peak = PeakMemory(place)
    short = _ShortTrainings(data, network, net, settings, place)
    cold, expert_s = short.once_and_each()
    first_s, measured = short.epoch_s(short.few, BUDGET_S / 5)
    epoch_s, step_s = first_s, first_s / short.few
    # Steps may be so fast that a few take no longer than what comes between epochs.
    many = min(short.steps, max(short.few, int(EPOCH_S / step_s)))
    if many > short.few:
        epoch_s, measured = short.epoch_s(many, BUDGET_S)
        step_s = seconds_a_step((short.few, first_s), (many, epoch_s))
    # Begun and stored, and scored in the end by forward passes, which are a third of a step.
    unscored = len(data.test) - len(short.part(short.few).test)
    around = max(0.0, expert_s - first_s) + unscored / short.batch * step_s / 3
    kept = settings.epochs - settings.from_epoch + 1
    snapshot = network.num_params * (2 if settings.half else 4) + network.num_buffers * 4
    # On a CPU the peak is the process's, which holds an expert's snapshots, and once more to write.
    whole = (network.num_params + network.num_buffers) * 4
    kept_bytes = 0 if place.type == "cuda" else kept * (whole + snapshot)
    return Plan(
        f"experts of {network.spec}",
        {network.spec: network.num_params},
        disk_bytes=settings.num * kept * snapshot,
        peak_bytes=peak.whole() + _left_out(data, short.part(many), place) + kept_bytes,
        once_s=cold + settings.num * around,
        step="epochs",
        steps=settings.num * settings.epochs,
        step_s=epoch_s + (short.steps - many) * step_s,
        measured_steps=measured,
        device=device_name(place),
        notes=[
            f"disk: {settings.num} experts × {kept} snapshots × {snapshot / 2**20:.2f} MiB; "
            "`half` and a later `from_epoch` keep less",
            f"steps of an epoch: {short.steps:,}; measured each time: {many}",
        ],
    )


class _ShortTrainings:
    """Experts as they are trained, on so few images that an epoch has a few steps."""

    def __init__(
        self,
        data: Data,
        net: Net,
        given: NetLike,
        settings: ExpertOptions,
        device: torch.device,
    ) -> None:
        self._data = data
        self._net = net
        self._given = given
        self._settings = settings
        self._device = device
        self._lanes = experts_at_once(settings.num, net, device)
        self.batch = min(settings.batch, len(data.train))
        self.steps = len(data.train) // self.batch
        self.few = min(self.steps, FEW_STEPS)

    def part(self, steps: int) -> Data:
        """Images for this many steps, and as many to score as are scored at once."""
        train = _first(self._data.train, steps * self.batch)
        test = _first(self._data.test, TEST_BATCH)
        return replace(self._data, train=train, test=test, holdout=None)

    def once_and_each(self) -> tuple[float, float]:
        """Seconds that are spent once, and those of an expert of one short epoch."""
        lanes = self._lanes
        cold, warm = (self._seconds(lanes) for _ in range(2))
        each = warm / lanes
        if self._device.type == "cuda":  # where steps are captured, once for all of a lane
            each = seconds_a_step((lanes, warm), (2 * lanes, self._seconds(2 * lanes)))
        return max(0.0, cold - lanes * each), each

    def epoch_s(self, steps: int, budget_s: float) -> tuple[float, int]:
        """Seconds of an epoch of this many steps, and how many epochs were measured."""
        lanes = self._lanes
        watch = Stopwatch(self._device, 2 * lanes, budget_s, wait=lanes == 1)
        self._train(lanes, MANY_EPOCHS, steps, watch)
        done = watch.durations[lanes:] or watch.durations
        # The mean, not the median: what a busy machine takes away now, it will take away then.
        return fmean(done), len(done)

    def _seconds(self, num: int) -> float:
        return _timed(lambda: self._train(num, 1, self.few), self._device)

    def _train(self, num: int, epochs: int, steps: int, watch: Progress = SILENT) -> None:
        short = replace(self._settings, num=num, epochs=epochs, from_epoch=0)
        net, device = self._given, self._device
        with tempfile.TemporaryDirectory() as folder, suppress(Enough):
            train_experts(self.part(steps), net, folder, short, device=device, progress=watch)


def _copies(job: Job) -> int:
    """Of what is learned, on disk: the coreset, and in a checkpoint itself, slots and its mean."""
    if not job.method.makes_updates:
        return 1
    return 2 + len(SLOTS[job.options.optimizer]) + (job.options.average > 0)


def _stored_bytes(job: Job, data: Data) -> int:
    """Bytes of a run's inputs and soft labels on disk."""
    copies, points = _copies(job), job.options.ipc * max(data.classes, 1)
    soft = points * job.form.seen * data.outputs * 4
    times = {"hard": 0, "experts": 1, "learned": copies}[job.options.labels]
    numbers = points * prod(data.input_shape)
    # A byte for each number, and classes of 8 bytes.
    start = numbers + 8 * points if job.method.makes_updates else 0
    return copies * numbers * 4 + start + times * soft


def _kept_by_method(checkpoint: Path) -> int:
    """Bytes of what a method keeps between updates."""
    if not checkpoint.exists():
        return 0
    with open_tensors(checkpoint) as (tensors, _):
        own = [name for name in tensors.keys() if name.startswith("method/")]  # noqa: SIM118
        return sum(tensors.get_tensor(name).nbytes for name in own)


def plan_distill(
    data: Data,
    experts: Sequence[ExpertStore],
    job: Job,
    *,
    nets: Sequence[NetLike] = (),
    device: DeviceLike = "auto",
) -> Plan:
    """Estimate the cost of a coreset from its first updates, with random weights if there are no
    experts.

    Args:
        data: the data set
        experts: the experts, if there are any yet
        job: what is to be done
        nets: the networks, if there are no experts
        device: where it will run
    """
    place, options = choose_device(device), job.options
    stored = _stored_bytes(job, data)
    method, before = job.method.without_warm_up()
    job = replace(job, method=method)
    watch = Stopwatch(place, LEAST_UPDATES, BUDGET_S)
    notes = []
    peak = PeakMemory(place)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        stores, given = list(experts), list(nets)
        if not stores and job.method.needs_experts:
            stores = [
                stand_in_experts(Path(folder, str(number)), data, net, str(job.augmentation))
                for number, net in enumerate(given or [default_net(data.input_shape)])
            ]
            given = []
            job = replace(job, options=replace(options, lr_images=FROZEN, labels="hard"))
            notes.append("no experts were given: measured with random weights and fixed images")
        with suppress(Enough):
            out = Path(folder, "run")
            run(job, data, stores, nets=given, out=out, device=device, progress=watch)
        kept = _kept_by_method(Path(folder, "run", "checkpoint.safetensors"))
        networks = [store.make_net() for store in stores]
        if not networks:
            given = given or [default_net(data.input_shape)]
            networks = [make_net(net, **data.shape) for net in given]
    whole, durations = time.perf_counter() - begun, watch.durations
    # A run of one update has no other than the first.
    step_s = fmean(durations[1:] or durations or [0.0])
    notes += _map_note(watch.figures[1:])
    return Plan(
        f"distill with {method_name(job.method)} at {options.ipc} points per class",
        {net.spec: net.num_params for net in networks},
        disk_bytes=stored + kept,
        peak_bytes=peak.whole(),
        once_s=max(0.0, whole - len(durations) * step_s) + before * step_s,
        step="updates",
        steps=options.steps,
        step_s=step_s,
        measured_steps=len(durations[1:] or durations),
        device=device_name(place),
        notes=notes,
    )


def plan_evaluate(
    coreset: Pseudocoreset,
    data: Data,
    net: NetLike | None,
    sampler: Sampler,
    *,
    seeds: int,
    chains: int = 1,
    weight: WeightLike | None = None,
    split: str = "test",
    device: DeviceLike = "auto",
) -> Plan:
    """Estimate the cost of scores from short chains.

    Args:
        coreset: the coreset
        data: the data set
        net: the network; default: the coreset's own
        sampler: the sampler
        seeds: posteriors to sample
        chains: chains of each
        weight: how many times each point counts; default: as `evaluate` has it
        split: `test` or `holdout`
        device: where it will run
    """
    place = choose_device(device)
    images = data.test if data.holdout is None or split == "test" else data.holdout
    part = replace(data, test=_first(images, TEST_BATCH), holdout=None)
    number = seeds if place.type == "cuda" else 1

    def seconds(epochs: int, samples: int) -> float:
        short = replace(sampler, epochs=epochs * samples, every=epochs)

        def work() -> object:
            return evaluate(
                coreset,
                part,
                short,
                net=net,
                seeds=number,
                chains=chains,
                weight=weight,
                other_data=True,
                device=device,
                progress=False,
            )

        return _timed(work, place)

    def total(epochs: int, samples: int) -> int:
        """The epochs of such a run; each network of an ensemble is trained on its own."""
        again = samples if sampler.ensemble else 1
        return number * chains * again * epochs * samples

    peak = PeakMemory(place)
    cold, warm = (seconds(FEW_EPOCHS, 1) for _ in range(2))
    more = FEW_EPOCHS * (1 + _as_many_as(BUDGET_S / warm))
    epoch_s = seconds_a_step((total(FEW_EPOCHS, 1), warm), (total(more, 1), seconds(more, 1)))
    samples, each = sampler.epochs // sampler.every, sampler.samples_each
    # A sample each epoch: what a chain takes more is then predictions, and nothing else; an
    # ensemble trains a network for each, and to begin one is little.
    in_epochs = epoch_s * (total(1, FEW_EPOCHS) - total(FEW_EPOCHS, 1))
    added = max(0.0, seconds(1, FEW_EPOCHS) - warm - in_epochs)
    sample_s = added / ((FEW_EPOCHS - 1) * number * chains * each)
    around = warm - epoch_s * total(FEW_EPOCHS, 1) - sample_s * number * chains * each
    predicted = seeds * chains * samples * each
    network = coreset.make_net(net)
    log_samples = chains * samples * each * len(images) * data.outputs * 4
    return Plan(
        f"evaluate with {sampler_name(sampler)} on {len(coreset)} stored points",
        {network.spec: network.num_params},
        disk_bytes=0,
        peak_bytes=peak.whole() + 2 * log_samples + _left_out(data, part, place),
        once_s=max(0.0, cold - warm)
        + max(0.0, around) * seeds / number
        + predicted * sample_s * len(images) / len(part.test),
        step="epochs",
        steps=total(sampler.every, samples) * seeds // number,
        step_s=epoch_s,
        measured_steps=total(more, 1),
        device=device_name(place),
        notes=[
            f"the time includes the predictions of {predicted} samples per network for "
            f"{len(images):,} points"
        ],
    )


def _first(split: Split, number: int) -> Split:
    return Split(split.inputs[:number], split.targets[:number])


def _left_out(data: Data, part: Data, place: torch.device) -> int:
    """Bytes that the whole data take on the device, and the part that was measured did not."""
    if place.type != "cuda":  # where they were in memory all along
        return 0
    return sum(
        whole.inputs.nbytes - few.inputs.nbytes
        for whole, few in ((data.train, part.train), (data.test, part.test))
    )


def _timed(work: Callable[[], object], device: torch.device) -> float:
    begun = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - begun


def _as_many_as(number: float) -> int:
    return min(200, max(1, int(number)))


def _map_note(figures: list[dict[str, float]]) -> list[str]:
    found = [int(v) for row in figures for k, v in row.items() if k.startswith("map_steps")]
    if not found:
        return []
    low, high = min(found), max(found)
    took = f"{low}" if low == high else f"{low} to {high}"
    return [
        f"an update took {took} steps to the MAP solution; this number, and the time, change "
        "during distillation"
    ]
