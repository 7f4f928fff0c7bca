"""`report`: write the page of a run again."""

from pathlib import Path

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.shared import CommonOptions, add_common
from pseudocoreset.engine.text import printable
from pseudocoreset.report import read_run, write_report


def configure(parser: Parser, words: list[str]) -> None:  # noqa: ARG001
    """Define the options of the command."""
    parser.positional("run", "the folder of a run")
    add_common(parser)


def run(arguments: Arguments) -> None:
    """Write a run's page again."""
    folder = Path(arguments.text("run"))
    found = read_run(folder)
    page = folder / "report.html"
    write_report(page, f"Pseudocoreset of {printable(found.config.get('data', '?'))}", [found])
    if not arguments.pick(CommonOptions).quiet:
        print(page.resolve())
