"""The complete settings of a run, resolved from options, recipe and experts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.distillation.stores import refuse_other_data, times
from pseudocoreset.engine.options import Options, limits_of, option, parsed
from pseudocoreset.engine.search import Among, Around
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.forms import Form, parse_form
from pseudocoreset.gallery import coreset_path
from pseudocoreset.likelihoods import Categorical, Gaussian, Likelihood
from pseudocoreset.methods import (
    Method,
    method_class,
    method_name,
)
from pseudocoreset.recipes import Recipe, recipe_for


@dataclass(frozen=True)
class DistillOptions(Options):
    """The options of `distill` that all methods have."""

    ipc: int = option(10, "images per class; for regression, number of points", at_least=1)
    form: str = option(
        "pixels",
        "how images are stored: pixels, mosaic:F for F×F smaller ones, or chroma:F for twice as "
        "many with colour at half the resolution",
        search=Among(("pixels", "mosaic:2", "mosaic:4")),
    )
    labels: str = option(
        "hard",
        "labels: hard (fixed classes), learned, or experts (the experts' mean prediction at the "
        "end)",
        choices=("hard", "learned", "experts"),
        search=Among(("hard", "learned")),
    )
    label_start: str = option(
        "classes",
        "start of learned labels: classes (smoothed), or experts (their mean prediction)",
        choices=("classes", "experts"),
        search=Among(("classes", "experts")),
    )
    label_temperature: float = option(
        1.0,
        "temperature T of soft labels at the end: p^(1/T), normalised; below 1 makes them sharper",
        above=0,
    )
    steps: int = option(1000, "number of updates (N)", at_least=0, extendable=True)
    lr_images: float = option(
        1000.0,
        "learning rate of the images or inputs, for a mean loss (α)",
        above=0,
        search=Around(32, 8),
    )
    optimizer: str = option(
        "sgd",
        "optimizer of the updates: sgd, or adam (which needs much smaller learning rates)",
        choices=("sgd", "adam"),
    )
    momentum: float = option(0.5, "momentum (beta1 of Adam) of the updates", at_least=0, below=1)
    average: float = option(
        0.0,
        "average the coreset over about this share of the last updates; 0: no average",
        at_least=0,
        at_most=1,
    )
    batch: int = option(
        100,
        "coreset points per step and per update (B); for bpc-w and unrolled, per step",
        at_least=1,
    )
    dsa: str | None = option(
        None, "augmentation: on, off, or kinds separated by commas; default: the experts' own"
    )
    lr_labels: float = option(
        10.0, "learning rate of learned labels", above=0, search=Around(8, 32)
    )
    init: str = option(
        "real",
        "start of the coreset: real (random training points), noise, the path of a coreset or run, "
        "or gallery:NAME-IPC",
    )
    target_noise: float | None = option(
        None,
        "standard deviation of a regression target about its mean, in standard deviations of the "
        "targets; default: the experts' RMSE at points that they left out",
        above=0,
    )
    checkpoint_every: int = option(
        25, "number of updates between checkpoints", at_least=1, extendable=True
    )


UPDATE_OPTIONS = (
    *("steps", "lr_images", "optimizer", "momentum", "average", "batch", "lr_labels", "init"),
    "label_start",
)
"""Options that have no effect if the method makes no updates."""
FOR_LEARNED = ("lr_labels", "label_start")
"""Options that have an effect only if labels are learned."""
FROM_CORESET = "coreset"
"""The value of `init` in a configuration if the run started from another coreset."""
LATER = (
    *("target_noise", "optimizer", "label_start", "label_temperature"),
    *("experts_each", "reuse", "reuse_steps"),
)
"""Options that a configuration contains only if they differ from the default."""
RATES = {"sgd": {}, "adam": {"lr_images": 0.01, "lr_labels": 0.05}}
"""Learning rates for an optimizer other than the recipe's. For SGD, the defaults of the fields."""


@dataclass(frozen=True)
class Job:
    """The complete settings of a run."""

    method: Method
    options: DistillOptions
    form: Form
    likelihood: Likelihood
    augmentation: Augmentation
    recipe: Recipe
    start: Pseudocoreset | None = None
    """The coreset to start from, if one was given."""

    @property
    def learns_targets(self) -> bool:
        """Whether targets are learned."""
        return self.options.labels == "learned"

    def extendable(self) -> frozenset[str]:
        """The options that may change when a run is resumed."""
        every = [*fields(self.options), *fields(self.method)]
        return frozenset(each.name for each in every if limits_of(each).extendable)

    def config(self) -> dict[str, Any]:
        """All settings by name for files, without those that have no effect."""
        defaults = {**DistillOptions().as_dict(), **type(self.method)().as_dict()}
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
        for name in LATER:  # a run that was begun before there were these goes on
            if values.get(name) == defaults.get(name) and name not in self.recipe.values:
                unused = (*unused, name)
        if self.start is not None:
            values |= {"init": FROM_CORESET, "init_coreset": self.start.fingerprint}
        return {name: value for name, value in values.items() if name not in unused}


def resolve(
    data: Data,
    stores: Sequence[ExpertStore],
    method: Method | str,
    options: DistillOptions,
    recipe: str | Recipe = "best",
    *,
    start: Pseudocoreset | None = None,
) -> Job:
    """Fill in missing settings from the recipe and the experts, and check them.

    Args:
        data: the data set
        stores: the experts
        method: a method or its name
        options: the options of the loop
        recipe: `best`, `tuned`, `paper`, a YAML file, or its content
        start: a coreset to start from; default: that of `options.init`
    """
    method = method_class(method)() if isinstance(method, str) else method
    if not isinstance(method, Method):
        raise UserError(
            f"`method` is a {type(method).__name__}: give a method, such as FBPC(), or its name.",
            "method",
        )
    refuse_other_data(stores, data)
    found = recipe if isinstance(recipe, Recipe) else _find(data, method, options, recipe)
    values = _for_optimizer(_recipe_values(found, method), options)
    found = replace(found, values=values)
    complete = method.resolved(values)
    if stores:
        last = min(store.last_epoch for store in stores)
        complete = complete.within(last, method.given)
    loop = options.resolved(values)
    form = parse_form(loop.form)
    form.check(data.input_shape)
    start = start or _start(loop.init)
    if start is not None:
        _check_start(start, data, loop, form)
    likelihood = _likelihood(data, stores, loop.target_noise)
    if method.along_sum and "lr_images" not in options.given and loop.optimizer == "sgd":
        moved = min(loop.batch, _points_seen(data, loop.ipc, form))
        loop = replace(loop, lr_images=loop.lr_images * moved)
    _check_use(method, options, loop)
    if not method.makes_updates:
        loop = replace(loop, steps=0)
    dsa = loop.dsa if loop.dsa is not None else _dsa_of(stores, data)
    augmentation = Augmentation.parse(dsa, data.mirror)
    if augmentation.kinds and not data.is_image:
        raise UserError(f"`dsa` {dsa} is for images, and {data.name} is a table.", "dsa")
    loop = replace(loop, dsa=str(augmentation), form=str(form))
    if isinstance(likelihood, Gaussian):
        loop = replace(loop, target_noise=likelihood.noise)
    return Job(complete, loop, form, likelihood, augmentation, found, start)


def _find(data: Data, method: Method, options: DistillOptions, recipe: str) -> Recipe:
    kind = "regression" if data.task == "regression" else "images" if data.is_image else "table"
    found = recipe_for(data.name, options.ipc, method_name(method), recipe, kind=kind)
    form = found.values.get("form", "pixels")
    if recipe != "best":
        return found
    tuned = recipe_for(data.name, options.ipc, method_name(method), "tuned", kind=kind)
    if "form" not in options.given and not form_fits(form, data, options.ipc):
        return tuned
    if "optimizer" in options.given:  # whose rates the section before may have
        return next((each for each in (found, tuned) if _has_optimizer(each, options)), found)
    return found


def _has_optimizer(recipe: Recipe, options: DistillOptions) -> bool:
    return bool(recipe.values.get("optimizer", "sgd") == options.optimizer)


def _start(init: str) -> Pseudocoreset | None:
    """The coreset that `init` names, if it names one."""
    if init in ("real", "noise"):
        return None
    path = coreset_path(init)
    if init == FROM_CORESET and not path.exists():
        raise UserError(
            "the run started from a coreset: give the file of this coreset as `init`.", "init"
        )
    if not path.is_file():
        raise UserError(
            f"`init` is {printable(init)}: give real, noise, gallery:NAME-IPC, or the path of a "
            "coreset.",
            "init",
        )
    return Pseudocoreset.load(path)


def _check_start(start: Pseudocoreset, data: Data, loop: DistillOptions, form: Form) -> None:
    """Refuse a coreset that the updates can't begin with."""
    each = loop.ipc * (1 if data.task == "regression" else data.classes)
    pairs = {
        "task": (start.task, data.task),
        "input shape": (times(start.input_shape), times(data.input_shape)),
        "number of classes": (len(start.class_names), len(data.class_names)),
        "`form`": (start.form, form),
        "number of points": (len(start), each),
        "normalisation": (start.scaling, data.scaling),
        "targets' normalisation": (start.target_scaling, data.target_scaling),
    }
    for name, (there, here) in pairs.items():
        if there != here:
            raise UserError(f"`init` is a coreset whose {name} is {there}, not {here}.", "init")
    made = start.provenance
    digests = (made.train_digest, made.test_digest)
    if made.train_digest and digests != (data.train_digest, data.test_digest):
        raise UserError(
            f"`init` is a coreset of other data ({printable(made.data)}), and may contain test "
            f"points of {data.name}: give a coreset of the same data.",
            "init",
        )
    if data.holdout is not None and made.data_fingerprint != data.fingerprint:
        raise UserError(
            "`init` is a coreset that may have used points that are held out here: give one that "
            "was made with the same `holdout`.",
            "init",
        )


def form_fits(spec: str, data: Data, ipc: int) -> bool:
    """Whether data can be stored in a form: by their sides, and enough of them in each class.

    Args:
        spec: the form
        data: the data set
        ipc: images per class
    """
    form = parse_form(spec)
    if form.seen == 1:
        return True
    try:
        form.check(data.input_shape)
    except UserError:
        return False
    return int(data.train.targets.bincount().min()) >= ipc * form.seen


def _recipe_values(recipe: Recipe, method: Method) -> dict[str, Any]:
    """The recipe's values as the fields have them."""
    values = {}
    for name, value in recipe.values.items():
        owner = next((o for o in (DistillOptions, type(method)) if name in _names(o)), None)
        if owner is None:
            raise UserError(
                f"the recipe {recipe.data} has {printable(name)}, which is not an option of "
                f"{method_name(method)}.",
                "recipe",
            )
        values[name] = parsed(owner, name, value)
    return values


def _for_optimizer(values: dict[str, Any], options: DistillOptions) -> dict[str, Any]:
    """The same, but for the learning rates if another rule than the recipe's was given."""
    if "optimizer" not in options.given or options.optimizer == values.get("optimizer", "sgd"):
        return values
    rest = {name: value for name, value in values.items() if name not in RATES["adam"]}
    return {**rest, **RATES[options.optimizer]}


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
                f"{stores[0].path} and {store.path} hold experts with different augmentation "
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
                    f"`{name}` has no effect in {method_name(method)}, which makes no updates: "
                    "leave it out.",
                    name,
                )
        if complete.labels == "learned":
            raise UserError(
                f"{method_name(method)} can't learn `labels`: use hard labels.", "labels"
            )
    for name in FOR_LEARNED:
        if name in given.given and complete.labels != "learned":
            raise UserError(
                f"`{name}` has no effect unless `labels` are learned: leave it out.", name
            )
    if "label_temperature" in given.given and complete.labels == "hard":
        raise UserError(
            "`label_temperature` has no effect on hard `labels`: leave it out.", "label_temperature"
        )
