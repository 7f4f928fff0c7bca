"""`reproduce`: measure the paper's tables, cell by cell, and render them."""

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
from pseudocoreset.reproduce.beyond.measure import measure_beyond
from pseudocoreset.reproduce.beyond.page import beyond_table_text, render_beyond
from pseudocoreset.reproduce.cells import (
    BEYOND,
    COST,
    COVARIANCE,
    EXACT,
    FIDELITY,
    LOGITS,
    NAMES,
    OF_PAPER,
    PICTURES,
    REGRESSION,
    TABLE2,
    Scope,
    chosen_cells,
    chosen_names,
)
from pseudocoreset.reproduce.covariance.measure import covariance_table, measure_covariance
from pseudocoreset.reproduce.exact.measure import measure_exact
from pseudocoreset.reproduce.exact.problems import PROBLEMS
from pseudocoreset.reproduce.exact.show import draw_exact, exact_table, parts_table
from pseudocoreset.reproduce.fidelity.measure import measure_fidelity
from pseudocoreset.reproduce.fidelity.pictures import draw_fidelity
from pseudocoreset.reproduce.fidelity.show import fidelity_text
from pseudocoreset.reproduce.measure_cell import ReproduceOptions, Work
from pseudocoreset.reproduce.page import markdown_of, rendered, scopes
from pseudocoreset.reproduce.pictures import draw_charts, draw_pictures
from pseudocoreset.reproduce.run import listing, measure_missing
from pseudocoreset.reproduce.small import STUDIES
from pseudocoreset.reproduce.small.show_classification import classification_table
from pseudocoreset.reproduce.small.show_regression import draw_traces, regression_table
from pseudocoreset.scale import Executor

_ALWAYS = {"names", "list", "out", "quiet", "config", "print_config", "trust_code"}
_SCOPE = {"data", "holdout", "image_size"}
_MEASURED = _SCOPE | {"cells", "work", "seed", "device", "workers", "ray"}
_MADE = _MEASURED | {"num", "epochs", "lr", "from_epoch", "half", "steps", "other_versions"}
_KEPT = _MADE | {"seeds", "recipe", "keep_coresets"}
USES = {
    **dict.fromkeys(NAMES, _MADE | {"seeds", "recipe"}),
    **dict.fromkeys(("table1", TABLE2, PICTURES), _KEPT),
    BEYOND: _MADE | {"coresets", "chains"},
    FIDELITY: _MADE - {"steps"} | {"chains"},
    COST: _SCOPE,
    EXACT: {"trials", "seed", "workers", "ray"},
    **{name: {"trials", "seed"} for name in STUDIES},
    COVARIANCE: {"seed"},
}
"""The options that have an effect on each name, beside those that always have one."""
TABLE2_DATA = "cifar100"
"""The data of Table 2 that are listed and shown if no data are given."""


@dataclass(frozen=True)
class _Options(Options):
    list: bool = option(False, "list what is measured and how long it took")
    out: str = option("results", "folder of the results")
    work: str | None = option(
        None, "folder for experts and runs; default: reproduce-work beside the results"
    )
    cells: str | None = option(None, "cells to measure, such as fbpc/10,random/*; default: all")
    keep_coresets: bool = option(False, "store all coresets, not only those of FBPC")


def configure(parser: Parser, words: list[str]) -> None:  # noqa: ARG001
    """Define the options of the command."""
    parser.positional("names", f"{', '.join(NAMES)}; default: {', '.join(OF_PAPER)}", "*")
    parser.add(_Options)
    parser.add(DataOptions, default="measure nothing, render only", of=["data"])
    parser.add(ReproduceOptions)
    parser.add(ScaleOptions)
    parser.add(ResumeOptions)
    add_common(parser)


def run(arguments: Arguments) -> None:
    """Measure missing cells of the paper's tables and render the tables."""
    own, common = arguments.pick(_Options), arguments.pick(CommonOptions)
    source, settings = arguments.pick(DataOptions), arguments.pick(ReproduceOptions)
    names = chosen_names(arguments.texts("names"))
    out = Path(own.out)
    usual = TABLE2_DATA if names == [TABLE2] else paper.DATA
    name_of_data = (source.data or usual).partition(":")[0]
    scope = Scope(name_of_data, source.holdout, source.image_size)
    settings.check()
    _refuse_unused(arguments, names)
    if own.list:
        if own.cells is not None:
            raise UserError("`list` lists all cells: leave `cells` out.", "list")
        print(listing(names, out, scope))
        return
    if EXACT in names:
        _exact(out, settings.trials, common, executor_for(arguments))
    for name in [each for each in STUDIES if each in names]:
        _study(name, out, settings.trials, common)
    if COVARIANCE in names:
        _covariance(out, common)
    names = [name for name in names if name not in (EXACT, *STUDIES, COVARIANCE)]
    if not names:
        return
    if own.cells is not None and not source.data:
        raise UserError("`cells` needs `data`: give both, or neither.", "cells")
    cells = chosen_cells(names, settings.recipe, scope.data, own.cells)
    say = (lambda *_: None) if common.quiet else print
    refuse_unwritable(out)
    if source.data:
        folder = Path(own.work) if own.work is not None else out.parent / "reproduce-work"
        refuse_unwritable(folder)
        place = folder / scope.label
        progress = progress_for(arguments)
        data = load(arguments)
        work = Work(
            data,
            scope,
            place,
            settings,
            common.seed,
            common.device,
            progress,
            executor_for(arguments),
            arguments.flag("other_versions"),
        )
        of_paper = [cell for cell in cells if cell.table not in (BEYOND, FIDELITY)]
        for line in measure_missing(of_paper, work, out, own.keep_coresets):
            say(line)
        for line in measure_beyond([c for c in cells if c.table == BEYOND], work, out):
            say(line)
        for line in measure_fidelity([c for c in cells if c.table == FIDELITY], work, out):
            say(line)
    else:
        say("Nothing is measured without --data; this is what there is.")
    if PICTURES in names:
        for line in draw_pictures(out, scope):
            say(line)
    for of_results in scopes(out):
        draw_charts(out, of_results)
    for path, text in rendered(out).items():
        write_text(path, text)
        say(f"{path}: written")
    if FIDELITY in names:
        for line in draw_fidelity(out):
            say(line)
    if BEYOND in names:
        for path, text in render_beyond(out, scope).items():
            write_text(path, text)
            say(f"{path}: written")
    for name in names:
        if name == BEYOND:
            say(f"\n{beyond_table_text(out, scope)}")
        elif name == FIDELITY:
            say(f"\n{fidelity_text(out)}")
        elif name not in (PICTURES, LOGITS):
            say(f"\n{markdown_of(name, out, scope)}")


def _refuse_unused(arguments: Arguments, names: list[str]) -> None:
    """Refuse options that have no effect on anything that is named."""
    used = _ALWAYS.union(*(USES[name] for name in names))
    for given in arguments.values:
        if given not in used:
            raise UserError(f"`{given}` has no effect on {', '.join(names)}: leave it out.", given)


def _exact(out: Path, trials: int, common: CommonOptions, executor: Executor | None) -> None:
    """Measure the models whose posteriors are known, and show what there is of them."""
    say = (lambda *_: None) if common.quiet else print
    refuse_unwritable(out)
    for line in measure_exact(list(PROBLEMS), out, trials, common.seed, executor):
        say(line)
    for line in draw_exact(out):
        say(line)
    say(f"\n{exact_table(out).markdown()}\n{parts_table(out).markdown()}")


def _study(name: str, out: Path, trials: int, common: CommonOptions) -> None:
    """Measure a small network, and show what there is of it."""
    say = (lambda *_: None) if common.quiet else print
    refuse_unwritable(out)
    for line in STUDIES[name].measure(out, trials, common.seed):
        say(line)
    if name == REGRESSION:
        for line in draw_traces(out):
            say(line)
    table = regression_table if name == REGRESSION else classification_table
    say(f"\n{table(out).markdown()}")


def _covariance(out: Path, common: CommonOptions) -> None:
    """Measure a small network's variances, and show what there is of them."""
    say = (lambda *_: None) if common.quiet else print
    refuse_unwritable(out)
    for line in measure_covariance(out, common.seed):
        say(line)
    say(f"\n{covariance_table(out).markdown()}")
