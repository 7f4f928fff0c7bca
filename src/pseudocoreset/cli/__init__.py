"""The command line. Each command is a module, imported when it is run."""

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

COMMANDS = {
    "quickstart": "Run all steps on a small data set, in about a minute.",
    "experts": "Train networks (experts) on the whole data set.",
    "distill": "Make a coreset.",
    "evaluate": "Score a coreset or a posterior.",
    "sample": "Sample a coreset's posterior and store it.",
    "predict": "Predict your own images or rows, with uncertainty.",
    "tune": "Search settings for your own data.",
    "compare": "Compare the predictions of two posteriors.",
    "reproduce": "Measure the paper's tables.",
    "report": "Write the page of a run again.",
    "info": "Describe a data set, an expert store, a run, a search, a coreset or a posterior.",
    "plan": "Estimate the disk, memory and time of experts, distill, evaluate or tune.",
    "export": "Write a coreset for other programs.",
}
EXAMPLES = {
    "quickstart": "quickstart --data diabetes",
    "experts": "experts --data cifar10:DIR --num 20 --epochs 30 --out experts",
    "distill": "distill --data cifar10:DIR --experts experts --ipc 10 --out run",
    "evaluate": "evaluate run --data cifar10:DIR",
    "sample": "sample run --out posterior.safetensors",
    "predict": "predict posterior.safetensors my-photos --csv predictions.csv",
    "tune": "tune --data folder:DIR --ipc 10 --trials 20 --out tune",
    "compare": "compare run full --data cifar10:DIR",
    "reproduce": "reproduce table1 --data cifar10:DIR",
    "report": "report run",
    "info": "info run",
    "plan": "plan distill --data cifar10:DIR --experts experts --ipc 10",
    "export": "export run --to png --out pictures",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for a user's mistake, 130 when interrupted.

    Args:
        arguments: the words after `pseudocoreset`; default: those of this process
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if words[0] == "--version":
        print(f"pseudocoreset {_version()}")
        return 0
    command = words[0]
    if command not in COMMANDS:
        close = get_close_matches(command, COMMANDS, 1)
        hint = f"; did you mean {close[0]}?" if close else "."
        shown = "".join(c if c.isprintable() else "?" for c in command)
        print(f"pseudocoreset: there is no command {shown}{hint}", file=sys.stderr)
        print("Run `pseudocoreset` for the list of commands.", file=sys.stderr)
        return 2
    with _without_collecting():
        from pseudocoreset.cli.run import run_command

        module = import_module(f"pseudocoreset.cli.{command}")
    return run_command(module, command, COMMANDS[command], words[1:])


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Import without looking for garbage, which takes a sixth of the time and finds none."""
    first, collects = "torch" not in sys.modules, gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
    if first:
        gc.freeze()  # nor is it looked through later


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: pseudocoreset COMMAND [OPTIONS]",
            "",
            "Turn a large labelled data set into a tiny synthetic one, a Bayesian pseudocoreset.",
            "",
            *lines,
            "",
            "`pseudocoreset COMMAND --help` explains a command's options.",
        ]
    )


def _version() -> str:
    try:
        return version("pseudocoreset")
    except PackageNotFoundError:
        return "source"


def main_of_script() -> None:
    """The entry point of the installed command."""
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:  # before the command began
        print("pseudocoreset: interrupted.", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
