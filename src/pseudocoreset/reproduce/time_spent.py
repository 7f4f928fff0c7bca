"""Time spent on work that may take several runs."""

import json
import time
from pathlib import Path
from types import TracebackType

from pseudocoreset.engine.files import write_json


class TimeSpent:
    """Adds the seconds of a `with` block to a file; an interrupted block counts as well.

    A process that is killed can't say how long it was at work: from then on `whole` is false, and
    `seconds` are a lower bound.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seconds, self.whole = 0.0, True
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.seconds, self.whole = float(stored["seconds"]), bool(stored["whole"])

    def __enter__(self) -> "TimeSpent":
        write_json(self._path, {"seconds": self.seconds, "whole": False})
        self._began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds += time.perf_counter() - self._began
        write_json(self._path, {"seconds": self.seconds, "whole": self.whole})
