"""Progress reports of long computations, independent of how they are shown."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable


@runtime_checkable
class Task(Protocol):
    """One piece of long work, under way."""

    def advance(self, **figures: float) -> None:
        """One more step is done; `figures` (a loss, an accuracy) are worth showing."""


@runtime_checkable
class Progress(Protocol):
    """Receives progress reports."""

    def task(self, what: str, total: int, done: int = 0) -> AbstractContextManager[Task]:
        """Begin a piece of work of `total` steps, `done` of which were done before."""


class _Silent:
    def task(self, what: str, total: int, done: int = 0) -> AbstractContextManager[Task]:  # noqa: ARG002
        return nullcontext(SILENT_TASK)


class _SilentTask:
    def advance(self, **figures: float) -> None:
        pass


SILENT: Progress = _Silent()
"""For callers that want no progress."""
SILENT_TASK: Task = _SilentTask()
"""A task that reports nothing."""


ProgressLike = bool | Progress
"""Whether to show a progress bar, or an object that receives reports."""


def progress_of(progress: ProgressLike) -> Progress:
    """A progress bar for True, nothing for False."""
    if isinstance(progress, bool):
        if not progress:
            return SILENT
        from pseudocoreset.engine.bars import RichProgress

        return RichProgress()
    return progress
