"""Time spent on work that may take several runs or processes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from pseudocoreset.engine.files import lock_file, locked, write_json
from pseudocoreset.engine.parse import check_shape, read_json
from pseudocoreset.errors import UserError


class TimeSpent:
    """Adds the seconds of a `with` block to a file; an interrupted block counts as well.

    Where several processes work at the same time, that time counts once. A block that was killed,
    or is not done yet, can't say how long it was at work: as long as there is one, `whole` is
    false, and `seconds` are a lower bound. So it is where `made` was there before its time was
    first taken.
    """

    def __init__(self, path: Path, made: Path | None = None) -> None:
        self._path = path
        self._made = made

    @property
    def seconds(self) -> float:
        """Of all blocks that ended, by the clock on the wall."""
        now = self._read()
        return float(now["seconds"] + sum(end - begin for begin, end in now["spans"]))

    @property
    def whole(self) -> bool:
        """Whether that is all."""
        return bool(self._read()["begun"] == 0)

    def __enter__(self) -> "TimeSpent":
        with self._locked():
            now = self._read()
            write_json(self._path, {**now, "begun": now["begun"] + 1})
        self._began = time.time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._locked():
            now = self._read()
            span = [self._began, max(self._began, time.time())]
            spans = _united([*now["spans"], span])
            write_json(self._path, {**now, "spans": spans, "begun": now["begun"] - 1})

    def _read(self) -> dict[str, Any]:
        """`seconds` are what files of version 0.1 had in the place of `spans`."""
        if not self._path.exists():
            before = self._made is not None and self._made.exists()
            return {"seconds": 0.0, "spans": [], "begun": int(before)}
        try:
            content = read_json(self._path)
            check_shape(content, {"seconds": float, "begun": int})
            content = {"spans": [], **content}
            check_shape(content["spans"], [[float]], "spans")
            if any(len(span) != 2 for span in content["spans"]):
                raise ValueError("its spans are no pairs")
        except ValueError as error:
            raise UserError(f"{self._path} is damaged ({error}): delete it.") from None
        return content

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with lock_file(self._path.with_suffix(".lock")) as lock, locked(lock, 0, wait=True):
            yield


def _united(spans: list[list[float]]) -> list[list[float]]:
    """Spans of time without what they share, in order."""
    found: list[list[float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return found
