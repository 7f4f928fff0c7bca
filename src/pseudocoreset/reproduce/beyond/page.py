"""The page of the best coresets for their size, written from the stored cells."""

from collections.abc import Iterator
from os.path import relpath
from pathlib import Path

from pseudocoreset.engine.files import write_text
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.beyond.kinds import ABLATED, JPEG_QUALITY, ablation
from pseudocoreset.reproduce.beyond.pictures import draw_beyond, mosaic_path, plot_path
from pseudocoreset.reproduce.beyond.stored import beyond_scopes, found_cells
from pseudocoreset.reproduce.beyond.tables import (
    MORE,
    SHOWN,
    ablation_table,
    beyond_table,
    goals_table,
    published_table,
)
from pseudocoreset.reproduce.cells import BEYOND, DATA_TITLES, SIZES, Scope
from pseudocoreset.reproduce.page import COMMAND, MARK
from pseudocoreset.reproduce.text_table import folded

OWN = Scope(paper.DATA)
_OPENING = """\
The best coresets for a given storage. One stored image can hold several smaller images, which are
enlarged for the network, and labels can be soft. Scores are accuracy % / NLL on the test images.
"""
_HOW = f"""\
{{writer}} writes this page from the JSON files under `{{cells}}`, which also hold settings, seeds,
versions, device and time.

- The size of a coreset is its storage: all stored numbers, both pixels and label values.
- The idea of storing several smaller images in one (`--form`) is from IDC (Kim et al. 2022,
  "Dataset condensation via efficient synthetic-data parameterization").
- *numbers* counts pixels and label values. A soft label has one number per class, a hard label one.
  *bytes* counts those of pixels and labels, without the header of the file; for JPEG files without
  the tables that all have in common. *stored / seen* counts stored images and images that the
  network sees.
- Scores are those of one network (the last sample of a chain, comparable with other
  people's single networks), of one chain, and of all chains pooled. The first two are means over
  the chains.
- ± is the standard deviation over coresets of different seeds. The three best coresets of a size
  for CIFAR-10 were made with different experts, trained in the same way.
- *at T* is the pooled posterior with its predictive distribution at temperature T. T was fitted on
  held-out training images, with another coreset made without these images. For CIFAR-10 that
  coreset had 20 experts, `--steps` 1500, 700 and 600, and image steps up to twice as large.
- *last layer* is the closed-form posterior of the last layer (`--sampler last-layer`) on the same
  coreset and network.
- *steps* counts the steps of a chain. *minutes* is for all experts + one coreset + its SGHMC
  scores, on one H200 with up to five other runs at the same time. Alone, each takes less. If there
  are several coresets, it is the fastest one's.
- Controls use at most the storage of the best coreset: as many real images as its numbers allow, or
  as many JPEG files of quality {JPEG_QUALITY} as its bytes allow at one byte a pixel.
- Recipes were chosen on held-out training images and fixed before scoring the test images. The
  search started from earlier settings that had seen test scores.
"""
_PUBLISHED = """\
† quoted from memory, not checked against the paper. Protocols differ: VBPC is scored by its own
closed form on a wider network, and some other methods choose the best checkpoint on the test
images. Methods that store *something else* have the storage of this many images.
"""
_COMMANDS = """\
## Commands

The first command scores held-out images to find the temperatures. The others score the test images:
the best coresets, the ablation, and the controls. Run a command again to resume: measured cells are
skipped. `--num` and `--epochs` set the number and epochs of the experts.

```sh
pseudocoreset reproduce beyond --data cifar10:DIR --num 20 --holdout 5000 --cells 'best/*'
pseudocoreset reproduce beyond --data cifar10:DIR --num 30 --cells 'best/*'
pseudocoreset reproduce beyond --data cifar10:DIR --num 30 --steps 800 --cells 'ablation-*'
pseudocoreset reproduce beyond --data cifar10:DIR --num 30 --coresets 1
```

This command made the posterior in `results/posteriors`, with one network per chain:

```sh
pseudocoreset sample results/coresets/cifar10-best-ipc50.safetensors --chains 12 \\
  --epochs 1000 --every 1000 --half --out results/posteriors/cifar10-best-ipc50.safetensors
```
"""


_CAPTION = """\
*1, 10 and 50 stored images per class, from left to right. For JPEG files, each byte counts as a
number. Grey marks are published methods, which the [table](#published-figures) names.*
"""


def write_beyond(out: Path, scope: Scope) -> Iterator[str]:
    """Draw what `pseudocoreset reproduce beyond` shows, and write its page."""
    for _ in draw_beyond(out, scope):
        pass
    page = out / "beyond.md"
    write_text(page, beyond_page(out, page))
    yield f"{page}: written"


def beyond_table_text(out: Path, scope: Scope) -> str:
    """The tables of a data set in Markdown."""
    found = found_cells(out, scope)
    parts = (beyond_table(found, scope.data), ablation_table(found, scope.data))
    return "\n".join(part.markdown() for part in parts)


def beyond_page(
    out: Path, page: Path, writer: str = COMMAND, *, findings: str = "", closing: str = ""
) -> str:
    """The whole page.

    Args:
        out: the folder of the results
        page: the path that the page is for
        writer: the command that writes it
        findings: what the tables show, in words
        closing: what comes after the tables
    """
    results = relpath(out, page.parent)
    parts = [
        f"{MARK.format(writer)}\n\n# Beyond the paper: the best coreset for its size\n",
        _OPENING,
        *([findings] if findings else []),
    ]
    for scope in beyond_scopes(out):
        parts += _scope_parts(out, scope, results)
    how = _HOW.format(cells=(Path(results) / BEYOND).as_posix(), writer=writer)
    reading = f"## How to read this page\n\n{how}"
    return "\n".join([*parts, reading, *([closing] if closing else []), _COMMANDS])


def _scope_parts(out: Path, scope: Scope, results: str) -> list[str]:
    found = found_cells(out, scope)
    parts = [f"## {scope.label.replace(scope.data, DATA_TITLES.get(scope.data, scope.data))}\n"]
    if not found:
        parts.append("No coreset is scored on the test images yet.\n")
    if found:
        table = beyond_table(found, scope.data)
        parts += [
            "### Coresets by stored images per class\n",
            table.only(*SHOWN).markdown(),
            folded("Storage, calibration, last layer and cost", table.only(*MORE).markdown()),
            *_pictures(out, scope, results),
        ]
    if any(cell.method in ablation(scope.data) for cell in found):
        parts += [
            f"### What each ingredient adds, {ABLATED} stored images per class\n",
            ablation_table(found, scope.data).markdown(),
        ]
    if scope == OWN:
        goals = goals_table(lambda data: found_cells(out, Scope(data))).markdown()
        bold = "In bold what is met; of two figures, both.\n"
        parts += ["### Published figures\n", published_table(found).markdown(), _PUBLISHED]
        parts.append(folded("Goals, set before measuring", bold, goals))
    return parts


def _pictures(out: Path, scope: Scope, results: str) -> list[str]:
    drawn = {plot_path(out, scope): "Accuracy and NLL against stored numbers"}
    for ipc in SIZES:
        words = f"Stored images of the best coreset, {ipc} per class, and what networks see of them"
        drawn[mosaic_path(out, scope, ipc)] = words
    parts = [
        f"![{words}]({(Path(results) / path.relative_to(out)).as_posix()})\n"
        for path, words in drawn.items()
        if path.exists()
    ]
    if scope == OWN and plot_path(out, scope).exists():
        parts.insert(1, _CAPTION)
    return parts
