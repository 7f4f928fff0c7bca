"""What the pages under docs/ say: examples are run word for word, tables are what is run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import render
import speed_page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_page_on_adding_a_method_can_be_followed(tmp_path):
    text = (DOCS / "add-a-method.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_methods.py").write_text(example)
    for line in commands.strip().splitlines():
        program, *arguments = line.split()
        assert program == "pseudocoreset"
        short = ["--epochs", "20", "--every", "10"] if arguments[0] == "evaluate" else []
        own = ["--net", "convnet:width=8"] if arguments[0] == "evaluate" else []
        command = [sys.executable, "-m", "pseudocoreset", *arguments, *short, *own]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    losses = re.findall(r'"loss": ([\d.]+)', (tmp_path / "run" / "metrics.jsonl").read_text())
    assert len(losses) == 20
    first, last = (sum(map(float, part)) / 5 for part in (losses[:5], losses[-5:]))
    assert last < first
    assert "my_methods:PleaseTheExperts" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("name", [*speed_page.tables(ROOT / "results"), *render.method_tables()])
def test_table_has_one_place(name):
    pages = [*DOCS.glob("*.md"), ROOT / "README.md"]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert text.count(f"<!-- {name} -->\n") == text.count(f"<!-- /{name} -->") == 1
