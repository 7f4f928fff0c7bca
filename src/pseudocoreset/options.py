"""Command-line options out of dataclasses: names, types and defaults from the fields, help from
the `Args:` section of the docstring."""

import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from inspect import cleandoc
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

import yaml
from jsonargparse import ActionYesNo, ArgumentParser

from pseudocoreset.errors import UserError
from pseudocoreset.run_folder import as_options

T = TypeVar("T")


REQUIRED = ("data", "out")
"""The options that some commands can't do without; what else is missing has its place in a row."""


class Parser(ArgumentParser):
    """A parser whose errors are one sentence."""

    def parse_path(self, path: Any, *given: Any, **more: Any) -> Any:
        """Options from a file; from a run's config.yaml, those that the run was made with."""
        try:
            options = as_options(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            raise UserError(f"{path} is no text in UTF-8: save it as such.") from None
        except (OSError, ValueError, yaml.YAMLError):
            options = None
        if options is None:
            return super().parse_path(path, *given, **more)
        return self.parse_string(yaml.safe_dump(options), path, *given, **more)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
        """Say what is wrong with the command line, and where help is."""
        text, command = " ".join(message.split()), self.prog.replace(" [options]", "")
        missing = re.fullmatch(r"(the following arguments are required: )([\w., ]+)", text)
        if missing:  # jsonargparse names them as in `plan.distill.data, plan.distill.out`
            places = [key.rpartition(".") for key in missing[2].split(", ")]
            names = [f"--{name}" if name in REQUIRED else name for _, _, name in places]
            text = missing[1] + ", ".join(names)
            command = f"{command} {places[0][0].replace('.', ' ')}".rstrip()
        text = re.sub(r'Parser key "(\w+)":', lambda m: f"--{m[1].replace('_', '-')}:", text)
        text = re.sub(r"<class '(\w+)'>", r"\1", text).replace("Expected a int", "Expected an int")
        # A number that may be None: of the reasons, the first is the one that speaks of it.
        text = re.sub(
            r"Does not validate against any of the Union subtypes.*?- (Expected .*?) - .*",
            r"\1",
            text,
        )
        text = re.sub(
            r"\b(plan\.)?(quickstart|experts|distill|evaluate|sample|predict|reproduce)\.(\w+)",
            r"\3",
            text,
        )
        text = re.sub(r"(?<!\d)\.$", "", text)  # after a digit it is the person's
        raise UserError(f"{text}: see `{command} --help`.")


@dataclass(frozen=True)
class DataOptions:
    """Which data.

    Args:
        data: digits, mnist:DIR, fashion-mnist:DIR, cifar10:DIR, cifar100:DIR, tiny-imagenet:DIR,
            folder:DIR or npz:FILE
        image_size: resize images to this side
        holdout: training images kept out of all that trains, equally many a class
    """

    data: str
    image_size: int | None = None
    holdout: int = 0


@dataclass(frozen=True)
class CommonOptions:
    """What every command takes.

    Args:
        seed: seed of all randomness
        device: auto, cpu or cuda
        quiet: no progress, and no figures that --json writes to a file
    """

    seed: int = 0
    device: str = "auto"
    quiet: bool = False


def add_options(
    command: ArgumentParser,
    options: type,
    default: str | None = None,
    none: str | None = None,
    titles: Mapping[str, str] | None = None,
) -> None:
    """Add an option for each field of a dataclass.

    With a `default` in words, options that are not given are None, for the caller to fill in;
    `none` says in words what a field's own default of None means. Fields that have one of `titles`
    stand under it in the help.
    """
    helps = argument_helps(options)
    hints = get_type_hints(options)
    titles = titles or {}
    groups = {title: command.add_argument_group(title) for title in dict.fromkeys(titles.values())}
    for field in fields(options):
        name, hint, text = field.name, hints[field.name], helps[field.name]
        flag = "--" + name.replace("_", "-")
        parser = groups[titles[name]] if name in titles else command
        if default is not None:
            parser.add_argument(flag, type=hint | None, help=f"{text}; default: {default}")
        elif hint is bool:
            parser.add_argument(flag, action="store_true", help=text)
        elif hint == bool | None:
            parser.add_argument(flag, action=ActionYesNo(no_prefix="no-"), default=None, help=text)
        elif field.default is MISSING:
            parser.add_argument(flag, type=hint, required=True, help=text)
        else:
            if field.default is None and none is not None and "default:" not in text:
                text = f"{text}; default: {none}"
            parser.add_argument(flag, type=hint, default=field.default, help=text)


class _Several:
    """The type of an option that may be given several times, or as a list in a file."""

    def __call__(self, value: Any) -> Any:
        return value

    def __repr__(self) -> str:
        return "text, may be given several times"


SEVERAL = _Several()


def as_list(value: Any) -> list[str]:
    """What such an option holds: nothing, one text, or several."""
    if value is None:
        return []
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]


def pick(options: type[T], given: Namespace) -> T:
    """The dataclass out of parsed options."""
    names = [field.name for field in fields(options) if field.name in given]  # type: ignore[arg-type]
    return options(**{name: getattr(given, name) for name in names})


def argument_helps(options: type) -> dict[str, str]:
    """The help of each field, from lines `name: text` under `Args:`; deeper lines go on."""
    helps: dict[str, str] = {}
    name = ""
    for line in cleandoc(options.__doc__ or "").partition("Args:")[2].splitlines():
        found = re.match(r" {4}(\w+): (.*)", line)
        if found:
            name, helps[found[1]] = found[1], found[2]
        elif line.strip():
            helps[name] += " " + line.strip()
    return helps
