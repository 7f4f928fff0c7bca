"""The loop over updates."""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path

import torch
from torch import Tensor

from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.distillation.job import Job
from pseudocoreset.distillation.rules import SLOTS, direction_of, with_slots
from pseudocoreset.distillation.start import learnable, start_points
from pseudocoreset.distillation.stores import check_stores
from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.progress import ProgressLike, progress_of
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.versions import made_on
from pseudocoreset.errors import DivergedError, UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.experts.targets import expert_targets
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.methods import (
    Context,
    Divergence,
    Estimate,
    Points,
    check_estimate,
    check_state,
    method_name,
    prepare,
)
from pseudocoreset.nets import Net, NetLike, default_net, make_net
from pseudocoreset.run_folder import LOUD_SHARE, RunFolder, missed_gamma
from pseudocoreset.training import RealPoints

FARTHEST = 0.3
"""The largest change of a table's number in one update, in standard deviations."""


def run(
    job: Job,
    data: Data,
    stores: Sequence[ExpertStore],
    *,
    nets: Sequence[NetLike] = (),
    out: Path | str | None = None,
    seed: int = 0,
    device: DeviceLike = "auto",
    other_versions: bool = False,
    progress: ProgressLike = True,
) -> Pseudocoreset:
    """Run a complete job.

    Args:
        job: the result of `resolve`
        data: the data set
        stores: the experts
        nets: the networks, if there are no experts
        out: folder of the run
        seed: seed of all randomness
        device: where to run
        other_versions: resume a run of another device or version
        progress: whether to show a progress bar
    """
    check_stores(stores, data)
    networks = _networks(stores, nets, data)
    config = job.config()
    provenance = Provenance(
        method=method_name(job.method),
        net=networks[0].spec,
        data=data.name,
        data_fingerprint=data.fingerprint,
        holdout=0 if data.holdout is None else len(data.holdout),
        seed=seed,
        config={**config, "nets": [net.spec for net in networks]},
        experts=[store.fingerprint for store in stores],
        train_digest=data.train_digest,
        test_digest=data.test_digest,
        num_train=data.num_train,
        class_counts=data.class_counts,
        net_source=networks[0].source_digest,
    )
    if job.options.label_start == "experts":
        _require_experts("label_start", stores)
    place = choose_device(device)
    making = _Run(data, job, place, seed, stores)
    divergence = None
    if job.method.makes_updates:
        divergence = prepare(job.method, making.contexts(stores, networks))
    if job.options.labels == "experts":
        _require_experts("labels", stores)
    folder = None
    if out is not None:  # begun last: what is refused leaves nothing behind
        named = asdict(provenance)
        own = {name: named[name] for name in ("data", "data_fingerprint", "holdout", "seed")}
        whole = {**provenance.config, **own, "experts": provenance.experts}
        folder = RunFolder(
            Path(out), whole, job.extendable(), device=place, other_versions=other_versions
        )
    whole_coreset = partial(
        Pseudocoreset,
        class_names=data.class_names,
        scaling=data.scaling,
        dsa=str(job.augmentation),
        form=job.form,
        likelihood=job.likelihood,
        target_scaling=data.target_scaling,
        columns=data.columns,
    )
    with nullcontext() if folder is None else folder.alone():
        if divergence is not None:
            if folder is not None and not folder.start_path.exists():  # for the page
                start = whole_coreset(*making.start(), provenance=provenance)
                start.save(folder.start_path, precision="byte")
            making.go(divergence, folder, progress)
        stored, targets = making.result()
        parts = [] if folder is None else folder.parts()
        made = {
            "updates": parts or [{"after_update": 0, **made_on(place)}],
            "experts": [made for store in stores for made in store.makers()],
        }
        coreset = whole_coreset(
            stored.cpu(), targets.cpu(), provenance=replace(provenance, made=made)
        )
        if folder is not None:
            coreset.save(folder.coreset_path)
    return coreset


def _networks(stores: Sequence[ExpertStore], given: Sequence[NetLike], data: Data) -> list[Net]:
    """The networks: the experts' own, or those that were given without experts."""
    if given and stores:
        raise UserError("the networks are those of the `experts`: leave `net` out.", "net")
    networks = [store.make_net() for store in stores]
    networks = networks or [
        make_net(net, **data.shape) for net in given or [default_net(data.input_shape)]
    ]
    specs = [net.spec for net in networks]
    if len(set(specs)) < len(specs):
        raise UserError(
            f"the networks {', '.join(specs)} are not all different: give each one once.", "net"
        )
    return networks


def _require_experts(name: str, stores: Sequence[ExpertStore]) -> None:
    if not stores:
        raise UserError(f"`{name}` experts needs trained experts: give `experts`.", name)


class _Run:
    """The state of a run.

    All that changes is in one dictionary that is replaced as a whole: `images` (the stored inputs),
    `label_logits` (of learned targets), the `velocity/…` (or what else the rule keeps) and, where
    asked for, the `mean/…` of each, and the method's own state, `method/…`. So an interrupt leaves
    the state after some whole update, which is what a checkpoint keeps.
    """

    def __init__(
        self,
        data: Data,
        job: Job,
        device: torch.device,
        seed: int,
        stores: Sequence[ExpertStore] = (),
    ) -> None:
        self._job = job
        self._options = job.options
        self._seed = seed
        self._stores = stores
        self._data = data.to(device)
        self._rng = Rng(device, seed, "start")
        if job.start is None:
            stored, self._targets = start_points(self._data, job.options, job.form, self._rng)
        else:
            start = job.start.to(device)
            stored, self._targets = start.inputs, start.seen_targets
        tensors: State = {"images": stored}
        if job.learns_targets:
            targets = self._targets
            if job.options.label_start == "experts":
                targets = self._expert_targets(job.form.decode(stored))
            tensors["label_logits"] = learnable(targets, job.likelihood)
        self._now = (0, with_slots(tensors, job.options.optimizer))

    def coreset(self) -> Points:
        """The points that networks see now."""
        return self._points(self._now[1])

    def start(self) -> tuple[Tensor, Tensor]:
        """Stored inputs and targets before the first update."""
        targets = self._targets.cpu()
        if not targets.is_floating_point():
            targets = targets[:: self._job.form.seen]  # one class a stored image
        return self._now[1]["images"].cpu(), targets

    def _expert_targets(self, inputs: Tensor) -> Tensor:
        job, rng = self._job, Rng(inputs.device, self._seed, "expert targets")
        return expert_targets(self._stores, inputs, job.augmentation, job.likelihood, rng)

    def result(self) -> tuple[Tensor, Tensor]:
        """Stored inputs and targets at the end: as they are now, or their mean over the updates."""
        tensors = self._now[1]
        tensors = {**tensors, **_under(tensors, "mean/")}
        stored, points = tensors["images"], self._points(tensors)
        targets = points.targets
        if self._options.labels == "experts":
            targets = self._expert_targets(points.inputs)
        if not targets.is_floating_point():
            return stored, targets[:: self._job.form.seen]  # one class a stored image
        temperature = self._options.label_temperature
        if temperature != 1 and isinstance(self._job.likelihood, Categorical):
            targets = (targets.log() / temperature).softmax(1)
        return stored, targets

    def _points(self, tensors: State) -> Points:
        targets = self._targets
        if self._job.learns_targets:
            learned = tensors["label_logits"]
            classes = isinstance(self._job.likelihood, Categorical)
            targets = learned.softmax(1) if classes else learned
        return Points(self._job.form.decode(tensors["images"]), targets)

    def contexts(self, stores: Sequence[ExpertStore], nets: Sequence[Net]) -> list[Context]:
        """The context of the method for each network."""
        data, job = self._data, self._job
        real = RealPoints(data.train, data.scaling, data.target_scaling)
        experts: list[ExpertStore | None] = [*stores] or [None] * len(nets)
        return [
            Context(net, store, real, job.augmentation, job.likelihood, job.options.batch)
            for net, store in zip(nets, experts, strict=True)
        ]

    def go(self, divergence: Divergence, folder: RunFolder | None, progress: ProgressLike) -> None:
        """Make the remaining updates."""
        start = divergence.start()
        check_state(start)
        named = {f"method/{name}": value for name, value in start.items()}
        self._now = (0, self._now[1] | named)
        if folder is not None:
            done, kept = folder.restore()
            if kept:
                device = self._targets.device
                self._now = (done, {name: value.to(device) for name, value in kept.items()})
        try:
            self._updates(divergence, folder, progress)
        finally:
            # Done, interrupted or stopped: what was reached is kept.
            if folder is not None:
                folder.checkpoint(*self._now)

    def _updates(
        self, divergence: Divergence, folder: RunFolder | None, progress: ProgressLike
    ) -> None:
        done, steps = self._now[0], self._options.steps
        if done >= steps:
            return
        missed = 0 if folder is None else sum(map(missed_gamma, folder.metrics()))
        with progress_of(progress).task(method_name(self._job.method), steps, done) as task:
            for update in range(done + 1, steps + 1):
                self._rng.reseed(self._seed, "update", update)
                state = _under(self._now[1], "method/")
                coreset = self.coreset()
                estimate = divergence.gradient(coreset, state, self._rng)
                check_estimate(estimate, coreset)
                tensors = self._averaged(update, self._descended(estimate, coreset))
                self._refuse_infinite(update, {**estimate.gradients, **tensors}, estimate.info)
                if folder is not None:
                    folder.log({"update": update, **estimate.info})
                self._now = (update, tensors)
                missed += missed_gamma(estimate.info)
                task.advance(**estimate.info)
                if folder is not None and update % self._options.checkpoint_every == 0:
                    folder.checkpoint(*self._now)
        _warn_of_missed(missed, self._job)

    def _descended(self, estimate: Estimate, coreset: Points) -> State:
        """The state after z ← z − α v with v ← momentum · v + decodeᵀ g, or after Adam's step."""
        tensors, options = dict(self._now[1]), self._options
        tensors |= {f"method/{name}": value for name, value in estimate.state.items()}
        form = self._job.form
        gradient = form.pull_back(estimate.gradients["inputs"], tensors["images"])
        moved = {"images": ("images", gradient, options.lr_images)}
        if self._job.learns_targets:
            gradient = estimate.gradients["targets"]
            if isinstance(self._job.likelihood, Categorical):
                # Through the softmax: ∂p_i/∂z_j = p_i (δ_ij − p_j).
                inner = (coreset.targets * gradient).sum(1, keepdim=True)
                gradient = coreset.targets * (gradient - inner)
            moved["labels"] = ("label_logits", gradient, options.lr_labels)
        farthest = inf if self._data.is_image else FARTHEST
        # Adam's step has the size of its learning rate, whatever the loss is measured in.
        scale = 1.0 if options.optimizer == "adam" else self._job.likelihood.step_scale
        for name, (key, gradient, lr) in moved.items():
            # What gets no gradient stays put, momentum or not.
            touched = (gradient.flatten(1) != 0).any(1).view(-1, *[1] * (gradient.ndim - 1))
            slots = {slot: tensors[f"{slot}/{name}"] for slot in SLOTS[options.optimizer]}
            new, direction = direction_of(slots, gradient, options.optimizer, options.momentum)
            for slot, value in new.items():
                tensors[f"{slot}/{name}"] = torch.where(touched, value, slots[slot])
            step = (lr * scale * direction).clamp(-farthest, farthest)
            tensors[key] = torch.where(touched, tensors[key] - step, tensors[key])
        return tensors

    def _averaged(self, update: int, tensors: State) -> State:
        """The state with means over the updates so far, of which the late ones count most.

        mean ← mean + (x − mean)·(η+1)/(t+η) gives update t a weight that grows as t^η (Shamir and
        Zhang, 2013): with η = 1/share − 1, about the last `share` of the updates counts. It does
        not ask how many updates are to follow, so a run that is made longer is the longer run.
        """
        share = self._options.average
        if share == 0:
            return tensors
        part = 1 / (share * update + 1 - share)
        means = {}
        for name in ("images", "label_logits"):
            if name in tensors:
                before = tensors.get(f"mean/{name}", tensors[name])
                means[f"mean/{name}"] = before + (tensors[name] - before) * part
        return {**tensors, **means}

    def _refuse_infinite(self, update: int, tensors: State, info: dict[str, float]) -> None:
        good = all(bool(value.isfinite().all()) for value in tensors.values())
        if good and all(map(isfinite, info.values())):
            return
        config = self._job.config()
        rates = [f"`{name}` ({config[name]:g})" for name in config if name.startswith("lr_")]
        raise DivergedError(
            f"update {update} gave a loss or a gradient that is not finite. The updates before "
            f"it are stored. Start another `out` with a lower {' or '.join(rates)}, or check the "
            "data for extreme values.",
            "lr_images",
        )


def _under(tensors: State, prefix: str) -> State:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _warn_of_missed(missed: int, job: Job) -> None:
    config = job.config()
    if missed > LOUD_SHARE * job.options.steps:
        warnings.warn(
            f"{missed} of {job.options.steps} updates did not reach the loss γ = "
            f"{config.get('gamma')} within {config.get('max_map_steps')} steps, so they used a "
            "bad approximation of the coreset's posterior: raise `gamma` or `max_map_steps`.",
            RuntimeWarning,
            stacklevel=3,
        )
