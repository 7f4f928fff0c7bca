"""The paper's three tables of cost, from the results of `benchmarks/speed.py`."""

import json
from pathlib import Path
from typing import Any

from pseudocoreset.errors import UserError
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import MIDDLE, SIZES, TITLES, WITH_AND_WITHOUT
from pseudocoreset.reproduce.text_table import TextTable

STORED = "benchmark.json"
NETS = {"lenet": "LeNet", "convnet": "ConvNet", "resnet18": "ResNet18"}
UNKNOWN = "–"
NO_COSTS = "cost: there is no {}/benchmark.json; benchmarks/speed.py measures it."
Rows = dict[tuple[str, str, int], dict[str, Any]]
"""What was measured of an update, by method, network and images per class."""


def measured_costs(out: Path) -> Rows:
    """The rows of updates on CIFAR-10; none if there is no file."""
    path = out / STORED
    if not path.exists():
        return {}
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {
            (row["what"].removesuffix(" update"), row["net"], row["ipc"]): row
            for row in rows
            if row["what"].endswith(" update") and row["row"]["data"].startswith(paper.DATA)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} can't be read ({error}): measure it again by benchmarks/speed.py."
        ) from None


def memory_by_net(rows: Rows) -> TextTable:
    """GB at 10 per class, by network."""
    lines = [("parameters", *(_parameters(rows, net) for net in NETS))]
    for method in WITH_AND_WITHOUT:
        ours = (_gigabytes(rows.get((method, net, MIDDLE))) for net in NETS)
        lines.append((TITLES[method], *ours))
        printed = (f"{paper.MEMORY_BY_NET[method, net]:.2f}" for net in NETS)
        lines.append((f"{TITLES[method]}, paper", *printed))
    return TextTable((f"GB, {MIDDLE} per class", *NETS.values()), [lines])


def memory_by_size(rows: Rows) -> TextTable:
    """GB with the ConvNet, by images per class."""
    lines = []
    for method in WITH_AND_WITHOUT:
        ours = (_gigabytes(rows.get((method, "convnet", ipc))) for ipc in SIZES)
        lines.append((TITLES[method], *ours))
        printed = (f"{paper.MEMORY_BY_SIZE[method, ipc]:.2f}" for ipc in SIZES)
        lines.append((f"{TITLES[method]}, paper", *printed))
    return TextTable(("GB, ConvNet", *map(str, SIZES)), [lines])


def seconds_by_size(rows: Rows) -> TextTable:
    """Seconds of an update with the ConvNet, by images per class."""
    lines = []
    for method in WITH_AND_WITHOUT:
        found = (rows.get((method, "convnet", ipc)) for ipc in SIZES)
        ours = (UNKNOWN if row is None else f"{row['fast_s']:.3f}" for row in found)
        lines.append((TITLES[method], *ours))
        theirs = (paper.SECONDS[method, ipc] for ipc in SIZES)
        printed = (f"{each.mean:.2f} ± {each.std:.2f}" for each in theirs)
        lines.append((f"{TITLES[method]}, paper", *printed))
    return TextTable(("seconds, ConvNet", *map(str, SIZES)), [lines])


def cost_markdown(out: Path) -> str:
    """The three tables and what they are of; nothing if nothing was measured."""
    rows = measured_costs(out)
    if not rows:
        return ""
    devices = ", ".join(sorted({row["device"] for row in rows.values()}))
    words = (
        f"One update with the paper's settings on {devices}. The paper used an RTX "
        "3090. Memory is what PyTorch reserves in addition to the data. For FBPC, the number in "
        f"brackets excludes the step on 256 real images. From {STORED}.\n"
    )
    tables = (memory_by_net(rows), memory_by_size(rows), seconds_by_size(rows))
    return "\n".join([words, *(table.markdown() for table in tables)])


def _parameters(rows: Rows, net: str) -> str:
    found = [row["parameters"] for (_, name, _), row in rows.items() if name == net]
    return f"{found[0]:,}" if found else UNKNOWN


def _gigabytes(row: dict[str, Any] | None) -> str:
    if row is None:
        return UNKNOWN
    whole, peak = row["whole_peak_gb"], row["peak_gb"]
    return f"{whole:.2f}" + (f" ({peak:.2f})" if "real_batch_gb" in row else "")
