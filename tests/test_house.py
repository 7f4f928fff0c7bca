"""How the modules stand to each other."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pseudocoreset as pc

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "pseudocoreset").rglob("*.py"))


def test_imports_go_one_way():
    """By the layers in pyproject.toml."""
    program = "from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-c", program, "--no-cache", "--config", "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def files_with(pattern: str) -> set[str]:
    return {path.name for path in SOURCES if re.search(pattern, path.read_text(encoding="utf-8"))}


def test_only_likelihoods_know_the_cross_entropy():
    assert files_with(r"cross_entropy") == {"likelihoods.py"}


def test_library_names_parameters_and_no_flags():
    """A message of the library has `name`; the command line makes it --name."""
    library = [
        path for path in SOURCES if "cli" not in path.parts and "reproduce" not in path.parts
    ]
    for path in library:
        errors = re.findall(r"UserError\((.*?)\n\s*\)", path.read_text(encoding="utf-8"), re.DOTALL)
        assert not [error for error in errors if re.search(r"[\s\"(]--[a-z]", error)], path


@pytest.mark.parametrize("command", ["distill", "evaluate"])
def test_help_of_a_command_does_not_import_what_it_does_not_need(command):
    program = (
        "import sys; from pseudocoreset.cli import main; main([sys.argv[1], '--help']);"
        "assert not {'matplotlib', 'tensorboard', 'torch._dynamo'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, command], check=True, capture_output=True)


def public_functions():
    """Functions and methods with their docstrings; an override may leave them to its base."""
    for name in pc.__all__:
        found = getattr(pc, name)
        if inspect.isfunction(found) and name != "sample_posterior":
            yield name, found, inspect.getdoc(found)
        elif inspect.isclass(found) and found.__module__.startswith("pseudocoreset"):
            for own, member in vars(found).items():
                function = member.__func__ if isinstance(member, staticmethod) else member
                if inspect.isfunction(function) and not own.startswith("_"):
                    documented = [inspect.getdoc(getattr(c, own, None)) for c in found.__mro__]
                    yield f"{name}.{own}", function, "\n".join(filter(None, documented))


@pytest.mark.parametrize(("name", "function", "documented"), list(public_functions()))
def test_public_docstring_explains_every_argument(name, function, documented):
    arguments = [a for a in inspect.signature(function).parameters if a not in ("self", "cls")]
    missing = [a for a in arguments if not re.search(rf"^\s*{a}: ", documented, re.MULTILINE)]
    assert not missing, name
