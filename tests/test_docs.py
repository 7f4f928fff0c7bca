"""What the pages under docs/ say: commands are followed word for word, tables hold what is run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pseudocoreset
import speed_page
from pseudocoreset.divergences import METHODS
from pseudocoreset.recipes import OF_A_SUM, TUNED, recipe_for
from pseudocoreset.settings import USED_BY

DOCS = Path(__file__).parent.parent / "docs"


def test_the_page_on_adding_a_divergence_can_be_followed(tmp_path):
    text = (DOCS / "add-a-divergence.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_methods.py").write_text(example)
    for line in commands.strip().splitlines():
        program, *arguments = line.split()
        assert program == "pseudocoreset"
        short = ["--epochs", "20", "--every", "10"] if arguments[0] == "evaluate" else []
        command = [sys.executable, "-m", "pseudocoreset", *arguments, *short]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    losses = re.findall(r'"loss": ([\d.]+)', (tmp_path / "run" / "metrics.jsonl").read_text())
    assert len(losses) == 20
    first, last = (sum(map(float, part)) / 5 for part in (losses[:5], losses[-5:]))
    assert last < first
    assert "my_methods:PleaseTheExperts" in (tmp_path / "run" / "report.html").read_text()


def test_its_example_can_be_made_part_of_the_package(tmp_path):
    text = (DOCS / "add-a-divergence.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    source = Path(pseudocoreset.__file__).parent
    copied = tmp_path / "pseudocoreset"
    shutil.copytree(source, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "divergences" / "please.py").write_text(example)
    for name, before, after in (
        (
            "divergences/__init__.py",
            "from pseudocoreset.engine.plugins",
            "from pseudocoreset.divergences.please import PleaseTheExperts\n"
            "from pseudocoreset.engine.plugins",
        ),
        ("divergences/__init__.py", '"bpc-w": ', '"please": PleaseTheExperts,\n    "bpc-w": '),
        ("settings.py", '"from_epoch": _FUN', '"from_epoch": ("please",) + _FUN'),
    ):
        content = (copied / name).read_text(encoding="utf-8")
        assert content.count(before) == 1
        (copied / name).write_text(content.replace(before, after), encoding="utf-8")
    for line in (
        "experts --data digits --net convnet:width=4 --num 1 --epochs 1 --out experts",
        "distill --data digits --experts experts --method please --from-epoch 1 --ipc 1 --steps 2",
    ):
        command = [sys.executable, "-m", "pseudocoreset", *line.split(), "--device", "cpu"]
        command += ["--out", "run"] if line.startswith("distill") else []
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "coreset.safetensors").exists()


def given(option, value, ipc, method):
    """What a person gives for a recipe's value: a learning rate for the mean over the images."""
    return value * ipc * 10 if option == "lr_images" and method in OF_A_SUM else value


def recipe_words(option, method):
    """The paper's value at 1, 10 and 50 images per class; once where they are all the same."""
    if method not in USED_BY.get(option, METHODS):
        return "–"
    values = [
        given(option, getattr(recipe_for("cifar10", ipc, method), option), ipc, method)
        for ipc in (1, 10, 50)
    ]
    values = ["the last" if v is None else f"{v:.10g}".replace("e-0", "e-") for v in values]
    return values[0] if len(set(values)) == 1 else " · ".join(values)


def test_the_table_of_options_is_that_of_the_recipes():
    general = ("steps", "lr_images", "momentum", "average", "batch")
    table = [["option", *METHODS], ["---"] * (len(METHODS) + 1)]
    for option in (*general, *USED_BY):
        flag = f"`--{option.replace('_', '-')}`"
        table.append([flag, *(recipe_words(option, method) for method in METHODS)])
    expected = "\n".join("| " + " | ".join(row) + " |" for row in table)
    if expected not in (DOCS / "methods.md").read_text(encoding="utf-8"):
        pytest.fail(f"the table of options in docs/methods.md should be:\n{expected}")


def test_the_table_of_tuned_recipes_is_what_they_change():
    lines = []
    for (data, ipc, method), changes in TUNED.items():
        assert data == "cifar10"
        words = (
            f"`--{name.replace('_', '-')} {given(name, value, ipc, method):.10g}`"
            for name, value in changes.items()
        )
        lines.append(f"| {ipc} | `{method}` | {', '.join(words)} |")
    expected = "\n".join(["| --- | --- | --- |", *lines, ""])
    if expected not in (DOCS / "methods.md").read_text(encoding="utf-8"):
        pytest.fail(f"the table of tuned recipes in docs/methods.md should be:\n{expected}")


@pytest.mark.parametrize("page", speed_page.PAGES, ids=lambda page: page.name)
def test_figures_of_speed_are_those_that_were_measured(page):
    text = page.read_text(encoding="utf-8")
    made = speed_page.tables(DOCS.parent / "results")
    assert speed_page.filled(text, made) == text, "run benchmarks/speed_page.py"
    assert "| 7 |" in speed_page.filled(text, dict.fromkeys(made, "| 7 |\n"))


def test_every_table_of_speed_has_its_place():
    pages = "".join(page.read_text(encoding="utf-8") for page in speed_page.PAGES)
    for name in speed_page.tables(DOCS.parent / "results"):
        assert pages.count(f"<!-- {name} -->\n") == pages.count(f"<!-- /{name} -->") == 1
