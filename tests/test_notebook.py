"""The notebook runs from its first cell to its last, and shows what is stored in it."""

import json
import re
import subprocess
import sys
from pathlib import Path

from notebook_page import NOTEBOOK, notebook_parts

ROOT = Path(__file__).parent.parent


def test_notebook_runs_and_gives_what_it_shows(tmp_path):
    text = (ROOT / "examples" / NOTEBOOK).read_text(encoding="utf-8")
    stored, copy = json.loads(text), tmp_path / NOTEBOOK
    copy.write_text(text, encoding="utf-8")
    # A program of its own, without the checks of types, which take longer than the training.
    subprocess.run([sys.executable, ROOT / "tools" / "run_notebook.py", copy], check=True)
    found = json.loads(copy.read_text(encoding="utf-8"))
    kinds = [[_kinds(out) for out in cell.get("outputs", ())] for cell in found["cells"]]
    assert kinds == [[_kinds(out) for out in cell.get("outputs", ())] for cell in stored["cells"]]
    assert _accuracies(found)[0] > _accuracies(found)[1]  # a coreset beside random images
    for mine, theirs in zip(_accuracies(found), _accuracies(stored), strict=True):
        assert abs(mine - theirs) < 0.08


def _kinds(output):
    return sorted(output.get("data", [output["output_type"]]))


def _accuracies(notebook):
    outputs = [out for cell in notebook["cells"] for out in cell.get("outputs", ())]
    printed = "".join("".join(out.get("text", ())) for out in outputs)
    found = [float(text) for text in re.findall(r"accuracy ([\d.]+)", printed)]
    assert len(found) == 2
    return found


def test_pictures_of_the_page_are_the_notebooks():
    for path, content in notebook_parts(ROOT)[1].items():
        assert path.read_bytes() == content
