"""Executors run tasks, wherever that is; a killed process costs its own task alone."""

import os
import subprocess
import sys
import time
from errno import ENOSPC
from pathlib import Path

import pytest
import tasks
import torch

from pseudocoreset.errors import UserError
from pseudocoreset.scale import ProcessExecutor, SerialExecutor, Task, executor_of


@pytest.fixture(params=[SerialExecutor, lambda: ProcessExecutor(2)], ids=["serial", "processes"])
def executor(request):
    return request.param()


def numbered(function, *values):
    return [Task(f"task {value}", function, (value,)) for value in values]


def test_every_task_gives_its_result(executor):
    found = {task.name: value for task, value in executor.run(numbered(tasks.double, 1, 2, 3))}
    assert found == {"task 1": 2, "task 2": 4, "task 3": 6}


def test_what_was_put_reaches_the_tasks(executor):
    put = executor.put(torch.arange(5.0))
    todo = [Task(str(n), tasks.sum_of, (put, n)) for n in range(2)]
    assert sorted(float(value) for _, value in executor.run(todo)) == [10.0, 11.0]


def test_error_of_a_task_is_raised_when_the_others_are_given(executor):
    todo = [Task("good", tasks.double, (1,)), Task("bad", tasks.refuse, ("x",))]
    running = executor.run(todo)
    assert next(running)[1] == 2
    with pytest.raises(UserError, match="`word` is x") as error:
        next(running)
    assert error.value.parameter == "word"


def test_failure_of_a_task_keeps_its_type_and_place():
    with pytest.raises(ZeroDivisionError) as error:
        list(ProcessExecutor(1).run([Task("bad", tasks.fail, ())]))
    assert "tasks.py" in str(error.value.__cause__)


def test_error_that_cannot_be_sent_is_told_in_words():
    with pytest.raises(RuntimeError, match="UnsendableError: mine"):
        list(ProcessExecutor(1).run([Task("bad", tasks.fail_unsendably, ())]))


def test_killed_process_costs_its_own_task_alone(tmp_path):
    others = [Task(str(n), tasks.note, (tmp_path / "others", n, 0.1)) for n in range(3)]
    killed = Task("killed", tasks.killed_once, (tmp_path / "mark", 7))
    found = {t.name: v for t, v in ProcessExecutor(2).run([others[0], killed, *others[1:]])}
    assert found == {"0": 0, "killed": 7, "1": 1, "2": 2}
    assert len((tmp_path / "mark").read_text().split()) == 2
    assert len((tmp_path / "others").read_text().splitlines()) == 3


def test_task_that_is_killed_each_time_is_given_up():
    with pytest.raises(UserError, match=r"killed 4 times.*`workers`"):
        list(ProcessExecutor(1).run([Task("killed", tasks.killed_always, ())]))


def test_process_that_ends_without_an_answer_is_told_of():
    with pytest.raises(UserError, match="code 3"):
        list(ProcessExecutor(1).run([Task("leaves", tasks.leave, (3,))]))


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(UserError, match="in a module"):
        list(ProcessExecutor(1).run([Task("local", lambda: 1, ())]))
    with pytest.raises(UserError, match="the work can't be sent to another process"):
        ProcessExecutor(1).put(lambda: 1)


def test_tasks_are_asked_for_when_there_is_room():
    asked = []

    def todo():
        for number in range(4):
            asked.append(number)
            yield Task(str(number), tasks.double, (number,))

    running = ProcessExecutor(1).run(todo())
    next(running)
    assert asked == [0]
    running.close()


def test_processes_take_the_threads_of_the_driver():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        ((_, found),) = ProcessExecutor(1).run([Task("threads", tasks.threads, ())])
    finally:
        torch.set_num_threads(before)
    assert found == 3


def test_processes_end_with_a_driver_that_is_killed(tmp_path):
    mark = tmp_path / "mark"
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import tasks\n"
        "from pathlib import Path\n"
        "from pseudocoreset.scale import ProcessExecutor, Task\n"
        "task = Task('long', tasks.note, (Path(sys.argv[2]), 1, 600))\n"
        "list(ProcessExecutor(1).run([task]))\n"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent), str(mark)]
    with subprocess.Popen(command) as driver:
        while not mark.exists() or not mark.read_text().endswith("\n"):
            time.sleep(0.05)
        worker = int(mark.read_text().split()[1])
        driver.kill()
    while _is_alive(worker):
        time.sleep(0.05)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        return not state.exists() or state.read_text().split(")")[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_options_name_one_kind():
    assert executor_of(None, None) is None
    assert executor_of(3, None).slots == 3
    with pytest.raises(UserError, match="1 or more"):
        executor_of(0, None)
    with pytest.raises(UserError, match="give one"):
        executor_of(2, "auto")


class Damaged:
    """What can be put, and not be taken."""

    def __reduce__(self):
        return tasks.fail, ()


def test_what_cannot_be_read_again_is_told_of():
    executor = ProcessExecutor(1)
    put = executor.put(Damaged())
    with pytest.raises(ZeroDivisionError, match="of a task"):
        list(executor.run([Task("damaged", tasks.double, (put,))]))


def test_full_disk_is_told_of(monkeypatch):
    def full(*_):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("pseudocoreset.scale.processes.pickle.dump", full)
    with pytest.raises(UserError, match="No space left"):
        ProcessExecutor(1).put(1)
