"""What the pages under docs/ say: commands are followed word for word, tables hold what is run."""

import re
import subprocess
import sys
from pathlib import Path

from pseudocoreset.divergences import METHODS
from pseudocoreset.recipes import recipe_for
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


def recipe_words(option, method):
    """The paper's value at 1, 10 and 50 images per class; once where they are all the same."""
    if method not in USED_BY.get(option, METHODS):
        return "–"
    recipes = [recipe_for("cifar10", ipc, method) for ipc in (1, 10, 50)]
    values = [getattr(recipe, option) for recipe in recipes]
    values = ["the last" if v is None else f"{v:g}".replace("e-0", "e-") for v in values]
    return values[0] if len(set(values)) == 1 else " · ".join(values)


def test_the_table_of_options_is_that_of_the_recipes():
    general = ("steps", "lr_images", "momentum", "average", "batch")
    table = [["option", *METHODS], ["---"] * (len(METHODS) + 1)]
    for option in (*general, *USED_BY):
        flag = f"`--{option.replace('_', '-')}`"
        table.append([flag, *(recipe_words(option, method) for method in METHODS)])
    expected = "\n".join("| " + " | ".join(row) + " |" for row in table)
    assert expected in (DOCS / "methods.md").read_text(encoding="utf-8")
