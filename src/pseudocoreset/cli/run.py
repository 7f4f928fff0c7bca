"""Run a command: parse options, run, and turn errors into one sentence and an exit code."""

import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import yaml

from pseudocoreset.cli import EXAMPLES
from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

LONGEST_SENTENCE = 2000
"""The longest error message."""
GIVEN_EACH_TIME = ("config", "print_config", "trust_code", "other_versions")
"""Options that are not allowed in a configuration file."""


def run_command(module: Any, name: str, text: str, words: Sequence[str]) -> int:
    """Run a command's module; the exit code.

    Args:
        module: has `configure(parser, words)` and `run(arguments)`
        name: the command
        text: its line of help
        words: the words after it
    """
    parser = Parser(f"pseudocoreset {name}", text, f"pseudocoreset {EXAMPLES[name]}")
    import torch

    shown: set[str] = set()  # each warning is shown once
    try:
        module.configure(parser, list(words))
        arguments = parser.parse(list(words))
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: _show_warning(message, parser, shown)
            _run(module, arguments)
    except UserError as error:
        return _refused(_with_flags(str(error), parser).rstrip("."))
    except torch.OutOfMemoryError:
        return _refused(
            "the GPU's memory is too small for this: give fewer points, a smaller network, or "
            "--device cpu; `pseudocoreset plan` estimates it beforehand"
        )
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "DefaultCPUAllocator" not in str(error):
            raise
        return _refused(
            "this machine's memory is too small for this: give fewer points or samples, or a "
            "smaller network"
        )
    except KeyboardInterrupt:
        print("pseudocoreset: interrupted. Run the same command to resume.", file=sys.stderr)
        return 130
    except PermissionError as error:
        return _refused(f"{error.filename} can't be read or written: check its permissions")
    except BrokenPipeError:
        raise
    except OSError as error:  # a name that is too long, a full disk
        return _refused(f"{error.filename} can't be used ({error.strerror}): give another place")
    except SystemExit as error:  # --help
        return int(error.code or 0)
    return 0


def _run(module: Any, arguments: Arguments) -> None:
    if arguments.flag("print_config"):
        resolved = getattr(module, "resolved_config", Arguments.as_dict)
        shown = {k: v for k, v in resolved(arguments).items() if k not in GIVEN_EACH_TIME}
        print(yaml.safe_dump(shown, sort_keys=False), end="")
    else:
        module.run(arguments)


def _refused(why: str) -> int:
    end = "" if why.endswith("?") else "."
    print(f"pseudocoreset: {printable(why, LONGEST_SENTENCE)}{end}", file=sys.stderr)
    return 2


def _show_warning(message: Warning | str, parser: Parser, shown: set[str]) -> None:
    text = printable(_with_flags(str(message), parser), LONGEST_SENTENCE)
    if text not in shown:
        shown.add(text)
        print(f"pseudocoreset: warning: {text}", file=sys.stderr)


def _with_flags(text: str, parser: Parser) -> str:
    """The library names parameters in backticks; the command line knows them as flags."""

    def flag(match: "re.Match[str]") -> str:
        name = match[1]
        return f"--{name.replace('_', '-')}" if parser.has(name) else name

    return re.sub(r"`([a-z][a-z0-9_]*)`", flag, text)
