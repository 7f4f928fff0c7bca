"""The command line: options and exit codes; what the commands do is in `commands`."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pseudocoreset import commands
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertSettings
from pseudocoreset.options import SEVERAL, CommonOptions, DataOptions, Parser, add_options
from pseudocoreset.posterior import Protocol
from pseudocoreset.reproduce.measure_cell import ReproduceSettings
from pseudocoreset.settings import USED_BY, DistillSettings

NET_HELP = (
    "convnet, lenet, alexnet, vgg11, resnet18, resnet34, with options such as "
    "convnet:depth=3,width=128,norm=group, or your own as package.module:factory"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for the person's mistake, 130 when interrupted."""
    try:
        given = make_parser().parse_args(arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = _show_warning
            getattr(commands, given.command)(given[given.command])
    except UserError as error:
        return _refused(str(error).rstrip("."))
    except torch.OutOfMemoryError:
        return _refused(
            "the GPU's memory is too small for this, which `pseudocoreset plan` tells beforehand: "
            "give fewer images, a smaller network, or --device cpu; what was done is kept"
        )
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "DefaultCPUAllocator" not in str(error):
            raise
        return _refused(
            "this machine's memory is too small for this: give fewer images or samples, or a "
            "smaller network; what was done is kept"
        )
    except KeyboardInterrupt:
        print("pseudocoreset: interrupted; what was done is kept.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except PermissionError as error:
        return _refused(f"{error.filename} can't be read or written: look at its permissions")
    return 0


def _refused(why: str) -> int:
    print(f"pseudocoreset: {why}.", file=sys.stderr)
    return 2


def _show_warning(message: Warning | str, *_where: Any, **_more: Any) -> None:
    print(f"pseudocoreset: warning: {message}", file=sys.stderr)


def make_parser() -> Parser:
    """All commands and their options."""
    parser = Parser(
        prog="pseudocoreset",
        description="A large labelled data set as a handful of synthetic images.",
    )
    subcommands = parser.add_subcommands(required=True, dest="command")
    makers = (_quickstart, _experts, _distill, _evaluate, _sample, _predict, _report, _info)
    for make in (*makers, _reproduce):
        _add_command(subcommands, "pseudocoreset", make.__name__[1:], make)
    plan = Parser(prog="pseudocoreset plan", description=_plan.__doc__)
    subcommands.add_subcommand("plan", plan, help=_plan.__doc__)
    _plan(plan)
    return parser


def _add_command(subcommands: Any, prog: str, name: str, make: Callable[[Parser], None]) -> None:
    command = Parser(prog=f"{prog} {name}", description=make.__doc__)
    make(command)
    add_options(command, CommonOptions)
    command.add_argument("--config", action="config", help="a YAML file of options")
    subcommands.add_subcommand(name, command, help=make.__doc__)


def _quickstart(command: Parser) -> None:
    """The whole job on small digits, in a minute."""
    command.add_argument("--out", type=str, default="quickstart", help="folder of the results")


def _experts(command: Parser, planned: bool = False) -> None:
    """Train networks on the whole data and keep snapshots."""
    add_options(command, DataOptions)
    _add_net(command, f"{NET_HELP}; default: convnet")
    command.add_argument("--out", type=str, required=not planned, help="folder of the expert store")
    add_options(command, ExpertSettings)
    command.add_argument(
        "--from-replay",
        type=str | None,
        help="import replay_buffer_*.pt of trajectory matching from this folder; train nothing",
    )


def _distill(command: Parser, planned: bool = False) -> None:
    """Make a coreset."""
    add_options(command, DataOptions)
    _add_net(command, f"{NET_HELP}; default: the experts' own")
    command.add_argument(
        "--experts", action="append", type=SEVERAL, help="an expert store; one a network"
    )
    command.add_argument("--out", type=str, required=not planned, help="folder of the run")
    titles = {name: f"options of {', '.join(methods)}" for name, methods in USED_BY.items()}
    add_options(command, DistillSettings, none="the recipe's", titles=titles)
    command.add_argument(
        "--tensorboard", action="store_true", help="write TensorBoard's files into the folder too"
    )


def _evaluate(command: Parser, planned: bool = False) -> None:
    """Sample a coreset's posterior and score it."""
    if not planned:
        command.add_argument(
            "coreset",
            type=str,
            help="a coreset, or a set made elsewhere: an .npz, or a folder with images_best.pt; "
            "floats are taken to be normalised already, bytes are normalised as the data",
        )
    add_options(command, DataOptions)
    command.add_argument("--seeds", type=int, default=5, help="posteriors to sample")
    command.add_argument("--split", type=str, default="test", help="test or holdout")
    command.add_argument("--json", type=str | None, help="write the scores to this file")
    _add_sampling(command)


def _sample(command: Parser) -> None:
    """Store samples of a coreset's posterior."""
    command.add_argument("coreset", type=str, help="a coreset of `pseudocoreset distill`")
    command.add_argument("--out", type=str, required=True, help="the .safetensors file to write")
    _add_sampling(command)


def _predict(command: Parser) -> None:
    """Class probabilities and uncertainty of your own images."""
    command.add_argument("posterior", type=str, help="what `pseudocoreset sample` wrote")
    command.add_argument("images", type=str, nargs="+", help="image files, or .npz with `images`")
    command.add_argument("--json", type=str | None, help="write the predictions to this file")


def _report(command: Parser) -> None:
    """Write the page of a run again."""
    command.add_argument("run", type=str, help="the folder of a run")


def _info(command: Parser) -> None:
    """Say what a data set, an expert store, a run, a coreset or a posterior is."""
    command.add_argument("what", type=str, help="a path, or a data spec such as cifar10:DIR")
    command.add_argument("--image-size", type=int | None, help="resize a data set's images")


def _reproduce(command: Parser) -> None:
    """Measure the paper's tables, cell by cell, and render them."""
    command.add_argument(
        "names", type=str, nargs="*", default=[], help="table1, dsa, pictures; default: all"
    )
    command.add_argument("--list", action="store_true", help="say what is measured, and its time")
    command.add_argument(
        "--data", type=str | None, help="as for distill; default: measure nothing, render only"
    )
    command.add_argument("--image-size", type=int | None, help="resize images to this side")
    command.add_argument(
        "--holdout", type=int, default=0, help="keep so many training images out and score on them"
    )
    command.add_argument("--out", type=str, default="results", help="folder of the results")
    command.add_argument(
        "--work", type=str | None, help="folder of experts and runs; default: reproduce-work by out"
    )
    command.add_argument(
        "--cells", type=str | None, help="only these, such as fbpc/10,random/*; default: all"
    )
    add_options(command, ReproduceSettings)
    command.add_argument(
        "--keep-coresets", action="store_true", help="store all coresets, not FBPC's alone"
    )


def _plan(command: Parser) -> None:
    """Say what experts, distill or evaluate would take: disk, memory, time."""
    subcommands = command.add_subcommands(required=True, dest="command")
    for make in (_plan_experts, _plan_distill, _plan_evaluate):
        _add_command(subcommands, "pseudocoreset plan", make.__name__[6:], make)


def _plan_experts(command: Parser) -> None:
    """What `experts` with these options would take."""
    _experts(command, planned=True)
    command.add_argument("--json", type=str | None, help="write the plan to this file")


def _plan_distill(command: Parser) -> None:
    """What `distill` with these options would take; experts may still be missing."""
    _distill(command, planned=True)
    command.add_argument("--json", type=str | None, help="write the plan to this file")


def _plan_evaluate(command: Parser) -> None:
    """What `evaluate` with these options would take; the coreset may still be missing."""
    command.add_argument("coreset", type=str, nargs="?", help="a coreset; default: random images")
    command.add_argument("--ipc", type=int, default=10, help="images per class of random images")
    _evaluate(command, planned=True)


def _add_net(command: Parser, text: str) -> None:
    """The network; a command that takes but one refuses several, of which the last would count."""
    command.add_argument("--net", action="append", type=SEVERAL, help=text)


def _add_sampling(command: Parser) -> None:
    _add_net(command, "default: the coreset's own network")
    command.add_argument(
        "--protocol",
        type=str,
        default="tuned",
        help="tuned (cold, with a prior), paper (its noise, no prior) or bayes (temperature 1)",
    )
    add_options(command, Protocol, default="the protocol's")
