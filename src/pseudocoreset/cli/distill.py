"""`distill`: make a coreset, and its page."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pseudocoreset.cli.arguments import RUN_FACTS, Arguments, Parser
from pseudocoreset.cli.shared import (
    CommonOptions,
    DataOptions,
    NetOptions,
    ResumeOptions,
    add_common,
    chosen,
    load,
    progress_for,
    stores_and_nets,
)
from pseudocoreset.data import Data
from pseudocoreset.distillation import DistillOptions, Job, resolve
from pseudocoreset.distillation import run as run_job
from pseudocoreset.engine.options import Options, option
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.methods import METHODS, Method, method_class
from pseudocoreset.recipes import NAMES
from pseudocoreset.report import keep_data_options, read_run, write_report
from pseudocoreset.report.tensorboard import Curves, require_tensorboard, write_tensorboard


@dataclass(frozen=True)
class MethodOptions(Options):
    """Method, recipe and experts."""

    method: str = option(
        "fbpc", f"{', '.join(METHODS)}, or your own as package.module:Class; see its options below"
    )
    recipe: str = option(
        "best",
        f"settings for options that are not given: {', '.join(NAMES)}, or a YAML file; best "
        "falls back to tuned, and tuned to paper",
    )
    experts: tuple[str, ...] = option((), "folder of an expert store; give one for each network")
    learn_labels: bool | None = option(None, "the same as --labels learned")


@dataclass(frozen=True)
class _Options(Options):
    out: str = option("", "folder for the run")
    tensorboard: bool = option(False, "also write TensorBoard files into the folder")


def configure(parser: Parser, words: list[str]) -> None:
    """Define the options of the command."""
    parser.add(_Options)
    add_shared(parser, words)


def add_shared(parser: Parser, words: list[str]) -> None:
    """Options that `plan distill` has too."""
    parser.add(DataOptions)
    parser.add(MethodOptions)
    parser.add(NetOptions)
    parser.add(ResumeOptions)
    add_common(parser)
    parser.add(DistillOptions, "options of distillation", default="the recipe's")
    name = chosen(words, "method", "fbpc")
    kind = method_class(name.value, source=name.source, trust_code="--trust-code" in words)
    parser.add(kind, f"options of the method {name.value}", default="the recipe's")
    parser.hint(lambda option: _of_another_method(option, name.value))


def _of_another_method(name: str, method: str) -> str | None:
    owners = [other for other, kind in METHODS.items() if name in {f.name for f in fields(kind)}]
    if not owners:
        return None
    flag = f"--{name.replace('_', '-')}"
    return (
        f"{flag} is an option of {', '.join(owners)} and has no effect in {method}: leave it out."
    )


def method_of(arguments: Arguments) -> Method:
    """The method, with the options of it that were given."""
    source, trust = arguments.source("method"), arguments.flag("trust_code")
    name = arguments.pick(MethodOptions).method
    return arguments.pick(method_class(name, source=source, trust_code=trust))


def options_of(arguments: Arguments) -> DistillOptions:
    """The options of the updates that were given."""
    named, options = arguments.pick(MethodOptions), arguments.pick(DistillOptions)
    if named.learn_labels is not None:
        labels = "learned" if named.learn_labels else "hard"
        if "labels" in options.given and options.labels != labels:
            raise UserError(
                "`learn_labels` and `labels` contradict each other: give one of them.", "labels"
            )
        options = DistillOptions(**{**_given(options), "labels": labels})
    return options


def job_of(arguments: Arguments, data: Data) -> tuple[Job, list[ExpertStore], list[str]]:
    """The complete job, the experts and the networks."""
    named = arguments.pick(MethodOptions)
    stores, nets = stores_and_nets(arguments, named.experts, data)
    options = options_of(arguments)
    return resolve(data, stores, method_of(arguments), options, named.recipe), stores, nets


def _given(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.given}


def resolved_config(arguments: Arguments) -> dict[str, Any]:
    """All options, with what the recipe and the data decide, for `--print-config`."""
    job, _, _ = job_of(arguments, load(arguments))
    decided = {each.name for each in (*fields(job.options), *fields(job.method))}
    rest = {k: v for k, v in arguments.as_dict().items() if k not in decided}
    config = {k: v for k, v in job.config().items() if k not in RUN_FACTS}
    if job.start is not None:
        config["init"] = job.options.init  # its path, which can be given again
    return {**rest, **config}


def run(arguments: Arguments) -> None:
    """Make a coreset, and its page."""
    own, common = arguments.pick(_Options), arguments.pick(CommonOptions)
    if not own.out:
        raise UserError("`out` must be given: the folder of the run.", "out")
    data = load(arguments)
    job, stores, nets = job_of(arguments, data)
    out = Path(own.out)
    progress: Any = progress_for(arguments)
    if own.tensorboard:
        require_tensorboard()
        progress = Curves(out, progress)
    shipped = arguments.pick(MethodOptions).recipe in NAMES
    if not common.quiet and job.method.makes_updates and shipped and job.recipe.data != data.name:
        found = f"{job.recipe.data} at {job.recipe.ipc} per class"
        print(
            f"There is no recipe for {data.name}; using the one for {found}. `pseudocoreset "
            "tune` can find a better one."
        )
    coreset = run_job(
        job,
        data,
        stores,
        nets=nets,
        out=out,
        seed=common.seed,
        device=common.device,
        other_versions=arguments.flag("other_versions"),
        progress=progress,
    )
    if own.tensorboard:  # of a run that was finished before, too
        write_tensorboard(out)
    keep_data_options(out, vars(arguments.pick(DataOptions)))
    write_report(out / "report.html", f"Pseudocoreset of {data.name}", [read_run(out)])
    if not common.quiet:
        print(f"{out / 'coreset.safetensors'}: {coreset}")
        print(f"Open {(out / 'report.html').resolve()}")
