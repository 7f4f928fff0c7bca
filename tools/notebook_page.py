"""docs/notebook.md: a notebook's cells and outputs as a page that needs no plugin."""

import base64
import json
import re
from os.path import relpath
from pathlib import Path
from typing import Any

NOTEBOOK = "digits.ipynb"
PICTURE = re.compile(r"data:image/png;base64,([^\"]+)")


def notebook_parts(root: Path) -> tuple[str, dict[Path, bytes]]:
    """The page, and the pictures that it shows by their path."""
    path, page = root / "examples" / NOTEBOOK, root / "docs" / "notebook.md"
    parts: list[str] = []
    pictures: dict[Path, bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            text, picture = _shown(output)
            parts += [f"```text\n{text}\n```"] if text else []
            if picture is not None:
                place = root / "results" / "pictures" / f"notebook-{len(pictures) + 1}.png"
                pictures[place] = picture
                parts.append(f"![What the cell shows]({relpath(place, page.parent)})")
    parts.insert(1, f"This page is the notebook [`examples/{NOTEBOOK}`](../examples/{NOTEBOOK}).")
    return "\n\n".join(parts) + "\n", pictures


def _shown(output: dict[str, Any]) -> tuple[str, bytes | None]:
    """An output's text and its picture."""
    if output["output_type"] == "stream":
        return "".join(output["text"]).rstrip("\n"), None
    data = output["data"]
    found = PICTURE.search("".join(data.get("text/html", ())))
    encoded = found[1] if found else data.get("image/png")
    figure = "image/png" in data  # whose text says nothing
    text = "" if figure else "".join(data["text/plain"])
    return text, None if encoded is None else base64.b64decode(encoded)
