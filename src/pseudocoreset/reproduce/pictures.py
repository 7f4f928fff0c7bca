"""The images of the FBPC coresets, as the paper's appendix shows them."""

from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.files import whole_file
from pseudocoreset.reproduce.cells import SIZES, Scope
from pseudocoreset.reproduce.shipped import shipped_path

KEY = "coreset"
"""Under this name a picture says which coreset it shows."""


def picture_path(out: Path, scope: Scope, ipc: int) -> Path:
    """Where the picture of the FBPC coreset of this size is."""
    return out / "pictures" / f"{scope.label}-fbpc-ipc{ipc}.png"


def draw_pictures(out: Path, scope: Scope) -> Iterator[str]:
    """Draw the coresets that are there and not yet drawn; a line of words about each."""
    for ipc in SIZES:
        stored, picture = shipped_path(out, scope, "fbpc", ipc), picture_path(out, scope, ipc)
        if scope.holdout or not stored.exists():
            yield f"{picture.name}: no coreset yet (table1's fbpc/{ipc} on all training images)"
            continue
        coreset = Pseudocoreset.load(stored)
        if _shows(picture, coreset):
            yield f"{picture}: drawn before"
            continue
        _draw(coreset, picture)
        yield f"{picture}: drawn"


def _shows(picture: Path, coreset: Pseudocoreset) -> bool:
    if not picture.exists():
        return False
    try:
        with Image.open(picture) as image:
            return bool(image.info.get(KEY) == coreset.fingerprint)
    except OSError:  # no picture: draw it again
        return False


def _draw(coreset: Pseudocoreset, picture: Path) -> None:
    from pseudocoreset.report.images import coreset_grid  # matplotlib takes a second to import

    figure = coreset_grid(coreset)
    with whole_file(picture) as part:
        figure.savefig(part, format="png", dpi=figure.dpi, metadata={KEY: coreset.fingerprint})
