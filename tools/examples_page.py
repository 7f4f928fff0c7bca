"""The code of examples/ in its pages, and the scores of the replay buffer."""

import json
from pathlib import Path
from statistics import fmean, stdev

from pseudocoreset.reproduce.cells import DATA_TITLES
from pseudocoreset.reproduce.text_table import TextTable


def example_blocks(root: Path) -> dict[str, str]:
    """Markdown by the name of its place in a page."""
    scripts = sorted((root / "examples").glob("*.py"))
    found = {
        f"example-{path.stem}": f"```python\n{path.read_text(encoding='utf-8')}```\n"
        for path in scripts
        if path.stem != "replay"  # too long for a page
    }
    return {**found, "replay": replay_table(root / "results")}


def replay_table(results: Path) -> str:
    """Final accuracy by data, number of steps and kind of memory."""
    rows, footnotes = [], []
    for path in sorted(results.glob("replay*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        options, made = content["options"], content["versions"]
        title = DATA_TITLES[options["data"].partition(":")[0]]
        for steps, memories in content["accuracy"].items():
            cells = [_cell([curve[-1] for curve in curves]) for curves in memories.values()]
            rows.append((title, steps, str(options["ipc"]), *cells))
        device = content["gpu"] or "a CPU"
        footnotes.append(
            f"- {title}: {options['orders']} orders, `{options['net']}`, {options['experts']} "
            f"experts of {options['expert_epochs']} epochs a step, {options['updates']} updates a "
            f"coreset, on {device}, PyTorch {made['torch']} (`results/{path.name}`)."
        )
    header = ("data", "steps", "images per class", "random", "herding", "pseudocoreset")
    return TextTable(header, [rows]).markdown() + "\n" + "\n".join(footnotes) + "\n"


def _cell(shares: list[float]) -> str:
    spread = f" ± {100 * stdev(shares):.1f}" if len(shares) > 1 else ""
    return f"{100 * fmean(shares):.1f}{spread}"
