"""Progress bars, and the lines that stand for them where there is no terminal."""

import io

import pytest
from rich.console import Console

from pseudocoreset.engine import bars
from pseudocoreset.engine.bars import RichProgress
from pseudocoreset.engine.progress import Progress


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(bars, "time", clock)
    return clock


def text_of(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def test_progress_without_a_terminal_prints_a_line_now_and_then(clock):
    shown = Console(file=io.StringIO(), width=80)
    progress: Progress = RichProgress(shown)
    with progress.task("fbpc", 40, done=10) as task:
        for _ in range(30):
            clock.now += 1
            task.advance(loss_x=1.234567, map_steps=44, map_missed=0, map_loss=0.05, accuracy=0.97)
    assert text_of(shown).splitlines() == [
        "fbpc 20/40 (0:10 elapsed, 0:20 left) loss_x=1.23 map_steps=44 accuracy=97%",
        "fbpc 30/40 (0:20 elapsed, 0:10 left) loss_x=1.23 map_steps=44 accuracy=97%",
        "fbpc 40/40 (0:30 elapsed) loss_x=1.23 map_steps=44 accuracy=97%",
    ]


def test_progress_of_short_tasks_shares_the_lines(clock):
    shown = Console(file=io.StringIO(), width=80)
    progress = RichProgress(shown)
    for _ in range(15):
        with progress.task("sghmc", 2) as task:
            clock.now += 1
            task.advance(loss=0.0)
            task.advance(loss=float("nan"))
    assert text_of(shown).splitlines() == ["sghmc 1/2 (0:01 elapsed, 0:01 left) loss=0"]


@pytest.mark.parametrize("interrupted", [False, True])
def test_progress_bars_may_be_nested_and_always_end(clock, interrupted):
    shown = Console(file=io.StringIO(), width=100, force_terminal=True)
    progress = RichProgress(shown)

    def work() -> None:
        with progress.task("table", 2) as outer:
            with progress.task("[fbpc]", 3) as inner:
                inner.advance(loss=0.5)
                clock.now += 7
                if interrupted:
                    raise KeyboardInterrupt
            outer.advance()

    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            work()
    else:
        work()
    assert "[fbpc] 1/3 (0:07 elapsed, 0:14 left) loss=0.5" in text_of(shown)
    assert progress._bars is None
    with progress.task("again", 1) as task:
        task.advance()


def test_notebook_without_ipywidgets_gets_lines_and_no_warning(clock, monkeypatch):
    monkeypatch.setattr(bars, "find_spec", lambda _: None)
    progress = RichProgress(Console(force_jupyter=True, width=80))
    lines = set()
    monkeypatch.setattr(progress, "_print", lambda task: lines.add(task.line()))
    with progress.task("fbpc", 2) as task:
        clock.now += 11
        task.advance()
    assert lines == {"fbpc 1/2 (0:11 elapsed, 0:11 left)"}
