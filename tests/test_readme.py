"""The README is true: its commands and its example are what is run."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from pseudocoreset.cli import COMMANDS
from pseudocoreset.cli.arguments import Parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def without_numbers(text: str) -> str:
    return re.sub(r"[\d.]+", "0", text)


def test_ci_runs_the_test_command_word_for_word():
    (command,) = [block.strip() for block in blocks("sh") if "pytest" in block]
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_readme_is_short():
    assert len(README.split()) <= 700


def test_example_runs(tmp_path):
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"accuracy ([\d.]+), nll [\d.]+, ece [\d.]+", done.stdout)
    assert float(found[1]) > 0.5
    (printed,) = blocks("text")
    assert without_numbers(done.stdout) == without_numbers(printed)
    assert (tmp_path / "digits.safetensors").exists()


(commands,) = [block for block in blocks("sh") if block.startswith("pseudocoreset experts")]


@pytest.mark.parametrize("line", commands.strip().splitlines(), ids=lambda line: line.split()[1])
def test_commands_on_real_data_are_accepted(line):
    program, command, *words = line.split()
    assert program == "pseudocoreset"
    parser = Parser(command, COMMANDS[command])
    import_module(f"pseudocoreset.cli.{command}").configure(parser, words)
    parser.parse(words)
