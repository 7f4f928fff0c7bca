"""What `COMMAND --help` says of options."""

import re
from importlib import import_module

import pytest

from pseudocoreset.cli import COMMANDS, EXAMPLES, main
from pseudocoreset.cli.arguments import Parser


def help_of(capsys, *words):
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


def option_of(text, flag):
    found = re.search(rf"^  --{flag}\b.*\n(?:   +.*\n)*", text, re.MULTILINE)
    return " ".join(found[0].split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_one_default_at_most_and_no_empty_one(command, capsys):
    text = help_of(capsys, command)
    flags = re.findall(r"^  --([a-z-]+)", text, re.MULTILINE)
    for flag in flags:
        said = option_of(text, flag)
        assert said.count("default:") <= 1, said
        assert not re.search(r"default:\s*$", said), said


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_short_usage_and_an_example_that_is_accepted(command, capsys):
    text = " ".join(help_of(capsys, command).split())
    usage = text.removeprefix("usage: ").split(" [OPTIONS]")[0]
    assert usage.startswith(f"pseudocoreset {command}")
    assert "--" not in usage
    assert text.endswith(f"Example: pseudocoreset {EXAMPLES[command]}")
    first, *words = EXAMPLES[command].split()
    assert first == command
    if command == "plan":
        command, *words = words
    parser = Parser(command, COMMANDS[command])
    import_module(f"pseudocoreset.cli.{command}").configure(parser, words)
    parser.parse(words)


def test_help_says_which_options_must_be_given(capsys):
    text = help_of(capsys, "experts")
    assert option_of(text, "out").endswith("must be given")
    assert option_of(text, "data").endswith("must be given")


def test_help_gives_a_samplers_own_defaults_where_no_protocol_sets_them(capsys):
    text = help_of(capsys, "sample")
    assert option_of(text, "step").endswith("default: 0.03")
    assert option_of(text, "prior").endswith("default: the protocol's")


def test_help_names_the_few_that_use_an_option(capsys):
    text = help_of(capsys, "reproduce")
    assert " regression, classification, exact: trials of each" in option_of(text, "trials")


def test_arguments_may_stand_between_flags_and_after_them(capsys, tmp_path):
    given = ["reproduce", "table1", "--list", "dsa", "--out", str(tmp_path), "pictures"]
    assert main(given) == 0
    said = capsys.readouterr().out
    assert all(f"{name}: " in said for name in ("table1", "dsa", "pictures"))
