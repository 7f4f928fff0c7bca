"""Progress bars on stderr."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import isfinite

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0
WORTH_A_LINE = 5.0
"""Work that took at least this many seconds leaves a line."""


class RichProgress:
    """A bar on stderr, or in a notebook with ipywidgets; elsewhere, now and then a line.

    A bar vanishes when its work is done; work that took a while leaves one line.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bars: Progress | None = None
        self._open = 0
        self._last_line = time.monotonic()

    @contextmanager
    def task(self, what: str, total: int, done: int = 0) -> Iterator["_RichTask"]:
        """Begin a piece of work; pieces may follow one another or be nested."""
        task = _RichTask(self, what, total, done)
        self._begin()
        if self._bars is not None:
            task.bar = self._bars.add_task(what, total=total, completed=done, figures="")
        try:
            yield task
        finally:
            if self._bars is not None and task.bar is not None:
                self._bars.remove_task(task.bar)
            self._end()
            if task.elapsed >= WORTH_A_LINE and task.printed != task.done:
                self._print(task)

    def show(self, task: "_RichTask") -> None:
        """Show how far a task is."""
        if self._bars is not None and task.bar is not None:
            self._bars.update(task.bar, completed=task.done, figures=task.figures)
        elif time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._print(task)

    def _print(self, task: "_RichTask") -> None:
        self._last_line = time.monotonic()
        task.printed = task.done
        self._console.print(Text(task.line()), soft_wrap=True)

    def _can_draw(self) -> bool:
        """Whether bars can move: in a terminal, or in a notebook that has ipywidgets."""
        if self._console.is_jupyter:
            return find_spec("ipywidgets") is not None
        return self._console.is_terminal

    def _begin(self) -> None:
        self._open += 1
        if self._bars is None and self._can_draw():
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=10),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(compact=True),
                TextColumn(
                    "{task.fields[figures]}",
                    markup=False,
                    style="dim",
                    # What is left of the line; the rest is shown in full.
                    table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
                ),
                console=self._console,
                transient=True,
                expand=True,
                refresh_per_second=4,
            )
            self._bars.start()

    def _end(self) -> None:
        self._open -= 1
        if self._bars is not None and self._open == 0:
            self._bars.stop()
            self._bars = None


class _RichTask:
    """One piece of work, under way."""

    def __init__(self, owner: RichProgress, what: str, total: int, done: int) -> None:
        self.bar: TaskID | None = None
        self.done = done
        self.printed: int | None = None  # how far it was when a line last said so
        self.figures = ""
        self._owner = owner
        self._what = what
        self._total = total
        self._done_before = done
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def advance(self, **figures: float) -> None:
        """One more step is done."""
        self.done += 1
        shown = (_figure(name, value) for name, value in figures.items() if _tells(name, value))
        self.figures = " ".join(shown)
        self._owner.show(self)

    def line(self) -> str:
        """How far it is, as a line of a log."""
        times = f"{clock(self.elapsed)} elapsed"
        made = self.done - self._done_before
        if made and self.done < self._total:
            times += f", {clock(self.elapsed / made * (self._total - self.done))} left"
        return f"{self._what} {self.done}/{self._total} ({times}) {self.figures}".rstrip()


def _tells(name: str, value: float) -> bool:
    """Whether a figure is worth its place: the MAP loss is always about γ."""
    base = name.split("/")[0]
    return base != "map_loss" and not (base == "map_missed" and value == 0)


def _figure(name: str, value: float) -> str:
    if name.split("/")[0] == "accuracy":
        return f"{name}={value:.0%}"
    whole = isfinite(value) and value == int(value)
    return f"{name}={value:.0f}" if whole else f"{name}={value:.3g}"


def clock(seconds: float) -> str:
    """A time as minutes and seconds, with hours if there are some."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
