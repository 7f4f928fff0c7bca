"""`experts`: train networks on the whole data and keep snapshots."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.info import describe_store
from pseudocoreset.cli.shared import (
    CommonOptions,
    DataOptions,
    NetOptions,
    ResumeOptions,
    ScaleOptions,
    add_common,
    executor_for,
    load,
    one_net,
    progress_for,
)
from pseudocoreset.engine.options import Options, option
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.interop import import_replay_buffers
from pseudocoreset.nets import default_net
from pseudocoreset.plan.estimate import plan_experts
from pseudocoreset.plan.share import sharing_as_planned


@dataclass(frozen=True)
class _Options(Options):
    out: str = option("", "folder for the expert store")
    from_replay: str | None = option(
        None,
        "import replay_buffer_*.pt files of trajectory matching from this folder instead of "
        "training",
    )


def configure(parser: Parser, words: list[str]) -> None:  # noqa: ARG001
    """Define the options of the command."""
    parser.add(_Options)
    parser.add(ScaleOptions)
    add_shared(parser)


def add_shared(parser: Parser) -> None:
    """Options that `plan experts` has too."""
    parser.add(DataOptions)
    parser.add(NetOptions)
    parser.add(ExpertOptions)
    parser.add(ResumeOptions)
    add_common(parser)


def resolved_config(arguments: Arguments) -> dict[str, Any]:
    """All options, with what the data decide, for `--print-config`."""
    options = arguments.pick(ExpertOptions)
    return {**arguments.as_dict(), **options.suited_to(load(arguments)).as_dict()}


def run(arguments: Arguments) -> None:
    """Train experts, or import them."""
    own, common = arguments.pick(_Options), arguments.pick(CommonOptions)
    if not own.out:
        raise UserError("`out` must be given: the folder of the expert store.", "out")
    data = load(arguments)
    options = arguments.pick(ExpertOptions)
    options.check()
    net = one_net(arguments) or default_net(data.input_shape)
    if own.from_replay is not None:
        store = import_replay_buffers(
            Path(own.from_replay), data, net, Path(own.out), options, common.seed
        )
    else:
        one = replace(options.suited_to(data), num=1)
        executor = sharing_as_planned(
            executor_for(arguments), common.device, plan_experts, data, net, one
        )
        store = train_experts(
            data,
            net,
            own.out,
            options,
            seed=common.seed,
            device=common.device,
            executor=executor,
            other_versions=arguments.flag("other_versions"),
            progress=progress_for(arguments),
        )
    if not common.quiet:
        print(describe_store(store))
