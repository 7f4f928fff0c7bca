"""The page on adding a divergence, followed word for word."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "add-a-divergence.md"


def test_the_page_on_adding_a_divergence_can_be_followed(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
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
