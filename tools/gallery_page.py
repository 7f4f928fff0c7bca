"""docs/gallery.md and its pictures, from the coresets that come with the package."""

from collections.abc import Iterator
from dataclasses import replace
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pseudocoreset import Categorical, Pixels, Pseudocoreset
from pseudocoreset.gallery import DATA, Entry, commands, entries, sizes
from pseudocoreset.reproduce.cells import DATA_TITLES
from pseudocoreset.reproduce.pictures import CORESET, shown_by, store_picture
from pseudocoreset.reproduce.text_table import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MANY_CLASSES, DRAWN_CLASSES = 100, 60
"""Of more classes than these, only the first are drawn, one image each."""
HEADER = ("coreset", "stored (seen)", "file", "one chain", "pooled", "chains")
OPENING = """\
# Gallery

Coresets that come with the package. They load without data, training or a network connection:

```python
import pseudocoreset as pc

coreset = pc.load("cifar10", ipc=10)  # the best we have of this size
coreset = pc.load("cifar10", ipc=10, recipe="tuned")  # pixels and hard labels
posterior = pc.sample(coreset)
```

On the command line, `gallery:cifar10-10` or `gallery:cifar10-10-tuned` stands for such a coreset:

```sh
pseudocoreset export gallery:cifar10-10 --to hf --out cifar10-10
pseudocoreset evaluate gallery:cifar10-10 --data cifar10:DIR
```

Scores are accuracy in per cent / NLL on the test set: the mean of one chain with its deviation over
chains, and the samples of all chains pooled. The file holds the *stored* images; networks are
trained on the *seen* ones. `pseudocoreset info gallery:cifar10-10` shows how a coreset was made.
The JSON file next to it in the package states how it was scored. The `best` coresets of CIFAR-10
here are the first of three; the [results](beyond.md) are means of three.

"""


def picture_of(entry: Entry, results: Path) -> Path:
    return results / "pictures" / f"{entry.path.stem}.png"


def draw_gallery(results: Path) -> Iterator[str]:
    """Draw missing pictures and yield a line about each."""
    for entry in entries():
        picture = picture_of(entry, results)
        if shown_by(picture, CORESET) != entry.about["fingerprint"]:
            coreset = Pseudocoreset.load(entry.path)
            store_picture(_figure(coreset), picture, {CORESET: coreset.fingerprint})
            yield f"{picture}: drawn"


def _figure(coreset: Pseudocoreset) -> "Figure":
    from pseudocoreset.coreset.pictures import coreset_grid

    if len(coreset.class_names) > MANY_CLASSES:
        coreset = _first_classes(coreset)
    return coreset_grid(coreset, 1 if len(coreset.class_names) >= DRAWN_CLASSES else None)


def _first_classes(coreset: Pseudocoreset) -> Pseudocoreset:
    """The first image that networks see of each of the first classes."""
    labels = torch.arange(DRAWN_CLASSES)
    first = (coreset.classes[None] == labels[:, None]).int().argmax(1)
    names = coreset.class_names[:DRAWN_CLASSES]
    return replace(
        coreset,
        inputs=coreset.seen_inputs[first],
        targets=labels,
        class_names=names,
        form=Pixels(),
        likelihood=Categorical(len(names)),
    )


def gallery_page(results: Path, page: Path) -> str:
    """The page."""
    table = TextTable(HEADER, [[_row(entry) for entry in entries()]])
    parts = [OPENING, table.markdown(), "\n"]
    for name in DATA:
        parts += _section(name, results, page)
    return "".join(parts)


def _section(name: str, results: Path, page: Path) -> Iterator[str]:
    yield f"## {DATA_TITLES[name]}\n\n"
    found = [entry for entry in entries() if entry.data == name]
    for entry in found:
        recipe = "" if entry.recipe == "best" or _alone(entry) else f', recipe="{entry.recipe}"'
        coreset = Pseudocoreset.load(entry.path)
        yield f"### {DATA_TITLES[name]}, {entry.ipc} per class, `{entry.recipe}`\n\n"
        yield f'```python\ncoreset = pc.load("{name}", ipc={entry.ipc}{recipe})\n```\n\n'
        yield f"{_facts(entry, coreset)}\n\n"
        words = f"{DATA_TITLES[name]}, {entry.ipc} per class, recipe {entry.recipe}"
        if len(coreset.class_names) > MANY_CLASSES:
            words += f", the first {DRAWN_CLASSES} classes"
        yield f"![{words}]({relpath(picture_of(entry, results), page.parent)})\n\n"
    missing = [ipc for ipc in sizes(name) if ipc not in {entry.ipc for entry in found}]
    if missing:
        lines = dict.fromkeys(line for ipc in missing for line in commands(name, ipc))
        listed = ", ".join(map(str, missing))
        block = "\n".join(sorted(lines, key=lambda line: "distill" in line))
        yield f"Not in the package: {listed} per class. These commands make them:\n\n"
        yield f"```sh\n{block}\n```\n\n"


def _alone(entry: Entry) -> bool:
    """Whether a size has no better recipe, so that none need be named."""
    return entry == next(e for e in entries() if (e.data, e.ipc) == (entry.data, entry.ipc))


def _facts(entry: Entry, coreset: Pseudocoreset) -> str:
    labels = "soft labels" if coreset.targets.is_floating_point() else "hard labels"
    form = "" if coreset.form.seen == 1 else f" as `{coreset.form}`"
    made, chain, pooled = coreset.provenance, entry.about["chain"], entry.about["pooled"]
    more = f", {100 * pooled['accuracy']:.1f} % with {entry.about['chains']}" if pooled else ""
    return (
        f"{len(coreset):,} images of {'×'.join(map(str, coreset.input_shape))}{form}, {labels}, "
        f"{coreset.stored_bytes:,} bytes ({coreset.precision} precision), made by `{made.method}` "
        f"for `{made.net.partition(',norm')[0]}`: {100 * chain['accuracy']:.1f} % with one "
        f"chain{more}."
    )


def _row(entry: Entry) -> tuple[str, ...]:
    coreset, about = Pseudocoreset.load(entry.path), entry.about
    chain, pooled = about["chain"], about["pooled"]
    spread = f"{100 * chain['accuracy']:.1f} ± {100 * chain['accuracy_std']:.1f}"
    seen = "" if coreset.form.seen == 1 else f" ({coreset.num_seen:,})"
    return (
        f"{DATA_TITLES[entry.data]}, {entry.ipc} per class, `{entry.recipe}`",
        f"{len(coreset):,}{seen}",
        f"{entry.path.stat().st_size / 1000:,.0f} kB",
        f"{spread} / {chain['nll']:.2f}",
        f"{100 * pooled['accuracy']:.1f} / {pooled['nll']:.2f}" if pooled else "–",
        str(about["chains"]),
    )
