"""The page of what goes beyond the paper, wholly out of what is stored."""

from os.path import relpath
from pathlib import Path

from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.beyond.kinds import ABLATED, JPEG_QUALITY, ablation
from pseudocoreset.reproduce.beyond.pictures import draw_beyond, mosaic_path, plot_path
from pseudocoreset.reproduce.beyond.stored import Found, found_cells
from pseudocoreset.reproduce.beyond.tables import (
    ablation_table,
    beyond_table,
    goals_table,
    published_table,
)
from pseudocoreset.reproduce.cells import BEYOND, SIZES, Scope
from pseudocoreset.reproduce.page import COMMAND, MARK

OWN = Scope(paper.DATA)
_HOW = f"""\
How good can a coreset be for its size? Size is storage: all numbers that are stored, pixels and
label values. Every figure comes from a JSON file under `{{cells}}`, with settings, seeds,
versions, device and time. {{writer}} writes this page.

- A stored image can hold several smaller ones, which networks see enlarged (`--form`). The idea of
  tiles is IDC's (Kim et al. 2022, "Dataset condensation via efficient synthetic-data
  parameterization").
- *numbers* are pixels and label values; a soft label has one for each class, a class is one number.
  *bytes* are those of the file. *stored / seen* are the images of the set, and those that networks
  see.
- Each coreset is scored three ways, accuracy % / NLL: one network (the last sample of a chain; what
  other people's single networks compare with), one chain, and all chains pooled. The first two are
  means over the chains.
- ± is the standard deviation over coresets of different seeds, made with the same experts.
- *at T* is the pooled posterior at one temperature of its predictive distribution. T was fitted on
  held-out training images, with a coreset made without them. For CIFAR-10 it had 20 experts,
  `--steps` 1500, 700 and 600, and image steps up to twice as large.
- *last layer* is the closed-form posterior of the last layer (`--sampler last-layer`) on the same
  coreset and network.
- *steps* are those of a chain. *minutes* are for all experts, one coreset and its scores by SGHMC.
- Controls have no more storage than the best coreset: as many real images as its numbers allow, or
  as many JPEG files of quality {JPEG_QUALITY} as its bytes allow at one byte a pixel.
- Recipes were chosen on held-out training images and fixed before the test images were scored. The
  search began with settings of an earlier round, which had seen test scores.
"""
_PUBLISHED = """\
† remembered from the literature, not read again. Protocols differ: VBPC is scored by its own closed
form on a wider network, and some of the others choose the best checkpoint by the test images. The
second group of methods stores something else than images, at the storage of so many images.
"""
_COMMANDS = """\
## The commands

Held-out images first, for the temperatures; then the test images. What is measured is skipped, so a
command that was stopped can be given again. `--cells` chooses cells, such as `best/10,random/*`;
`--num` and `--epochs` are those of the experts.

```sh
pseudocoreset reproduce beyond --data cifar10:DIR --num 20 --holdout 5000 --cells 'best/*'
pseudocoreset reproduce beyond --data cifar10:DIR --num 30 --coresets 1
```

The posterior in `results/posteriors`, one network a chain:

```sh
pseudocoreset sample results/coresets/cifar10-best-ipc50.safetensors --chains 12 \\
  --epochs 1000 --every 1000 --half --out results/posteriors/cifar10-best-ipc50.safetensors
```
"""


def render_beyond(out: Path, scope: Scope) -> dict[Path, str]:
    """Draw what `pseudocoreset reproduce beyond` shows, and give its page by its path."""
    for _ in draw_beyond(out, scope):
        pass
    page = out / "beyond.md"
    return {page: beyond_page(out, page)}


def beyond_table_text(out: Path, scope: Scope) -> str:
    """The tables of a data set in Markdown."""
    found = found_cells(out, scope)
    parts = (beyond_table(found, scope.data), ablation_table(found, scope.data))
    return "\n".join(part.markdown() for part in parts)


def beyond_scopes(out: Path) -> list[Scope]:
    """What there are cells of that were scored on test images, CIFAR-10 first."""
    labels = [folder.name for folder in (out / BEYOND).glob("*/")]
    others = {s for s in map(Scope.labelled, labels) if not s.holdout} - {OWN}
    return [OWN, *sorted(others, key=lambda scope: scope.label)]


def beyond_page(out: Path, page: Path, writer: str = COMMAND, closing: str = "") -> str:
    """The whole page.

    Args:
        out: the folder of the results
        page: the path that the page is for
        writer: the command that writes it
        closing: what comes after the tables
    """
    results = relpath(out, page.parent)
    parts = [
        f"{MARK.format(writer)}\n\n# Beyond the paper: the best coreset for its size\n",
        _HOW.format(cells=(Path(results) / BEYOND).as_posix(), writer=writer),
    ]
    for scope in beyond_scopes(out):
        parts += _scope_parts(out, scope, results)
    return "\n".join([*parts, *([closing] if closing else []), _COMMANDS])


def _scope_parts(out: Path, scope: Scope, results: str) -> list[str]:
    found = found_cells(out, scope)
    parts = [f"## {scope.label}\n"]
    if not found:
        parts.append("No coreset is scored on the test images yet.\n")
    if scope == OWN:
        parts += [
            "### Goals that were set beforehand\n",
            "In bold where both figures are met.\n",
            goals_table(lambda data: found_cells(out, Scope(data))).markdown(),
        ]
    if found:
        table = beyond_table(found, scope.data).markdown()
        parts += ["### Coresets by stored images a class\n", table]
        parts += _pictures(out, scope, results)
    if any(cell.method in ablation(scope.data) for cell in found):
        parts += [
            f"### What each ingredient adds, {ABLATED} stored images a class\n",
            ablation_table(found, scope.data).markdown(),
        ]
    return [*parts, *_published(found)] if scope == OWN else parts


def _published(found: Found) -> list[str]:
    return ["### Published figures\n", published_table(found).markdown(), _PUBLISHED]


def _pictures(out: Path, scope: Scope, results: str) -> list[str]:
    drawn = {plot_path(out, scope): "Accuracy and NLL against stored numbers"}
    for ipc in SIZES:
        words = f"Stored images of the best coreset, {ipc} a class, and what networks see of them"
        drawn[mosaic_path(out, scope, ipc)] = words
    return [
        f"![{words}]({(Path(results) / path.relative_to(out)).as_posix()})\n"
        for path, words in drawn.items()
        if path.exists()
    ]
