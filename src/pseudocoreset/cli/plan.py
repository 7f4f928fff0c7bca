"""`plan`: estimate the cost of experts, distill, evaluate or tune."""

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory

from pseudocoreset.cli import distill as distill_command
from pseudocoreset.cli import evaluate as evaluate_command
from pseudocoreset.cli import experts as experts_command
from pseudocoreset.cli import tune as tune_command
from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.evaluate import EvaluateOptions, random_points
from pseudocoreset.cli.shared import (
    CommonOptions,
    JsonOptions,
    load,
    nets_of,
    one_net,
    prints_figures,
    run_of,
    sampler_of,
    weight_of,
)
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.distillation import distill
from pseudocoreset.engine.device import choose_device
from pseudocoreset.engine.files import refuse_unwritable_file, write_json
from pseudocoreset.engine.loop import compiled_anew
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.text import did_you_mean, printable
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.points import points_to_score
from pseudocoreset.experts import ExpertOptions
from pseudocoreset.gallery import coreset_path
from pseudocoreset.interop import read_coreset
from pseudocoreset.nets import default_net
from pseudocoreset.plan.estimate import plan_distill, plan_evaluate, plan_experts
from pseudocoreset.plan.measure import seconds_to_start
from pseudocoreset.plan.record import Plan
from pseudocoreset.report import RunReport, write_report

COMPILED = (
    "kernels were compiled in this measurement and are now cached: run plan again for a better time"
)
PLANNED = ("experts", "distill", "evaluate", "tune")


@dataclass(frozen=True)
class _SizeOptions(Options):
    ipc: int = option(
        10, "images per class of random images, where no coreset is given", at_least=1
    )


@dataclass(frozen=True)
class _OutOptions(Options):
    out: str | None = option(None, "folder of the command; plan writes nothing there")


@dataclass(frozen=True)
class _RunOptions(_OutOptions):
    tensorboard: bool = option(False, "of the command; plan does not count it")


def configure(parser: Parser, words: list[str]) -> None:
    """Define the options of the command: those of the command that is planned."""
    if not words or words[0] in ("-h", "--help"):
        parser.positional("command", f"one of {', '.join(PLANNED)}; then its options")
        return
    command = words[0]
    if command not in PLANNED:
        raise UserError(
            f"{printable(command)} can't be planned{did_you_mean(command, PLANNED)}: give "
            f"{', '.join(PLANNED)}."
        )
    parser.positional("command", f"{command}, which is planned")
    if command == "experts":
        parser.add(_OutOptions)
        experts_command.add_shared(parser)
        parser.add(JsonOptions)
    elif command == "distill":
        parser.add(_RunOptions)
        distill_command.add_shared(parser, words)
        parser.add(JsonOptions)
    elif command == "tune":
        parser.add(_OutOptions)
        tune_command.add_shared(parser, words)
        parser.add(JsonOptions)
    else:
        parser.positional("coreset", "a coreset; default: random images", "?")
        parser.add(_SizeOptions)
        evaluate_command.add_shared(parser, words)


def run(arguments: Arguments) -> None:
    """Print the estimated cost of a command."""
    command, common = arguments.text("command"), arguments.pick(CommonOptions)
    json = arguments.pick(JsonOptions).json
    refuse_unwritable_file(json)
    begun = time.perf_counter()
    data = load(arguments)
    loaded_s = time.perf_counter() - begun
    measure = _PLANS[command](arguments, data)  # which refuses what the command would
    if not common.quiet:
        print(f"pseudocoreset: measuring a few steps of {command} ...", file=sys.stderr)
    planned = measure()
    started_s = seconds_to_start(choose_device(common.device))
    notes = [*planned.notes, COMPILED] if compiled_anew() else planned.notes
    planned = replace(planned, once_s=planned.once_s + started_s + loaded_s, notes=notes)
    if json is not None:
        write_json(Path(json), planned.as_json())
    if prints_figures(arguments):
        print(re.sub(r"`([a-z_]+)`", _as_flag, planned.in_words()))


def _as_flag(name: "re.Match[str]") -> str:
    return "--" + name[1].replace("_", "-")


def _random_coreset(data: Data, ipc: int, net: str | None = None) -> Pseudocoreset:
    noise = 1.0 if data.task == "regression" else None
    return distill(
        data,
        method="random",
        ipc=ipc,
        target_noise=noise,
        net=net,
        device="cpu",
        progress=False,
    )


def _with_page(planned: Plan, coreset: Pseudocoreset) -> Plan:
    """Add the time of writing the page to a plan."""
    return replace(planned, once_s=planned.once_s + _seconds_of_a_page(coreset))


def _seconds_of_a_page(coreset: Pseudocoreset) -> float:
    """The time of writing a page with images and curves."""
    curves = [{"update": number, "loss_x": 1.0, "loss_u": 1.0} for number in (1, 2)]
    begun = time.perf_counter()
    with TemporaryDirectory() as folder:
        write_report(Path(folder, "report.html"), "", [RunReport("", coreset, curves, {}, None)])
    return time.perf_counter() - begun


def _plan_experts(arguments: Arguments, data: Data) -> Callable[[], Plan]:
    net, settings = one_net(arguments), arguments.pick(ExpertOptions)
    settings.check()
    device = arguments.pick(CommonOptions).device
    return partial(
        plan_experts, data, net or default_net(data.input_shape), settings, device=device
    )


def _plan_distill(arguments: Arguments, data: Data) -> Callable[[], Plan]:
    if data.task == "regression" and not arguments.has("experts"):  # whose noise is not known yet
        arguments = replace(arguments, values={"target_noise": 1.0, **arguments.values})
    job, stores, nets = distill_command.job_of(arguments, data)
    device = arguments.pick(CommonOptions).device

    def measure() -> Plan:
        planned = plan_distill(data, stores, job, nets=nets, device=device)
        net = stores[0].identity.net if stores else next(iter(nets), None)
        return _with_page(planned, _random_coreset(data, job.options.ipc, net))

    return measure


def _plan_evaluate(arguments: Arguments, data: Data) -> Callable[[], Plan]:
    options, common = arguments.pick(EvaluateOptions), arguments.pick(CommonOptions)
    sampler = sampler_of(arguments)
    nets: list[str | None] = [*nets_of(arguments, data)] or [None]
    path = coreset_path(arguments.text("coreset")) if arguments.has("coreset") else None
    if path is None:
        ipc = arguments.pick(_SizeOptions).ipc
        coresets = [_random_coreset(data, ipc, net) for net in nets]
    else:
        coresets = [read_coreset(path, data, net, trust_code=common.trust_code) for net in nets]
    for coreset, net in zip(coresets, nets, strict=True):
        coreset.make_net(net)
        points_to_score(coreset, data, options.split, other_data=options.other_data)
    if options.random:  # scored on each network too
        coresets += [
            random_points(coreset, data, net, common.seed)
            for coreset, net in zip(coresets, nets, strict=True)
        ]
        nets *= 2

    def measure() -> Plan:
        plans = [
            plan_evaluate(
                coreset,
                data,
                net,
                sampler,
                seeds=options.seeds,
                chains=options.chains,
                weight=weight_of(arguments, coreset),
                split=options.split,
                device=common.device,
            )
            for coreset, net in zip(coresets, nets, strict=True)
        ]
        whole = reduce(Plan.then, plans)
        if path is None:  # still to be made: it will be a run's
            ends_with_page = len(set(nets)) == 1
        else:
            ends_with_page = not arguments.has("net") and run_of(path) is not None
        return _with_page(whole, coresets[0]) if ends_with_page else whole

    return measure


_PLANS = {
    "experts": _plan_experts,
    "distill": _plan_distill,
    "evaluate": _plan_evaluate,
    "tune": tune_command.plan,
}
