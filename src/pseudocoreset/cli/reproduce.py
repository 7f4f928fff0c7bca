"""`reproduce`: measure the paper's tables, cell by cell, and render them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.shared import (
    CommonOptions,
    DataOptions,
    ResumeOptions,
    ScaleOptions,
    add_common,
    executor_for,
    load,
    progress_for,
)
from pseudocoreset.engine.files import refuse_unwritable, write_text
from pseudocoreset.engine.options import Options, option
from pseudocoreset.errors import UserError
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import TABLE2, Scope
from pseudocoreset.reproduce.measure_cell import ReproduceOptions, Work
from pseudocoreset.reproduce.page import rendered, scopes
from pseudocoreset.reproduce.pictures import draw_charts
from pseudocoreset.reproduce.registry import (
    OF_PAPER,
    REPRODUCIBLE,
    chosen_cells,
    chosen_names,
    few_users,
    listing,
    measure_cells,
)

TABLE2_DATA = "cifar100"
"""The data of Table 2 that are listed and shown if no data are given."""
_ALWAYS = ("names", "list", "out", "quiet", "config", "print_config", "trust_code")
"""The options that have an effect on everything."""


@dataclass(frozen=True)
class _Options(Options):
    list: bool = option(False, "list what is measured and how long it took")
    out: str = option("results", "folder of the results")
    work: str | None = option(
        None, "folder for experts and runs; default: reproduce-work beside the results"
    )
    cells: str | None = option(None, "cells to measure, such as fbpc/10,random/*; default: all")


def configure(parser: Parser, words: list[str]) -> None:  # noqa: ARG001
    """Define the options of the command."""
    parser.positional("names", f"{', '.join(REPRODUCIBLE)}; default: {', '.join(OF_PAPER)}", "*")
    parser.add(_Options)
    of_tables = ("target", "task")
    nothing = "measure nothing, render only"
    parser.add(DataOptions, default=nothing, of=["data"], without=of_tables)
    parser.add(ReproduceOptions, users=few_users)
    parser.add(ScaleOptions)
    parser.add(ResumeOptions)
    add_common(parser)


def run(arguments: Arguments) -> None:
    """Measure missing cells of the paper's tables and render the tables."""
    own, source = arguments.pick(_Options), arguments.pick(DataOptions)
    settings, out = arguments.pick(ReproduceOptions), Path(own.out)
    names = chosen_names(arguments.texts("names"))
    usual = TABLE2_DATA if names == [TABLE2] else paper.DATA
    scope = Scope((source.data or usual).partition(":")[0], source.holdout, source.image_size)
    used = {*_ALWAYS}.union(*(REPRODUCIBLE[name].uses for name in names))
    for given in arguments.values:
        if given not in used:
            raise UserError(f"`{given}` has no effect on {', '.join(names)}: leave it out.", given)
    if own.list:
        if own.cells is not None:
            raise UserError("`list` lists all cells: leave `cells` out.", "list")
        print(listing(names, out, scope))
        return
    if own.cells is not None and not source.data:
        raise UserError("`cells` needs `data`: give both, or neither.", "cells")
    say = (lambda *_: None) if arguments.pick(CommonOptions).quiet else print
    refuse_unwritable(out)
    for line in _lines(arguments, names, settings, out, scope):
        say(line)


def _lines(
    arguments: Arguments, names: list[str], settings: ReproduceOptions, out: Path, scope: Scope
) -> Iterator[str]:
    """Measure what is missing, draw and write, and yield what there is to say."""
    common, wanted = arguments.pick(CommonOptions), arguments.pick(_Options).cells
    chosen = [REPRODUCIBLE[name] for name in names]
    for each in chosen:
        if each.alone is not None:
            yield from each.alone(out, settings.trials, common.seed, executor_for(arguments))
    of_data = any(each.alone is None for each in chosen)
    if arguments.pick(DataOptions).data:
        cells = chosen_cells(names, settings.recipe, scope.data, wanted)
        yield from measure_cells(cells, _work(arguments, settings, scope), out)
    elif of_data:
        yield "Nothing is measured without --data; this is what there is."
    for each in chosen:
        yield from each.draw(out, scope)
    if of_data:
        for of_results in scopes(out):
            draw_charts(out, of_results)
        for path, text in rendered(out).items():
            write_text(path, text)
            yield f"{path}: written"
    for each in chosen:
        if each.text is not None:
            yield f"\n{each.text(out, scope)}"


def _work(arguments: Arguments, settings: ReproduceOptions, scope: Scope) -> Work:
    """What all cells share."""
    own, common = arguments.pick(_Options), arguments.pick(CommonOptions)
    beside = Path(own.out).parent / "reproduce-work"
    folder = beside if own.work is None else Path(own.work)
    refuse_unwritable(folder)
    return Work(
        load(arguments),
        scope,
        folder / scope.label,
        settings,
        common.seed,
        common.device,
        progress_for(arguments),
        executor_for(arguments),
        arguments.flag("other_versions"),
    )
