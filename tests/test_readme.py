"""The README's words are true: its commands and its example are what is run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pseudocoreset.cli import make_parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_ci_runs_the_test_command_word_for_word():
    (command,) = [block.strip() for block in blocks("sh") if "pytest" in block]
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_example_runs(tmp_path):
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"[\d.]+%, NLL [\d.]+, 10 samples", done.stdout)
    assert (tmp_path / "coreset.safetensors").exists()


@pytest.mark.parametrize("first", ["experts", "reproduce", "plan"])
def test_the_commands_on_real_data_are_accepted(first):
    (commands,) = [block for block in blocks("sh") if block.startswith(f"pseudocoreset {first}")]
    for line in commands.strip().splitlines():
        name, *arguments = line.split()
        assert name == "pseudocoreset"
        make_parser().parse_args(arguments)
