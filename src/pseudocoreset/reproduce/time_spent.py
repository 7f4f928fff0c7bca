"""Time spent on work that may take several runs, and several processes at once."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from pseudocoreset.engine.files import lock_file, locked, write_json


class TimeSpent:
    """Adds the seconds of a `with` block to a file; an interrupted block counts as well.

    Blocks of several processes count each by itself. One that was killed, or is not done yet,
    can't say how long it was at work: as long as there is one, `whole` is false, and `seconds` are
    a lower bound. So it is where `made` was there before its time was first taken.
    """

    def __init__(self, path: Path, made: Path | None = None) -> None:
        self._path = path
        self._made = made

    @property
    def seconds(self) -> float:
        """Of all blocks that ended."""
        return float(self._read()["seconds"])

    @property
    def whole(self) -> bool:
        """Whether that is all."""
        return self._read()["begun"] == 0

    def __enter__(self) -> "TimeSpent":
        with self._locked():
            now = self._read()
            write_json(self._path, {**now, "begun": now["begun"] + 1})
        self._began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        seconds = time.perf_counter() - self._began
        with self._locked():
            now = self._read()
            added = {"seconds": now["seconds"] + seconds, "begun": now["begun"] - 1}
            write_json(self._path, added)

    def _read(self) -> dict[str, float]:
        if not self._path.exists():
            before = self._made is not None and self._made.exists()
            return {"seconds": 0.0, "begun": int(before)}
        return dict(json.loads(self._path.read_text(encoding="utf-8")))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with lock_file(self._path.with_suffix(".lock")) as lock, locked(lock, 0, wait=True):
            yield
