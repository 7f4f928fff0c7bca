"""Make flags from the fields of options, and read values from flags and YAML files."""

import argparse
import re
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from pseudocoreset.engine.options import Options, default_of, limits_of, parsed, type_of
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.run_folder import is_plain

T = TypeVar("T", bound=Options)


class _Formatter(argparse.HelpFormatter):
    """Lines do not break at hyphens, which names of data have, nor in an example."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002
        return indent + text


class _ArgumentParser(argparse.ArgumentParser):
    def format_help(self) -> str:
        """With a short usage line: the options are listed below it."""
        names = [
            f"[{each.dest} ...]" if each.nargs == "*" else each.dest
            for each in self._get_positional_actions()
        ]
        self.usage = " ".join(("%(prog)s", *names, "[OPTIONS]"))
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}: see `{self.prog} --help`.")


@dataclass(frozen=True)
class Arguments:
    """The options given on the command line or in a configuration file."""

    values: dict[str, Any]
    from_file: dict[str, Path]
    """The options that a file gave, with its path."""
    kinds: tuple[type[Options], ...]

    def pick(self, options: type[T]) -> T:
        """The options of one dataclass; those that were not given are the default.

        Args:
            options: the dataclass
        """
        names = [each.name for each in fields(options) if each.name in self.values]
        return options(**{name: self.values[name] for name in names})

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        return name in self.values

    def flag(self, name: str) -> bool:
        """Whether an option that is on or off is on."""
        return self.values.get(name) is True

    def text(self, name: str) -> str:
        """A positional argument."""
        return str(self.values[name])

    def texts(self, name: str) -> list[str]:
        """A positional argument that takes several."""
        return [str(value) for value in self.values.get(name) or []]

    def source(self, name: str) -> Path | None:
        """The file that gave an option, if one did."""
        return self.from_file.get(name)

    def as_dict(self) -> dict[str, Any]:
        """All options with their values, as a configuration file has them."""
        content: dict[str, Any] = {}
        for kind in self.kinds:
            content |= self.pick(kind).as_dict()
        return {k: list(v) if isinstance(v, tuple) else v for k, v in content.items()}


@dataclass
class Parser:
    """The flags of one command."""

    prog: str
    description: str
    example: str = ""
    _kinds: list[type[Options]] = field(default_factory=list)
    _owners: dict[str, type[Options]] = field(default_factory=dict)
    _hints: list[Callable[[str], str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._parser = _ArgumentParser(
            prog=self.prog,
            description=self.description,
            formatter_class=_Formatter,
            epilog=self.example and f"Example: {self.example}",
            allow_abbrev=False,
            add_help=True,
        )

    def positional(self, name: str, help: str, nargs: str | None = None) -> None:
        """Add an argument without a flag.

        Args:
            name: its name
            help: one line
            nargs: `+`, `*` or `?`
        """
        more = {} if nargs is None else {"nargs": nargs}
        self._parser.add_argument(name, help=help, **more)  # type: ignore[arg-type]

    def add(
        self,
        options: type[Options],
        title: str | None = None,
        default: str = "",
        of: Collection[str] | None = None,
        without: Collection[str] = (),
        users: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        """Add a flag for each field of a dataclass.

        Args:
            options: the dataclass
            title: a heading for its flags in the help
            default: what the default is, in words, where it is not the field's own
            of: the fields with that default; by default all
            without: fields that the command has no use for
            users: what a field has an effect on, where the help names it
        """
        group: Any = self._parser if title is None else self._parser.add_argument_group(title)
        for each in fields(options):
            if each.name in without:
                continue
            owner = self._owners.get(each.name)
            if owner is not None:
                raise UserError(
                    f"{options.__name__} has an option {each.name}, which the command "
                    f"{self.prog} has too: give it another name."
                )
            self._owners[each.name] = options
            in_words = default if of is None or each.name in of else ""
            _add_flag(group, options, each, in_words, ", ".join(users(each.name)))
        self._kinds.append(options)

    def has(self, name: str) -> bool:
        """Whether there is a flag of this name."""
        return name in self._owners

    def hint(self, hint: Callable[[str], str | None]) -> None:
        """Add a hint for unknown flags.

        Args:
            hint: a sentence for an unknown option's name, or None
        """
        self._hints.append(hint)

    def parse(self, words: Sequence[str]) -> Arguments:
        """Parse the command line. Configuration files give values for flags that are missing.

        Args:
            words: the command line
        """
        found, unknown = self._parser.parse_known_intermixed_args(words)
        if unknown:
            raise UserError(self._unknown(unknown[0]))
        given = {k: v for k, v in vars(found).items() if v is not None}
        values: dict[str, Any] = {}
        from_file: dict[str, Path] = {}
        for path in config_files(words):
            content = read_config_file(path)
            for name, value in content.items():
                if name not in self._owners:
                    known = self._unknown(f"--{name.replace('_', '-')}")
                    raise UserError(f"{path}: {known}")
                values[name] = parsed(self._owners[name], name, value)
                from_file[name] = path
                if name == "trust_code" and values[name]:
                    raise UserError(
                        f"{path} is a file and can't set `trust_code`: give it yourself.", name
                    )
        for name, value in given.items():
            if name in self._owners:
                values[name] = parsed(self._owners[name], name, value)
            else:
                values[name] = value
            from_file.pop(name, None)
        return Arguments(values, from_file, tuple(self._kinds))

    def require(self, arguments: Arguments, *names: str) -> None:
        """Refuse arguments without these options."""
        missing = [f"--{name.replace('_', '-')}" for name in names if not arguments.has(name)]
        if missing:
            raise UserError(f"{', '.join(missing)} must be given: see `{self.prog} --help`.")

    def _unknown(self, word: str) -> str:
        name = word.split("=")[0]
        option = name.lstrip("-").replace("-", "_")
        for hint in self._hints:
            text = hint(option)
            if text is not None:
                return text
        close = get_close_matches(option, self._owners, 1)
        nearest = f"; did you mean --{close[0].replace('_', '-')}?" if close else "."
        return f"{printable(name)} is not known here{nearest} See `{self.prog} --help`."


def _add_flag(group: Any, options: type[Options], each: Any, default: str, users: str) -> None:
    limits, hint = limits_of(each), type_of(options, each.name)
    flag = "--" + each.name.replace("_", "-")
    value = default_of(each)
    if "default:" in limits.help:
        shown = ""
    elif default:
        shown = f"; default: {default}"
    elif value == "":
        shown = "; must be given"
    elif value is None or value is False or value == ():
        shown = ""
    else:
        shown = f"; default: {value}"
    text = ((users and f"{users}: ") + limits.help + shown).replace("%", "%%")
    if hint is bool and value is False and not default:
        group.add_argument(flag, action="store_const", const=True, default=None, help=text)
    elif hint is bool or hint == bool | None:
        action = argparse.BooleanOptionalAction
        group.add_argument(flag, action=action, default=None, help=text)
    elif hint == tuple[str, ...]:
        metavar = each.name.upper()
        group.add_argument(flag, action="append", default=None, metavar=metavar, help=text)
    else:
        kinds = "|".join(limits.choices) if limits.choices else each.name.upper()
        group.add_argument(flag, default=None, metavar=kinds, help=text)


def given_value(words: Sequence[str], name: str) -> str | None:
    """The last value of a flag on the command line, before all flags are known.

    Args:
        words: the command line
        name: the option's name
    """
    flag, found = "--" + name.replace("_", "-"), None
    for place, word in enumerate(words):
        if word == flag and place + 1 < len(words):
            found = words[place + 1]
        elif word.startswith(flag + "="):
            found = word[len(flag) + 1 :]
    return found


def config_files(words: Sequence[str]) -> list[Path]:
    """The configuration files on the command line, in order."""
    found = []
    for place, word in enumerate(words):
        if word == "--config" and place + 1 < len(words):
            found.append(Path(words[place + 1]))
        elif word.startswith("--config="):
            found.append(Path(word.removeprefix("--config=")))
    return found


RUN_FACTS = ("data", "data_fingerprint", "experts", "nets", "init_coreset")
"""Entries of a run's configuration that are not options."""


def read_config_file(path: Path) -> dict[str, Any]:
    """The options in a YAML file; of a run's `config.yaml`, those it was made with.

    Args:
        path: the file
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}).", "config") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text.", "config") from None
    except Exception:  # a value that is not what its tag says can raise nearly anything
        content = None
    if not isinstance(content, dict) or not is_plain(content):
        raise UserError(
            f"{path} is not a configuration file: give YAML with lines `option: value`.", "config"
        )
    if "data_fingerprint" in content:
        nets = content.get("nets")
        content = {k: v for k, v in content.items() if k not in RUN_FACTS}
        if "learn_labels" in content:  # of version 0.1
            content["labels"] = "learned" if content.pop("learn_labels") is True else "hard"
        if nets is not None:
            content["net"] = nets
    found = {}
    for name, value in content.items():
        if not re.fullmatch(r"[A-Za-z][\w-]*", name):
            raise UserError(f"{path}: {printable(name)} is not an option.", "config")
        found[name.replace("-", "_")] = value
    return found
