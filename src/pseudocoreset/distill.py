"""The one loop: draw, gradient, update, checkpoint."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
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
    MethodSettings,
    Points,
    make_divergence,
)
from pseudocoreset.engine.device import choose_device
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.progress import SILENT, Progress
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import Net, make_net
from pseudocoreset.recipes import recipe_for
from pseudocoreset.run_folder import RunFolder
from pseudocoreset.training import RealImages

MOMENTUM = 0.5
LABEL_SHARE = 0.9
"""A learned label starts with this much on its class, the rest spread over all."""


@dataclass(frozen=True)
class DistillSettings:
    """How a coreset is made; what is None comes from the recipe for the data and `ipc`.

    Args:
        method: random, fbpc, fbpc-isotropic, or your own as package.module:factory
        ipc: images per class
        steps: updates (N)
        lr_images: learning rate of the images, for a mean loss (α)
        from_epoch: experts are used from this epoch on (T)
        gamma: the MAP solution of the coreset is reached at this training loss (γ)
        lr_x: learning rate of the steps on real data (λ_x)
        lr_u: learning rate of the steps on the coreset (λ_u)
        batch: coreset images a step and an update (B)
        lr_map: learning rate of Adam towards the MAP solution
        real_batch: real images a step
        samples: Monte-Carlo samples (S)
        draws: augmentations an update
        dsa: augmentation: on, off, or kinds separated by commas; default: the experts' own
        max_map_steps: bound on the steps towards the MAP solution
        learn_labels: learn soft labels too
        lr_labels: learning rate of the labels' logits
        init: real or noise: what the images are at first
        checkpoint_every: updates between two checkpoints
    """

    method: str = "fbpc"
    ipc: int = 10
    steps: int | None = None
    lr_images: float | None = None
    from_epoch: int | None = None
    gamma: float | None = None
    lr_x: float | None = None
    lr_u: float | None = None
    batch: int | None = None
    lr_map: float | None = None
    real_batch: int | None = None
    samples: int = 30
    draws: int = 1
    dsa: str | None = None
    max_map_steps: int = 5000
    learn_labels: bool = False
    lr_labels: float = 10.0
    init: str = "real"
    checkpoint_every: int = 25

    def resolved(self, data: ImageData, experts: Sequence[ExpertStore]) -> dict[str, Any]:
        """All settings with the recipe filled in, checked."""
        values = asdict(self)
        if self.ipc < 1:
            raise UserError(f"--ipc {self.ipc} is too small: give 1 or more.")
        for name, value in asdict(recipe_for(data.name, self.ipc)).items():
            if values[name] is None:
                values[name] = value
        if self.method == "random":
            values["steps"] = 0
        if self.dsa is None:
            values["dsa"] = experts[0].identity.dsa if experts else "on"
        values["dsa"] = str(Augmentation.parse(values["dsa"], data.mirror))
        for name in (
            "batch",
            "real_batch",
            "samples",
            "draws",
            "max_map_steps",
            "checkpoint_every",
        ):
            if values[name] < 1:
                option = name.replace("_", "-")
                raise UserError(f"--{option} {values[name]} is too small: give 1 or more.")
        if self.init not in ("real", "noise"):
            raise UserError(f"--init {self.init} is not known: give real or noise.")
        return values


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
    given = [net or "convnet"] if net is None or isinstance(net, str) else list(net)
    nets = [store.identity.net for store in stores] or [_network(n, data).spec for n in given]
    provenance = Provenance(
        method=config["method"],
        net=nets[0],
        data=data.name,
        data_fingerprint=data.fingerprint,
        holdout=0 if data.holdout is None else len(data.holdout),
        seed=seed,
        config={**config, "nets": nets},
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
    run.go(divergence, folder, progress)
    coreset = Pseudocoreset(
        run.images.cpu(),
        run.labels().cpu(),
        data.class_names,
        data.normalisation,
        config["dsa"],
        provenance,
    )
    if folder is not None:
        coreset.save(folder.coreset_path)
    return coreset


def _network(net: str, data: ImageData) -> Net:
    return make_net(net, channels=data.channels, image_size=data.image_size, classes=data.classes)


def _check_stores(stores: Sequence[ExpertStore], data: ImageData) -> None:
    for store in stores:
        if store.identity.fingerprint != data.fingerprint:
            held = store.identity
            raise UserError(
                f"{store.path} holds experts of {held.data} with --holdout {held.holdout}, and "
                f"these are other data ({data.name}, --holdout "
                f"{0 if data.holdout is None else len(data.holdout)}): give matching ones."
            )


class _Run:
    """A coreset in the making: images, labels, and their momentum."""

    def __init__(
        self, data: ImageData, config: dict[str, Any], device: torch.device, seed: int
    ) -> None:
        self._config = config
        self._seed = seed
        self._data = data.to(device)
        self._augmentation = Augmentation.parse(config["dsa"], mirror=True)
        self._rng = Rng(device, seed, "start")
        self.images = start_images(self._data, config["ipc"], config["init"], self._rng)
        self._classes = torch.arange(data.classes, device=device).repeat_interleave(config["ipc"])
        # log p is the logits whose softmax is p.
        uniform = torch.full((len(self.images), data.classes), 1 / data.classes, device=device)
        one_hot = F.one_hot(self._classes, data.classes)
        self._label_logits = (LABEL_SHARE * one_hot + (1 - LABEL_SHARE) * uniform).log()
        self._velocity = {"images": torch.zeros_like(self.images)}
        if config["learn_labels"]:
            self._velocity["labels"] = torch.zeros_like(self._label_logits)

    def labels(self) -> Tensor:
        """Classes, or the learned probabilities."""
        return self._label_logits.softmax(1) if self._config["learn_labels"] else self._classes

    def contexts(self, stores: Sequence[ExpertStore], nets: Sequence[str]) -> list[Context]:
        """What the method is made from, once a network; some methods need no experts."""
        names = {field.name for field in fields(MethodSettings)}
        settings = MethodSettings(**{k: v for k, v in self._config.items() if k in names})
        real = RealImages(self._data.train, self._data.normalisation)
        experts: list[ExpertStore | None] = [*stores] or [None] * len(nets)
        return [
            Context(_network(net, self._data), store, real, self._augmentation, settings)
            for net, store in zip(nets, experts, strict=True)
        ]

    def go(
        self, divergence: Divergence | None, folder: RunFolder | None, progress: Progress
    ) -> None:
        """Make the updates that are left."""
        done, kept = (0, {}) if folder is None else folder.restore()
        state = self._restore(kept) if kept else (divergence.start() if divergence else {})
        steps = self._config["steps"]
        if divergence is None or done >= steps:
            return
        missed = 0 if folder is None else sum(map(_missed, folder.metrics()))
        with progress.task(self._config["method"], steps, done) as task:
            for update in range(done + 1, steps + 1):
                self._rng.reseed(self._seed, "update", update)
                coreset = Points(self.images, self.labels())
                estimate = divergence.gradient(coreset, state, self._rng)
                if not all(bool(g.isfinite().all()) for g in estimate.gradients.values()):
                    self._stop(update, state, folder)
                state = estimate.state
                self._descend(estimate.gradients)
                missed += _missed(estimate.info)
                task.advance(**estimate.info)
                if folder is not None:
                    folder.log({"update": update, **estimate.info})
                    if update % self._config["checkpoint_every"] == 0 or update == steps:
                        folder.checkpoint(update, self._kept(state))
        _warn_of_missed(missed, self._config)

    def _descend(self, gradients: State) -> None:
        """u ← u − α v with v ← ½ v + g; what gets no gradient stays put, momentum or not."""
        self._move("images", self.images, gradients["images"], self._config["lr_images"])
        if self._config["learn_labels"]:
            probabilities = self._label_logits.softmax(1)
            # Through the softmax: ∂p_i/∂z_j = p_i (δ_ij − p_j).
            inner = (probabilities * gradients["labels"]).sum(1, keepdim=True)
            gradient = probabilities * (gradients["labels"] - inner)
            self._move("labels", self._label_logits, gradient, self._config["lr_labels"])

    def _move(self, name: str, values: Tensor, gradient: Tensor, lr: float) -> None:
        touched = (gradient.flatten(1) != 0).any(1).view(-1, *[1] * (values.ndim - 1))
        velocity = MOMENTUM * self._velocity[name] + gradient
        self._velocity[name] = torch.where(touched, velocity, self._velocity[name])
        values.sub_(torch.where(touched, lr * velocity, 0.0))

    def _kept(self, state: State) -> State:
        velocity = {f"velocity/{name}": value for name, value in self._velocity.items()}
        own = {"images": self.images, "label_logits": self._label_logits}
        return {**own, **velocity, **{f"method/{name}": value for name, value in state.items()}}

    def _restore(self, kept: State) -> State:
        device = self.images.device
        moved = {name: value.to(device) for name, value in kept.items()}
        self.images, self._label_logits = moved["images"], moved["label_logits"]
        for name in self._velocity:
            self._velocity[name] = moved[f"velocity/{name}"]
        prefix = "method/"
        return {k.removeprefix(prefix): v for k, v in moved.items() if k.startswith(prefix)}

    def _stop(self, update: int, state: State, folder: RunFolder | None) -> None:
        kept = ""
        if folder is not None:
            folder.checkpoint(update - 1, self._kept(state))
            kept = f" {folder.path} keeps what was done before it."
        config = self._config
        raise UserError(
            f"update {update} has a gradient that is not finite: lower --lr-images "
            f"({config['lr_images']}), --lr-x ({config['lr_x']}) or --lr-u ({config['lr_u']}), or "
            f"look for values out of range in the data.{kept}"
        )


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


def _missed(figures: dict[str, float]) -> bool:
    """Whether an update did not reach γ, with one of its networks at least."""
    return any(v > 0 for k, v in figures.items() if k.split("/")[0] == "map_missed")


def _warn_of_missed(missed: int, config: dict[str, Any]) -> None:
    updates = config["steps"]
    if missed > 0.01 * updates:
        warnings.warn(
            f"{missed} of {updates} updates did not reach the loss γ = {config['gamma']} within "
            f"{config['max_map_steps']} steps, so their posterior of the coreset is not one: "
            "raise --gamma or --max-map-steps.",
            RuntimeWarning,
            stacklevel=3,
        )
