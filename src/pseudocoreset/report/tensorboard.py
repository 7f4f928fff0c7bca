"""A run's metrics for TensorBoard, where the extra `tensorboard` is installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pseudocoreset.engine.progress import Progress, Task
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.report.run_report import finite
from pseudocoreset.run_folder import read_metrics

FLUSH_S = 10
"""Seconds until an update can be seen at the latest."""


def require_tensorboard() -> None:
    """Raise an error if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise UserError(
            "`tensorboard` needs the package of that name: install pseudocoreset[tensorboard].",
            "tensorboard",
        )


def write_tensorboard(run: Path) -> None:
    """Write the metrics of a run folder as TensorBoard's event file into its `tensorboard/`."""
    with _writer(run) as writer:
        for row in read_metrics(run):
            _add(writer, row)


class Curves:
    """Writes metrics for TensorBoard during a run.

    Those of a run that goes on begin with what is kept of it.
    """

    def __init__(self, run: Path, beside: Progress) -> None:
        self._run = run
        self._beside = beside

    @contextmanager
    def task(self, what: str, total: int, done: int = 0) -> Iterator[Task]:
        """Begin, or go on after `done` updates."""
        with _writer(self._run) as writer, self._beside.task(what, total, done) as shown:
            for row in read_metrics(self._run):
                if row["update"] <= done:
                    _add(writer, row)
            yield _Updates(writer, shown, done)


class _Updates:
    def __init__(self, writer: Any, shown: Task, done: int) -> None:
        self._writer = writer
        self._shown = shown
        self._done = done

    def advance(self, **figures: float) -> None:
        self._shown.advance(**figures)
        self._done += 1
        _add(self._writer, {**figures, "update": self._done})


def _writer(run: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    folder = run / "tensorboard"
    for old in folder.glob("events.out.tfevents.*"):  # metrics.jsonl holds all that they held
        old.unlink()
    return SummaryWriter(str(folder), flush_secs=FLUSH_S)


def _add(writer: Any, row: dict[str, Any]) -> None:
    """Note an update's figures; in metrics.jsonl there may be other things than numbers."""
    update = finite(row["update"])
    for name, value in row.items():
        number = finite(value)
        if name != "update" and update is not None and number is not None:
            writer.add_scalar(printable(name), number, int(update))
