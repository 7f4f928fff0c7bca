"""Files to download from a page, written into the page itself."""

import base64
import io
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pseudocoreset.coreset import Pseudocoreset

MOST_BYTES = 3_000_000
"""A larger file is not written into a page."""
NO_DATE = (1980, 1, 1, 0, 0, 0)
"""The same coreset gives the same file."""


@dataclass(frozen=True)
class Download:
    """A link on the page; `uri` is empty for a file that is too large."""

    name: str
    what: str
    size: str
    uri: str


def downloads(coreset: Pseudocoreset, anchor: str) -> list[Download]:
    """The coreset's file, and its points for other programs.

    Args:
        coreset: the coreset
        anchor: what names of files begin with
    """
    from pseudocoreset.coreset.export import FOLDERS

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        coreset.save(folder / "coreset.safetensors", precision=coreset.precision)
        content = (folder / "coreset.safetensors").read_bytes()
        found = [_download(f"{anchor}-coreset.safetensors", "coreset", content)]
        out = folder / "points"
        out.mkdir()
        if not coreset.is_image:
            FOLDERS["hf"](coreset, out)
            table = (out / "train.csv").read_bytes()
            found.append(_download(f"{anchor}-points.csv", "points as a CSV table", table))
        elif coreset.input_shape[0] in (1, 3):
            FOLDERS["png"](coreset, out)
            what = "images as PNG files in a ZIP archive"
            found.append(_download(f"{anchor}-images.zip", what, _zipped(out)))
    return found


def _download(name: str, what: str, content: bytes) -> Download:
    uri = ""
    if len(content) <= MOST_BYTES:
        kind = {"zip": "application/zip", "csv": "text/csv"}.get(
            name.rpartition(".")[2], "application/octet-stream"
        )
        uri = f"data:{kind};base64," + base64.b64encode(content).decode("ascii")
    return Download(name, what, _size(len(content)), uri)


def _size(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{max(number / 1e3, 0.1):.1f} kB"


def _zipped(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), NO_DATE)
                archive.writestr(info, path.read_bytes())
    return buffer.getvalue()
