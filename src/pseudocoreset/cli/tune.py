"""`tune`: search settings for your own data and write them as a recipe."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pseudocoreset.cli import distill as distill_command
from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.distill import MethodOptions
from pseudocoreset.cli.shared import (
    CommonOptions,
    ScaleOptions,
    executor_for,
    load,
    progress_for,
    stores_and_nets,
)
from pseudocoreset.data import Data
from pseudocoreset.engine.options import Options, option
from pseudocoreset.errors import UserError
from pseudocoreset.plan.record import Plan

if TYPE_CHECKING:
    from pseudocoreset.tuning import Tuned


@dataclass(frozen=True)
class _Options(Options):
    out: str = option("", "folder for the search")


def configure(parser: Parser, words: list[str]) -> None:
    """Define the options of the command."""
    parser.add(_Options)
    parser.add(ScaleOptions)
    add_shared(parser, words)


def add_shared(parser: Parser, words: list[str]) -> None:
    """Options that `plan tune` has too, with the options of `distill`."""
    from pseudocoreset.tuning import TuneOptions  # which needs Optuna

    parser.add(TuneOptions)
    distill_command.add_shared(parser, words)


def run(arguments: Arguments) -> None:
    """Run the search and print the result."""
    from pseudocoreset.tuning import TuneOptions, held_out, search

    own, common = arguments.pick(_Options), arguments.pick(CommonOptions)
    if not own.out:
        raise UserError("`out` must be given: the folder of the search.", "out")
    named, how = arguments.pick(MethodOptions), arguments.pick(TuneOptions)
    how.check()
    data = load(arguments)
    stores, nets = stores_and_nets(arguments, named.experts, data)
    found = search(
        held_out(data, stores),
        stores,
        distill_command.method_of(arguments),
        distill_command.options_of(arguments),
        how,
        recipe=named.recipe,
        nets=nets,
        out=Path(own.out),
        executor=executor_for(arguments),
        seed=common.seed,
        device=common.device,
        other_versions=arguments.flag("other_versions"),
        progress=progress_for(arguments),
    )
    if not common.quiet:
        print(_in_words(found, data.name))


def plan(arguments: Arguments, data: Data) -> Callable[[], Plan]:
    """Estimate the cost of a search."""
    from pseudocoreset.tuning import TuneOptions, held_out, plan_tune

    named, how = arguments.pick(MethodOptions), arguments.pick(TuneOptions)
    how.check()
    stores, nets = stores_and_nets(arguments, named.experts, data)
    return partial(
        plan_tune,
        held_out(data, stores),
        stores,
        distill_command.method_of(arguments),
        distill_command.options_of(arguments),
        how,
        recipe=named.recipe,
        nets=nets,
        device=arguments.pick(CommonOptions).device,
    )


def _in_words(found: "Tuned", data: str) -> str:
    first, best = found.first, found.best
    before = f"{first.nll:.4f}" if first.nll is not None else "no score"
    changes = [
        f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in best.settings.items()
    ]
    return "\n".join(
        [
            f"{len(found.trials)} trials on {data}: NLL {best.nll:.4f} in trial {best.number}, "
            f"{before} by the recipe it began with.",
            f"  {', '.join(changes)}",
            f"{found.recipe}: give it to `pseudocoreset distill` as --recipe.",
        ]
    )
