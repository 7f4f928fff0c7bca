"""The coresets that come with the results, in half precision."""

from pathlib import Path

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.reproduce.cells import CONVNET, Cell, Scope

USUAL = (CONVNET,)


def shipped_path(
    out: Path, scope: Scope, method: str, ipc: int, made_for: tuple[str, ...] = USUAL
) -> Path:
    """Where the coreset of a method, a size and networks is shipped, of whichever recipe."""
    nets = "" if made_for == USUAL else f"-for-{'+'.join(made_for)}"
    return out / "coresets" / f"{scope.label}-{method}{nets}-ipc{ipc}.safetensors"


def shipped_coreset(
    out: Path,
    scope: Scope,
    method: str,
    ipc: int,
    recipe: str | None,
    made_for: tuple[str, ...] = USUAL,
) -> Pseudocoreset | None:
    """The shipped coreset of a method, a size and networks, if there is one of this recipe."""
    path = shipped_path(out, scope, method, ipc, made_for)
    coreset = Pseudocoreset.load(path) if path.exists() else None
    if coreset is None or coreset.provenance.config.get("recipe") != recipe:
        return None
    return coreset


def ship(cell: Cell, coreset: Pseudocoreset, scope: Scope, out: Path) -> None:
    """Store a coreset that was scored as it is stored: in half precision."""
    assert cell.ipc is not None  # only the full data have none
    path = shipped_path(out, scope, cell.method, cell.ipc, cell.made_for)
    coreset.save(path, half=True)
