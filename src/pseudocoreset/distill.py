"""The one loop: draw, gradient, update, checkpoint."""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import ImageData
from pseudocoreset.divergences import (
    Context,
    Divergence,
    Estimate,
    MethodSettings,
    Points,
    check_estimate,
    check_state,
    make_divergence,
)
from pseudocoreset.engine.device import choose_device
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.progress import SILENT, Progress
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import DEFAULT_NET, make_net
from pseudocoreset.run_folder import LOUD_SHARE, RunFolder, missed_gamma
from pseudocoreset.settings import DistillSettings, used_settings
from pseudocoreset.training import RealImages

LABEL_SHARE = 0.9
"""A learned label starts with this much on its class, the rest spread over all."""


def distill(
    data: ImageData,
    experts: ExpertStore | Sequence[ExpertStore] = (),
    settings: DistillSettings | None = None,
    *,
    net: str | Sequence[str] | None = None,
    out: Path | str | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Pseudocoreset:
    """Make a pseudocoreset of `data`.

    Several expert stores, each of another network, make one coreset for all these networks.
    `net` is for methods without experts: the network, or networks, to use and to evaluate with.
    With `out`, the run is kept in that folder, and goes on where it stopped if called again.
    """
    stores = [experts] if isinstance(experts, ExpertStore) else list(experts)
    config = (settings or DistillSettings()).resolved(data, stores)
    _check_stores(stores, data)
    nets = _networks(stores, [net] if isinstance(net, str) else list(net or ()), data)
    provenance = Provenance(
        method=config["method"],
        net=nets[0],
        data=data.name,
        data_fingerprint=data.fingerprint,
        holdout=0 if data.holdout is None else len(data.holdout),
        seed=seed,
        config={**used_settings(config), "nets": nets},
        experts=[store.fingerprint for store in stores],
    )
    run = _Run(data, config, choose_device(device), seed)
    divergence = None
    if config["method"] != "random":
        divergence = make_divergence(config["method"], run.contexts(stores, nets))
    folder = None
    if out is not None:  # begun last: what is refused leaves nothing behind
        named = asdict(provenance)
        own = {name: named[name] for name in ("data", "data_fingerprint", "holdout", "seed")}
        folder = RunFolder(Path(out), {**provenance.config, **own, "experts": provenance.experts})
    with nullcontext() if folder is None else folder.alone():
        if divergence is not None:
            run.go(divergence, folder, progress)
        images, labels = run.result()
        coreset = Pseudocoreset(
            images.cpu(),
            labels.cpu(),
            class_names=data.class_names,
            normalisation=data.normalisation,
            dsa=config["dsa"],
            provenance=provenance,
        )
        if folder is not None:
            coreset.save(folder.coreset_path)
    return coreset


def _networks(stores: Sequence[ExpertStore], given: list[str], data: ImageData) -> list[str]:
    """The specs of the networks: the experts' own, or those that were given without experts."""
    if given and stores:
        raise UserError("networks come with their experts: give one of --net and --experts.")
    nets = [store.identity.net for store in stores]
    nets = nets or [make_net(name, **data.shape).spec for name in given or [DEFAULT_NET]]
    if len(set(nets)) < len(nets):
        raise UserError(
            f"the networks {', '.join(nets)} are not all different: give each one once, with one "
            "store of experts."
        )
    return nets


def _check_stores(stores: Sequence[ExpertStore], data: ImageData) -> None:
    for store in stores:
        if store.identity.fingerprint != data.fingerprint:
            held, holdout = store.identity, 0 if data.holdout is None else len(data.holdout)
            raise UserError(
                f"{store.path} holds experts of {held.data} with --holdout {held.holdout}, images "
                f"of {held.image_size}×{held.image_size}, and these are other data ({data.name}, "
                f"--holdout {holdout}, {data.image_size}×{data.image_size}): give matching ones."
            )
        for trajectory in store.trajectories[:1]:
            store.refuse_other_net(trajectory)


class _Run:
    """A coreset in the making.

    All that changes, in one dictionary that is replaced as a whole: `images`, `label_logits`, the
    `velocity/…` and, where asked for, the `mean/…` of each, and the `method/…`'s own state. What an
    interrupt leaves is then the state after some whole update, which is what a checkpoint keeps.
    """

    def __init__(
        self, data: ImageData, config: dict[str, Any], device: torch.device, seed: int
    ) -> None:
        self._config = config
        self._seed = seed
        self._data = data.to(device)
        self._augmentation = Augmentation.parse(config["dsa"], mirror=True)
        self._rng = Rng(device, seed, "start")
        images = start_images(self._data, config["ipc"], config["init"], self._rng)
        self._classes = torch.arange(data.classes, device=device).repeat_interleave(config["ipc"])
        tensors: State = {"images": images, "velocity/images": torch.zeros_like(images)}
        if config["learn_labels"]:
            shares = torch.full((len(images), data.classes), (1 - LABEL_SHARE) / data.classes)
            shares = shares.to(device) + LABEL_SHARE * F.one_hot(self._classes, data.classes)
            logits = shares.log()  # whose softmax is the shares again
            tensors |= {"label_logits": logits, "velocity/labels": torch.zeros_like(logits)}
        self._now = (0, tensors)  # updates made, and the state after them

    def coreset(self) -> Points:
        """The images now, with classes or the learned probabilities."""
        return self._points(self._now[1])

    def result(self) -> Points:
        """The coreset that the run ends with: as it is now, or its mean over the updates."""
        tensors = self._now[1]
        return self._points({**tensors, **_under(tensors, "mean/")})

    def _points(self, tensors: State) -> Points:
        learned = self._config["learn_labels"]
        labels = tensors["label_logits"].softmax(1) if learned else self._classes
        return Points(tensors["images"], labels)

    def contexts(self, stores: Sequence[ExpertStore], nets: Sequence[str]) -> list[Context]:
        """What the method is made from, once a network; some methods need no experts."""
        names = {field.name for field in fields(MethodSettings)}
        settings = MethodSettings(**{k: v for k, v in self._config.items() if k in names})
        real = RealImages(self._data.train, self._data.normalisation)
        experts: list[ExpertStore | None] = [*stores] or [None] * len(nets)
        return [
            Context(make_net(net, **self._data.shape), store, real, self._augmentation, settings)
            for net, store in zip(nets, experts, strict=True)
        ]

    def go(self, divergence: Divergence, folder: RunFolder | None, progress: Progress) -> None:
        """Make the updates that are left."""
        start = divergence.start()
        check_state(start)
        named = {f"method/{name}": value for name, value in start.items()}
        self._now = (0, self._now[1] | named)
        if folder is not None:
            done, kept = folder.restore()
            if kept:
                device = self._classes.device
                self._now = (done, {name: value.to(device) for name, value in kept.items()})
        try:
            self._updates(divergence, folder, progress)
        finally:
            # Done, interrupted or stopped: what was reached is kept.
            if folder is not None:
                folder.checkpoint(*self._now)

    def _updates(
        self, divergence: Divergence, folder: RunFolder | None, progress: Progress
    ) -> None:
        done, steps = self._now[0], self._config["steps"]
        if done >= steps:
            return
        missed = 0 if folder is None else sum(map(missed_gamma, folder.metrics()))
        with progress.task(self._config["method"], steps, done) as task:
            for update in range(done + 1, steps + 1):
                self._rng.reseed(self._seed, "update", update)
                state = _under(self._now[1], "method/")
                estimate = divergence.gradient(self.coreset(), state, self._rng)
                check_estimate(estimate, self.coreset())
                tensors = self._averaged(update, self._descended(estimate))
                self._refuse_infinite(update, {**estimate.gradients, **tensors}, estimate.info)
                if folder is not None:
                    folder.log({"update": update, **estimate.info})
                self._now = (update, tensors)
                missed += missed_gamma(estimate.info)
                task.advance(**estimate.info)
                if folder is not None and update % self._config["checkpoint_every"] == 0:
                    folder.checkpoint(*self._now)
        _warn_of_missed(missed, self._config)

    def _descended(self, estimate: Estimate) -> State:
        """The state after u ← u − α v with v ← momentum · v + g."""
        tensors = dict(self._now[1])
        tensors |= {f"method/{name}": value for name, value in estimate.state.items()}
        moved = {"images": ("images", estimate.gradients["images"], self._config["lr_images"])}
        if self._config["learn_labels"]:
            probabilities, gradient = self.coreset().labels, estimate.gradients["labels"]
            # Through the softmax: ∂p_i/∂z_j = p_i (δ_ij − p_j).
            inner = (probabilities * gradient).sum(1, keepdim=True)
            gradient = probabilities * (gradient - inner)
            moved["labels"] = ("label_logits", gradient, self._config["lr_labels"])
        for name, (key, gradient, lr) in moved.items():
            # What gets no gradient stays put, momentum or not.
            touched = (gradient.flatten(1) != 0).any(1).view(-1, *[1] * (gradient.ndim - 1))
            old = tensors[f"velocity/{name}"]
            velocity = self._config["momentum"] * old + gradient
            tensors[f"velocity/{name}"] = torch.where(touched, velocity, old)
            tensors[key] = torch.where(touched, tensors[key] - lr * velocity, tensors[key])
        return tensors

    def _averaged(self, update: int, tensors: State) -> State:
        """The state with means over the updates so far, of which the late ones count most.

        mean ← mean + (x − mean)·(η+1)/(t+η) gives update t a weight that grows as t^η (Shamir and
        Zhang, 2013): with η = 1/share − 1, about the last `share` of the updates counts. It does
        not ask how many updates are to follow, so a run that is made longer is the longer run.
        """
        share = self._config["average"]
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
        used = used_settings(self._config)
        names = ("lr_images", "lr_labels", "lr_map", "lr_x", "lr_u", "lr_student")
        rates = [name for name in names if name in used]
        shown = [f"--{name.replace('_', '-')} ({used[name]})" for name in rates]
        raise UserError(
            f"update {update} gave a loss or a gradient that is not finite, and the run keeps what "
            f"was done before it: begin another --out with a lower {' or '.join(shown)}, or look "
            "for values out of range in the data."
        )


def _under(tensors: State, prefix: str) -> State:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def start_images(data: ImageData, ipc: int, init: str, rng: Rng) -> Float[Tensor, "m c h w"]:
    """`ipc` images of each class, class by class: real ones drawn at random, or noise."""
    device = data.train.images.device
    if init == "noise":
        shape = (ipc * data.classes, data.channels, data.image_size, data.image_size)
        return torch.randn(shape, generator=rng.device, device=device)
    labels = data.train.labels.cpu()
    chosen = []
    for label, name in enumerate(data.class_names):
        members = (labels == label).nonzero().squeeze(1)
        if len(members) < ipc:
            raise UserError(
                f"class {name!r} of {data.name} has {len(members)} training images, fewer than "
                f"--ipc {ipc}: give a smaller --ipc."
            )
        chosen.append(members[torch.randperm(len(members), generator=rng.host)[:ipc]])
    return data.normalisation.apply(data.train.images[torch.cat(chosen).to(device)])


def _warn_of_missed(missed: int, config: dict[str, Any]) -> None:
    updates = config["steps"]
    if missed > LOUD_SHARE * updates:
        warnings.warn(
            f"{missed} of {updates} updates did not reach the loss γ = {config['gamma']} within "
            f"{config['max_map_steps']} steps, so their posterior of the coreset is not one: "
            "raise --gamma or --max-map-steps.",
            RuntimeWarning,
            stacklevel=3,
        )
