"""The coresets that come with the results, in half precision."""

from pathlib import Path

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.reproduce.cells import Cell, Scope


def shipped_path(out: Path, scope: Scope, method: str, ipc: int) -> Path:
    """Where the coreset of a method and a size is shipped, of whichever recipe."""
    return out / "coresets" / f"{scope.label}-{method}-ipc{ipc}.safetensors"


def shipped_coreset(
    out: Path, scope: Scope, method: str, ipc: int, recipe: str | None
) -> Pseudocoreset | None:
    """The shipped coreset of a method and a size, if there is one of this recipe."""
    path = shipped_path(out, scope, method, ipc)
    coreset = Pseudocoreset.load(path) if path.exists() else None
    if coreset is None or coreset.provenance.config.get("recipe") != recipe:
        return None
    return coreset


def ship(cell: Cell, coreset: Pseudocoreset, scope: Scope, out: Path) -> None:
    """Store a coreset that was scored as it is stored: in half precision."""
    assert cell.ipc is not None  # only the full data have none
    coreset.save(shipped_path(out, scope, cell.method, cell.ipc), half=True)
