import io

import pytest
from make_reports import make_evaluation, make_run
from rich.console import Console

from pseudocoreset.engine.progress import Progress
from pseudocoreset.report import RichProgress, console, print_scores


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(console, "time", clock)
    return clock


def plain() -> Console:
    return Console(file=io.StringIO(), width=80)


def text_of(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def test_without_a_terminal_a_line_now_and_then(clock):
    shown = plain()
    progress: Progress = RichProgress(shown)
    with progress.task("fbpc", 40, done=10) as task:
        for _ in range(30):
            clock.now += 1
            task.advance(loss_x=1.234567, map_steps=44, map_missed=0, map_loss=0.05, accuracy=0.97)
    assert text_of(shown).splitlines() == [
        "fbpc 11/40 (0:01 elapsed, 0:29 left) loss_x=1.23 map_steps=44 accuracy=97%",
        "fbpc 21/40 (0:11 elapsed, 0:19 left) loss_x=1.23 map_steps=44 accuracy=97%",
        "fbpc 31/40 (0:21 elapsed, 0:09 left) loss_x=1.23 map_steps=44 accuracy=97%",
        "fbpc 40/40 (0:30 elapsed) loss_x=1.23 map_steps=44 accuracy=97%",
    ]


def test_short_tasks_one_after_another_share_the_lines(clock):
    shown = plain()
    progress = RichProgress(shown)
    for seed in range(5):
        with progress.task("sghmc", 2) as task:
            clock.now += 1
            task.advance(loss=float("nan") if seed else 0.0)
            task.advance()
    assert text_of(shown).splitlines() == ["sghmc 1/2 (0:01 elapsed, 0:01 left) loss=0"]


@pytest.mark.parametrize("interrupted", [False, True])
def test_on_a_terminal_bars_may_be_nested_and_always_end(clock, interrupted):
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


def test_scores_in_80_columns():
    shown = plain()
    other = make_run("Random [red]", evaluation=make_evaluation(accuracy=0.5))
    full = make_run("Full data", coreset=None, evaluation=make_evaluation(0.99, seeds=1))
    print_scores([make_run(), other, make_run("No scores", evaluation=None), full], shown)
    table = text_of(shown)
    assert all(len(line) <= 80 for line in table.splitlines())
    for text in ("81.2 ±1.2", "0.654 ±0.013", "0.701", "0.093", "0.287", "Random [red]", "1,234"):
        assert text in table
    assert "99.0 ±" not in table  # one seed has no spread


def test_the_best_of_its_size_is_bold():
    shown = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    print_scores([make_run(), make_run("Random", evaluation=make_evaluation(0.5))], shown)
    assert "\x1b[1m81.2" in text_of(shown)
    assert "\x1b[1m50.0" not in text_of(shown)
