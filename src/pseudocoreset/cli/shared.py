"""Options of several commands."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pseudocoreset.cli.arguments import (
    Arguments,
    Parser,
    config_files,
    given_value,
    read_config_file,
)
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data, load_data
from pseudocoreset.data.dataset import check_task
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.progress import SILENT, Progress, Task, progress_of
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import make_net
from pseudocoreset.posterior import SAMPLERS, Sampler, named_sampler, sampler_class
from pseudocoreset.posterior.protocols import FULL_WEIGHT, PROTOCOLS
from pseudocoreset.posterior.weight import WeightLike, full_weight
from pseudocoreset.scale import Executor, executor_of

NETS = (
    "convnet, lenet, alexnet, vgg11, resnet18, resnet34 or mlp, with options such as "
    "convnet:depth=3,width=128,norm=group, or your own as package.module:factory"
)


@dataclass(frozen=True)
class CommonOptions(Options):
    """Options of all commands."""

    seed: int = option(0, "random seed")
    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    quiet: bool = option(
        False, "show no progress, and do not print results that --json writes to a file"
    )
    trust_code: bool = option(
        False, "allow code that a file names to run; only for files that you trust"
    )
    config: str | None = option(None, "read options from a YAML file")
    print_config: bool = option(False, "print all options with their values, and stop")


@dataclass(frozen=True)
class DataOptions(Options):
    """Options that name the data."""

    data: str = option(
        "",
        "digits, diabetes, breast-cancer, mnist:DIR, fashion-mnist:DIR, cifar10:DIR, cifar100:DIR, "
        "tiny-imagenet:DIR, folder:DIR, npz:FILE or table:FILE.csv",
    )
    image_size: int | None = option(None, "resize images to this many pixels per side", at_least=1)
    holdout: int = option(
        0,
        "number of training points to exclude from training, of each class in proportion",
        at_least=0,
    )
    target: str | None = option(None, "table column to predict; default: the last")
    task: str | None = option(
        None,
        "task of a table; default: from the target column",
        choices=("classification", "regression"),
    )


@dataclass(frozen=True)
class NetOptions(Options):
    """Options that name networks."""

    net: tuple[str, ...] = option((), f"{NETS}; distill and evaluate take several")


@dataclass(frozen=True)
class JsonOptions(Options):
    """Options for JSON output."""

    json: str | None = option(None, "write the results to this JSON file")


@dataclass(frozen=True)
class SamplingOptions(Options):
    """Options of sampling that all samplers have."""

    protocol: str = option(
        "tuned",
        "tuned (cold, with a prior), paper (the paper's noise, no prior), paper-epochs (another "
        "reading of it) or bayes (temperature 1)",
    )
    sampler: str = option("sghmc", f"{', '.join(SAMPLERS)}, or your own as package.module:Class")
    weight: float | None = option(
        None,
        "how many times each point counts; default: 1, or n/m in the protocol bayes (n training "
        "points, m points that networks see; those of its class if classes are unbalanced)",
        above=0,
    )


@dataclass(frozen=True)
class ScaleOptions(Options):
    """Options for several processes or machines."""

    workers: int | None = option(None, "number of processes to run at the same time", at_least=1)
    ray: str | None = option(None, "run on a Ray cluster: auto, or the address of the cluster")


@dataclass(frozen=True)
class ResumeOptions(Options):
    """Options for resuming."""

    other_versions: bool = option(
        False, "resume work that was started on another kind of device or with other versions"
    )


def add_common(parser: Parser) -> None:
    """The options of every command."""
    parser.add(CommonOptions)


def add_sampling(parser: Parser, words: Sequence[str]) -> None:
    """The options of the sampling, and those of the sampler that is chosen."""
    parser.add(SamplingOptions)
    name = chosen(words, "sampler", "sghmc")
    kind = sampler_class(name.value, source=name.source, trust_code="--trust-code" in words)
    protocols = {option for values in PROTOCOLS.values() for option in values}
    title = f"options of the sampler {name.value}"
    parser.add(kind, title, default="the protocol's", of=protocols)


@dataclass(frozen=True)
class Chosen:
    """The value of an option that decides which other options there are."""

    value: str
    source: Path | None


def chosen(words: Sequence[str], name: str, default: str) -> Chosen:
    """The value of an option before the rest is parsed: from the command line or a file.

    Args:
        words: the command line
        name: the option
        default: its default
    """
    value = given_value(words, name)
    if value is not None:
        return Chosen(value, None)
    for path in reversed(config_files(words)):
        value = read_config_file(path).get(name)
        if isinstance(value, str):
            return Chosen(value, path)
    return Chosen(default, None)


def load(arguments: Arguments) -> Data:
    """The data, with a bar for each folder of image files that is decoded."""
    options = arguments.pick(DataOptions)
    if not options.data:
        raise UserError("`data` must be given, such as cifar10:DIR.", "data")
    progress = progress_for(arguments)
    shown: dict[str, tuple[Task, int]] = {}
    with ExitStack() as stack:

        def show(done: int, total: int, what: str) -> None:
            if what not in shown:
                shown[what] = (stack.enter_context(progress.task(what, total)), 0)
            task, before = shown[what]
            for _ in range(done - before):
                task.advance()
            shown[what] = (task, done)

        task = None if options.task is None else check_task(options.task)
        data = load_data(options.data, options.image_size, show, target=options.target, task=task)
    return data.hold_out(options.holdout)


def executor_for(arguments: Arguments) -> Executor | None:
    """The executor; None for this process."""
    options = arguments.pick(ScaleOptions)
    return executor_of(options.workers, options.ray)


def progress_for(arguments: Arguments) -> Progress:
    """Progress bars, unless `--quiet` is given."""
    return SILENT if arguments.flag("quiet") else progress_of(True)


def nets_of(arguments: Arguments, data: Data | None = None) -> list[str]:
    """The networks that were given; those that a file names must be trusted."""
    nets = list(arguments.pick(NetOptions).net)
    source = arguments.source("net")
    if source is not None:
        for net in nets:
            shape: dict[str, Any] = (
                {"input_shape": (3, 32, 32), "outputs": 10} if data is None else {**data.shape}
            )
            make_net(net, **shape, source=source, trust_code=arguments.flag("trust_code"))
    return nets


def one_net(arguments: Arguments) -> str | None:
    """The network of a command that takes at most one."""
    nets = nets_of(arguments)
    if len(nets) > 1:
        raise UserError(
            f"`net` was given {len(nets)} times and this command takes one network: run it once "
            "for each.",
            "net",
        )
    return nets[0] if nets else None


def sampler_of(arguments: Arguments) -> Sampler:
    """The sampler with the values of the protocol and the given options."""
    options = arguments.pick(SamplingOptions)
    source, trust = arguments.source("sampler"), arguments.flag("trust_code")
    kind = sampler_class(options.sampler, source=source, trust_code=trust)
    return named_sampler(options.protocol, arguments.pick(kind))


def refuse_sampling(arguments: Arguments, why: str, *more: str) -> None:
    """Refuse options of sampling where nothing is sampled.

    Args:
        arguments: what was given
        why: on what they have no effect
        more: the command's own options of this kind
    """
    kinds = (SamplingOptions, ScaleOptions, Sampler)
    of_sampling = [kind for kind in arguments.kinds if issubclass(kind, kinds)]
    names = ["chains", "seed", *more, *(each.name for kind in of_sampling for each in fields(kind))]
    for name in names:
        if arguments.has(name):
            raise UserError(f"`{name}` has no effect {why}: leave it out.", name)


def weight_of(arguments: Arguments, coreset: Pseudocoreset) -> WeightLike | None:
    """How many times each point counts, if the options or the protocol say so."""
    options = arguments.pick(SamplingOptions)
    if options.weight is not None:
        return options.weight
    return full_weight(coreset) if options.protocol in FULL_WEIGHT else None


def stores_and_nets(
    arguments: Arguments, paths: Sequence[str], data: Data
) -> tuple[list[ExpertStore], list[str]]:
    """The experts, with their own networks; or the networks alone."""
    nets = nets_of(arguments, data)
    trust = arguments.flag("trust_code")
    for net in nets:  # the user named it, so a store may name it too
        make_net(net, **data.shape)
    stores = [ExpertStore.open(path, trust_code=trust) for path in paths]
    return (_match(stores, nets, data), []) if stores and nets else (stores, nets)


def _match(stores: list[ExpertStore], nets: list[str], data: Data) -> list[ExpertStore]:
    """The store of each named network, in that order."""
    by_net = {store.identity.net: store for store in stores}
    found = []
    for net in nets:
        spec = make_net(net, **data.shape).spec
        if spec not in by_net:
            there = ", ".join(f"{store.path} holds {spec}" for spec, store in by_net.items())
            raise UserError(f"there are no `experts` for {spec} ({there}).", "experts")
        found.append(by_net[spec])
    over = [str(store.path) for store in stores if store not in found]
    if over:
        raise UserError(
            f"there is no `net` for the experts in {', '.join(over)}: give each network once.",
            "net",
        )
    return found


def prints_figures(arguments: Arguments) -> bool:
    """Whether to print results: always if they are not written to a file."""
    return not arguments.has("json") or not arguments.flag("quiet")


def run_of(path: Path) -> Path | None:
    """The folder of the run that a coreset's file lies in, if it does."""
    inside = path.name == "coreset.safetensors" and (path.parent / "config.yaml").exists()
    return path.parent if inside else None
