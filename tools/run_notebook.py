"""Run a notebook's cells one after another and store their output.

    python tools/run_notebook.py examples/digits.ipynb

A small stand-in for Jupyter, so that tests need none of it: a cell's last expression is shown, as
HTML or a picture where it has one, and what is printed is kept. Progress bars go to the standard
error and are not.
"""

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "agg")
Notebook = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    path = parser.parse_args().notebook.resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        done = executed(json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def executed(notebook: Notebook) -> Notebook:
    """The notebook with the outputs of its code cells; files are written where the process is."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _outputs("".join(cell["source"]), names, count)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed)})
    if value is not None:
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": count,
                "data": _shown(value),
                "metadata": {},
            }
        )
    return outputs


def _lines(text: io.StringIO) -> list[str]:
    return text.getvalue().splitlines(keepends=True)


def _shown(value: Any) -> dict[str, Any]:
    """What a notebook shows of a value, by MIME type."""
    found: dict[str, Any] = {"text/plain": [repr(value)]}
    html = value._repr_html_() if hasattr(value, "_repr_html_") else None
    if html is not None:  # a figure has none outside Jupyter
        found["text/html"] = [html]
    elif hasattr(value, "savefig"):
        buffer = io.BytesIO()
        value.savefig(buffer, format="png", dpi=value.dpi)
        found["image/png"] = base64.b64encode(buffer.getvalue()).decode("ascii")
    return found


if __name__ == "__main__":
    main()
