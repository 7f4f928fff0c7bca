"""The one loop: draw, gradient, update, checkpoint."""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor
from torch.nn.functional import one_hot

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.options import Options, limits_of, option, parsed
from pseudocoreset.engine.progress import ProgressLike, progress_of
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError, require_type
from pseudocoreset.experts import ExpertStore
from pseudocoreset.experts.targets import expert_targets
from pseudocoreset.forms import Form, parse_form
from pseudocoreset.likelihoods import Categorical, Gaussian, Likelihood
from pseudocoreset.methods import (
    Context,
    Divergence,
    Estimate,
    Method,
    Points,
    check_estimate,
    check_state,
    method_class,
    method_name,
    prepare,
)
from pseudocoreset.nets import Net, NetLike, default_net, make_net
from pseudocoreset.recipes import Recipe, recipe_for
from pseudocoreset.run_folder import LOUD_SHARE, RunFolder, missed_gamma
from pseudocoreset.training import RealPoints

LABEL_SHARE = 0.9
"""A learned label starts with this much on its class, the rest spread over all."""


@dataclass(frozen=True)
class DistillOptions(Options):
    """The options of the loop, whatever the method."""

    ipc: int = option(10, "images per class; points for regression", at_least=1)
    form: str = option("pixels", "how images are stored: pixels, or mosaic:F for F×F smaller ones")
    labels: str = option(
        "hard",
        "targets: hard (fixed), learned, or experts (their mean prediction at the end)",
        choices=("hard", "learned", "experts"),
    )
    steps: int = option(1000, "updates (N)", at_least=0, extendable=True)
    lr_images: float = option(1000.0, "learning rate of the inputs, for a mean loss (α)", above=0)
    momentum: float = option(0.5, "momentum of the updates", at_least=0, below=1)
    average: float = option(
        0.0,
        "make the coreset the mean over about this share of the updates, the last ones; 0: the "
        "last one",
        at_least=0,
        at_most=1,
    )
    batch: int = option(100, "coreset points a step and an update (B); bpc-w: a step", at_least=1)
    dsa: str | None = option(
        None, "augmentation: on, off, or kinds separated by commas; default: the experts' own"
    )
    lr_labels: float = option(10.0, "learning rate of learned labels", above=0)
    init: str = option("real", "what the inputs are at first", choices=("real", "noise"))
    target_noise: float | None = option(
        None,
        "standard deviation of a regression target about its mean, in standard deviations of the "
        "targets; default: the experts' RMSE at points that they left out",
        above=0,
    )
    checkpoint_every: int = option(
        25, "updates between two checkpoints", at_least=1, extendable=True
    )


UPDATE_OPTIONS = ("steps", "lr_images", "momentum", "average", "batch", "lr_labels", "init")
"""What a method that makes no updates has no use for."""


@dataclass(frozen=True)
class Job:
    """A complete description of a run: nothing in it is left to a recipe."""

    method: Method
    options: DistillOptions
    form: Form
    likelihood: Likelihood
    augmentation: Augmentation
    recipe: Recipe

    @property
    def learns_targets(self) -> bool:
        """Whether targets are learned."""
        return self.options.labels == "learned"

    def extendable(self) -> frozenset[str]:
        """The options that may change when a run goes on."""
        every = [*fields(self.options), *fields(self.method)]
        return frozenset(each.name for each in every if limits_of(each).extendable)

    def config(self) -> dict[str, Any]:
        """All settings by name, as files keep them; those without a use are left out."""
        values = {
            "method": method_name(self.method),
            "recipe": self.recipe.section,
            **self.options.as_dict(),
            "dsa": str(self.augmentation),
            **self.method.as_dict(),
        }
        unused = () if self.method.makes_updates else (*UPDATE_OPTIONS, "checkpoint_every")
        if not self.learns_targets:
            unused = (*unused, "lr_labels")
        if self.options.target_noise is None:
            unused = (*unused, "target_noise")
        return {name: value for name, value in values.items() if name not in unused}


def distill(
    data: Data,
    experts: ExpertStore | Sequence[ExpertStore] = (),
    method: Method | str = "fbpc",
    *,
    ipc: int = 10,
    form: Form | str | None = None,
    labels: str | None = None,
    recipe: str = "best",
    steps: int | None = None,
    lr_images: float | None = None,
    lr_labels: float | None = None,
    momentum: float | None = None,
    average: float | None = None,
    batch: int | None = None,
    init: str | None = None,
    target_noise: float | None = None,
    dsa: str | None = None,
    net: NetLike | Sequence[NetLike] | None = None,
    out: Path | str | None = None,
    checkpoint_every: int | None = None,
    seed: int = 0,
    device: DeviceLike = "auto",
    progress: ProgressLike = True,
) -> Pseudocoreset:
    """Make a pseudocoreset of `data`. A setting that is left out is the recipe's.

    Args:
        data: the data set
        experts: the store of trained experts; several, each of another network, make one coreset
            for all these networks
        method: a method, such as `pc.FBPC(gamma=0.2)`, or its name
        ipc: images per class; for regression, the number of points
        form: how images are stored: `pc.Pixels()`, `pc.Mosaic(2)`, or `"mosaic:2"`
        labels: `hard`, `learned` or `experts`
        recipe: `best`, `tuned`, `paper`, or a YAML file
        steps: number of updates
        lr_images: learning rate of the inputs
        lr_labels: learning rate of learned labels
        momentum: momentum of the updates
        average: share of the updates, the last ones, that the coreset is the mean of
        batch: coreset points a step and an update
        init: `real` or `noise`
        target_noise: for regression, the likelihood's standard deviation, in standard deviations of
            the targets; default: the experts' RMSE at points that they left out
        dsa: augmentation: `on`, `off` or kinds separated by commas
        net: the network or networks, for methods without experts
        out: folder of the run; call again with the same folder to resume
        checkpoint_every: updates between two checkpoints
        seed: seed of all randomness
        device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        progress: whether to show a progress bar
    """
    named = {
        "ipc": ipc,
        "form": None if form is None else str(form),
        "labels": labels,
        "steps": steps,
        "lr_images": lr_images,
        "lr_labels": lr_labels,
        "momentum": momentum,
        "average": average,
        "batch": batch,
        "init": init,
        "target_noise": target_noise,
        "dsa": dsa,
        "checkpoint_every": checkpoint_every,
    }
    options = DistillOptions(**{k: v for k, v in named.items() if v is not None})  # type: ignore[arg-type]
    require_type(data, Data, "data", "a data set, such as load_data('digits')")
    advice = "what train_experts or ExpertStore.open gives"
    stores: list[ExpertStore] = [experts]  # type: ignore[list-item]
    if isinstance(experts, (list, tuple)):
        stores = list(experts)
    for each in stores:
        require_type(each, ExpertStore, "experts", advice)
    job = resolve(data, stores, method, options, recipe)
    nets: list[NetLike] = []
    if isinstance(net, str) or callable(net):
        nets = [net]
    elif net is not None:
        nets = list(net)
    return run(job, data, stores, nets=nets, out=out, seed=seed, device=device, progress=progress)


def resolve(
    data: Data,
    stores: Sequence[ExpertStore],
    method: Method | str,
    options: DistillOptions,
    recipe: str = "best",
) -> Job:
    """Fill in what was not given, from the recipe and the experts, and check that all fits.

    Args:
        data: the data set
        stores: the experts
        method: a method or its name
        options: the options of the loop
        recipe: `best`, `tuned`, `paper`, or a YAML file
    """
    method = method_class(method)() if isinstance(method, str) else method
    if not isinstance(method, Method):
        raise UserError(
            f"`method` is a {type(method).__name__}: give a method, such as FBPC(), or its name.",
            "method",
        )
    kind = "regression" if data.task == "regression" else "images" if data.is_image else "table"
    found = recipe_for(data.name, options.ipc, method_name(method), recipe, kind=kind)
    values = _recipe_values(found, method)
    complete = method.resolved(values)
    if stores:
        last = min(store.last_epoch for store in stores)
        complete = complete.within(last, method.given)
    loop = options.resolved(values)
    form = parse_form(loop.form)
    form.check(data.input_shape)
    likelihood = _likelihood(data, stores, loop.target_noise)
    if method.along_sum and "lr_images" not in options.given:
        moved = min(loop.batch, _points_seen(data, loop.ipc, form))
        loop = replace(loop, lr_images=loop.lr_images * moved)
    _check_use(method, options, loop)
    if not method.makes_updates:
        loop = replace(loop, steps=0)
    dsa = loop.dsa if loop.dsa is not None else _dsa_of(stores, data)
    augmentation = Augmentation.parse(dsa, data.mirror)
    if augmentation.kinds and not data.is_image:
        raise UserError(f"`dsa` {dsa} augments images, and {data.name} has none.", "dsa")
    loop = replace(loop, dsa=str(augmentation), form=str(form))
    if isinstance(likelihood, Gaussian):
        loop = replace(loop, target_noise=likelihood.noise)
    return Job(complete, loop, form, likelihood, augmentation, found)


def _recipe_values(recipe: Recipe, method: Method) -> dict[str, Any]:
    """The recipe's values as the fields have them."""
    values = {}
    for name, value in recipe.values.items():
        owner = next((o for o in (DistillOptions, type(method)) if name in _names(o)), None)
        if owner is None:
            raise UserError(
                f"the recipe {recipe.data} has {printable(name)}, which is no option of "
                f"{method_name(method)}.",
                "recipe",
            )
        values[name] = parsed(owner, name, value)
    return values


def _names(options: type[Options]) -> set[str]:
    return set(options().as_dict())


def _points_seen(data: Data, ipc: int, form: Form) -> int:
    return ipc * form.seen * (1 if data.task == "regression" else data.classes)


def _likelihood(data: Data, stores: Sequence[ExpertStore], noise: float | None) -> Likelihood:
    if data.task == "classification":
        if noise is not None:
            raise UserError("`target_noise` is for regression: leave it out.", "target_noise")
        return Categorical(data.classes)
    if noise is None:
        known = [found for store in stores if (found := store.noise) is not None]
        if not known:
            raise UserError(
                "`target_noise` must be given for regression without experts.", "target_noise"
            )
        noise = sum(known) / len(known)
    return Gaussian(data.outputs, noise)


def _dsa_of(stores: Sequence[ExpertStore], data: Data) -> str:
    """The augmentation that all experts were trained with."""
    for store in stores:
        if store.identity.dsa != stores[0].identity.dsa:
            raise UserError(
                f"{stores[0].path} and {store.path} hold experts of different augmentation "
                f"({stores[0].identity.dsa} and {store.identity.dsa}): give `dsa`.",
                "dsa",
            )
    return stores[0].identity.dsa if stores else "on" if data.is_image else "off"


def _check_use(method: Method, given: DistillOptions, complete: DistillOptions) -> None:
    """Refuse options that would have no effect."""
    if not method.makes_updates:
        for name in UPDATE_OPTIONS:
            if name in given.given:
                raise UserError(
                    f"`{name}` has no use in {method_name(method)}, which makes no updates: leave "
                    "it out.",
                    name,
                )
        if complete.labels == "learned":
            raise UserError(f"{method_name(method)} learns no `labels`: leave them hard.", "labels")
    if "lr_labels" in given.given and complete.labels != "learned":
        raise UserError("`lr_labels` has no use unless `labels` are learned.", "lr_labels")


def run(
    job: Job,
    data: Data,
    stores: Sequence[ExpertStore],
    *,
    nets: Sequence[NetLike] = (),
    out: Path | str | None = None,
    seed: int = 0,
    device: DeviceLike = "auto",
    progress: ProgressLike = True,
) -> Pseudocoreset:
    """Do what a complete job says.

    Args:
        job: what `resolve` gave
        data: the data set
        stores: the experts
        nets: the networks, where there are no experts
        out: folder of the run
        seed: seed of all randomness
        device: where to run
        progress: whether to show a progress bar
    """
    _check_stores(stores, data)
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
        net_source=networks[0].source_digest,
    )
    making = _Run(data, job, choose_device(device), seed)
    divergence = None
    if job.method.makes_updates:
        divergence = prepare(job.method, making.contexts(stores, networks))
    if job.options.labels == "experts" and not stores:
        raise UserError("`labels` of the experts need experts: give `experts`.", "labels")
    folder = None
    if out is not None:  # begun last: what is refused leaves nothing behind
        named = asdict(provenance)
        own = {name: named[name] for name in ("data", "data_fingerprint", "holdout", "seed")}
        whole = {**provenance.config, **own, "experts": provenance.experts}
        folder = RunFolder(Path(out), whole, job.extendable())
    with nullcontext() if folder is None else folder.alone():
        if divergence is not None:
            making.go(divergence, folder, progress)
        stored, targets = making.result(stores)
        coreset = Pseudocoreset(
            stored.cpu(),
            targets.cpu(),
            class_names=data.class_names,
            scaling=data.scaling,
            dsa=str(job.augmentation),
            provenance=provenance,
            form=job.form,
            likelihood=job.likelihood,
            target_scaling=data.target_scaling,
            columns=data.columns,
        )
        if folder is not None:
            coreset.save(folder.coreset_path)
    return coreset


def _networks(stores: Sequence[ExpertStore], given: Sequence[NetLike], data: Data) -> list[Net]:
    """The networks: the experts' own, or those that were given without experts."""
    if given and stores:
        raise UserError("networks come with their `experts`: leave `net` out.", "net")
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


def _check_stores(stores: Sequence[ExpertStore], data: Data) -> None:
    for store in stores:
        if store.identity.fingerprint != data.fingerprint:
            there, holdout = store.identity, 0 if data.holdout is None else len(data.holdout)
            raise UserError(
                f"{store.path} holds experts of other data: of {printable(there.data)}, `holdout` "
                f"{there.holdout} and inputs of {_times(there.input_shape)}, not of {data.name} "
                f"with `holdout` {holdout} and inputs of {_times(data.input_shape)}.",
                "experts",
            )
        store.refuse_damaged()


def _times(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


class _Run:
    """A coreset in the making.

    All that changes is in one dictionary that is replaced as a whole: `images` (the stored inputs),
    `label_logits` (of learned targets), the `velocity/…` and, where asked for, the `mean/…` of
    each, and the method's own state, `method/…`. So an interrupt leaves the state after some whole
    update, which is what a checkpoint keeps.
    """

    def __init__(self, data: Data, job: Job, device: torch.device, seed: int) -> None:
        self._job = job
        self._options = job.options
        self._seed = seed
        self._data = data.to(device)
        self._rng = Rng(device, seed, "start")
        stored, self._targets = start_points(self._data, job.options, job.form, self._rng)
        tensors: State = {"images": stored, "velocity/images": torch.zeros_like(stored)}
        if job.learns_targets:
            learned = _learnable(self._targets, job.likelihood)
            tensors |= {"label_logits": learned, "velocity/labels": torch.zeros_like(learned)}
        self._now = (0, tensors)  # updates made, and the state after them

    def coreset(self) -> Points:
        """The points that networks see now."""
        return self._points(self._now[1])

    def result(self, stores: Sequence[ExpertStore]) -> tuple[Tensor, Tensor]:
        """Stored inputs and targets at the end: as they are now, or their mean over the updates."""
        tensors = self._now[1]
        tensors = {**tensors, **_under(tensors, "mean/")}
        stored, points = tensors["images"], self._points(tensors)
        if self._options.labels == "experts":
            rng = Rng(stored.device, self._seed, "expert targets")
            job = self._job
            return stored, expert_targets(
                stores, points.inputs, job.augmentation, job.likelihood, rng
            )
        if self._job.learns_targets or self._data.task == "regression":
            return stored, points.targets
        return stored, self._targets[:: self._job.form.seen]  # one class a stored image

    def _points(self, tensors: State) -> Points:
        targets = self._targets
        if self._job.learns_targets:
            learned = tensors["label_logits"]
            classes = isinstance(self._job.likelihood, Categorical)
            targets = learned.softmax(1) if classes else learned
        return Points(self._job.form.decode(tensors["images"]), targets)

    def contexts(self, stores: Sequence[ExpertStore], nets: Sequence[Net]) -> list[Context]:
        """What the method is prepared for, once a network; some methods need no experts."""
        data, job = self._data, self._job
        real = RealPoints(data.train, data.scaling, data.target_scaling)
        experts: list[ExpertStore | None] = [*stores] or [None] * len(nets)
        return [
            Context(net, store, real, job.augmentation, job.likelihood, job.options.batch)
            for net, store in zip(nets, experts, strict=True)
        ]

    def go(self, divergence: Divergence, folder: RunFolder | None, progress: ProgressLike) -> None:
        """Make the updates that are left."""
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
        """The state after z ← z − α v with v ← momentum · v + decodeᵀ g."""
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
        for name, (key, gradient, lr) in moved.items():
            # What gets no gradient stays put, momentum or not.
            touched = (gradient.flatten(1) != 0).any(1).view(-1, *[1] * (gradient.ndim - 1))
            old = tensors[f"velocity/{name}"]
            velocity = options.momentum * old + gradient
            tensors[f"velocity/{name}"] = torch.where(touched, velocity, old)
            tensors[key] = torch.where(touched, tensors[key] - lr * velocity, tensors[key])
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
        raise UserError(
            f"update {update} gave a loss or a gradient that is not finite. The run keeps what was "
            f"done before it: begin another `out` with a lower {' or '.join(rates)}, or look for "
            "values out of range in the data.",
            "lr_images",
        )


def _learnable(targets: Shaped[Tensor, "m ..."], likelihood: Likelihood) -> Float[Tensor, "m k"]:
    """Where learned targets start: logits of soft labels, or the numbers themselves."""
    if not isinstance(likelihood, Categorical):
        return targets.clone()
    classes = likelihood.classes
    shares = torch.full((len(targets), classes), (1 - LABEL_SHARE) / classes)
    shares = shares.to(targets.device) + LABEL_SHARE * one_hot(targets, classes)
    return shares.log()  # whose softmax is the shares again


def _under(tensors: State, prefix: str) -> State:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def start_points(
    data: Data, options: DistillOptions, form: Form, rng: Rng
) -> tuple[Float[Tensor, "m ..."], Shaped[Tensor, "n ..."]]:
    """Stored inputs and the targets of the points that are seen, before the first update.

    Real points drawn at random, `ipc` a class and class by class, or noise in their place; with
    noise there may be more a class than there are real ones.
    """
    device = data.train.inputs.device
    each = options.ipc * form.seen
    noise = options.init == "noise"
    if noise and data.task == "classification":
        targets = torch.arange(data.classes, device=device).repeat_interleave(each)
    else:
        chosen = _chosen_points(data, each, rng).to(device)
        targets = data.train.targets[chosen]
    if data.target_scaling is not None:
        targets = data.target_scaling.apply(targets)
    if noise:
        shape = (len(targets) // form.seen, *data.input_shape)
        return torch.randn(shape, generator=rng.device, device=device), targets
    return form.encode(data.scaling.apply(data.train.inputs[chosen])), targets


def _chosen_points(data: Data, each: int, rng: Rng) -> Int64[Tensor, " n"]:
    """Positions of random training points, `each` a class; so many in all for regression."""
    if data.task == "regression":
        if len(data.train) < each:
            raise UserError(
                f"{data.name} has {len(data.train)} training points, fewer than `ipc` {each}.",
                "ipc",
            )
        return torch.randperm(len(data.train), generator=rng.host)[:each]
    classes = data.train.targets.cpu()
    chosen = []
    for label, name in enumerate(data.class_names):
        members = (classes == label).nonzero().squeeze(1)
        if len(members) < each:
            raise UserError(
                f"class {name!r} of {data.name} has {len(members)} training points, fewer than the "
                f"{each} that `ipc` asks for.",
                "ipc",
            )
        chosen.append(members[torch.randperm(len(members), generator=rng.host)[:each]])
    return torch.cat(chosen)


def _warn_of_missed(missed: int, job: Job) -> None:
    config = job.config()
    if missed > LOUD_SHARE * job.options.steps:
        warnings.warn(
            f"{missed} of {job.options.steps} updates did not reach the loss γ = "
            f"{config.get('gamma')} within {config.get('max_map_steps')} steps, so their posterior "
            "of the coreset is not one: raise `gamma` or `max_map_steps`.",
            RuntimeWarning,
            stacklevel=3,
        )
