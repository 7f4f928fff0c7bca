"""`export`: write a coreset for other programs."""

from dataclasses import dataclass

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.shared import CommonOptions, add_common
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.options import Options, option
from pseudocoreset.errors import UserError
from pseudocoreset.gallery import coreset_path


@dataclass(frozen=True)
class _Options(Options):
    to: str = option(
        "png",
        "png (a folder of images), npz, or hf (a Hugging Face data set folder)",
        choices=("png", "npz", "hf"),
    )
    out: str = option("", "the folder or file to write")


def configure(parser: Parser, words: list[str]) -> None:  # noqa: ARG001
    """Define the options of the command."""
    parser.positional("coreset", "a coreset, the folder of a run, or gallery:NAME-IPC")
    parser.add(_Options)
    add_common(parser)


def run(arguments: Arguments) -> None:
    """Write a coreset for other programs."""
    own = arguments.pick(_Options)
    if not own.out:
        raise UserError("`out` must be given: the file or folder to write.", "out")
    path = coreset_path(arguments.text("coreset"))
    written = Pseudocoreset.load(path).export(own.to, own.out)
    if not arguments.pick(CommonOptions).quiet:
        print(written)
