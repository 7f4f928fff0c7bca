"""Run tasks in several processes of this machine, one process per task."""

import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from multiprocessing import get_context, parent_process, reduction
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any
from weakref import finalize

import torch

from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.engine.files import writing
from pseudocoreset.engine.plugins import described
from pseudocoreset.errors import UserError
from pseudocoreset.scale.executor import RETRIES, Executor, Task

_SPAWN = get_context("spawn")


class ProcessExecutor(Executor):
    """Runs tasks in several processes of this machine.

    Processes use as many threads as this one, because the number of threads changes the last bits
    of results. If there are several GPUs, tasks are distributed over them.

    Args:
        workers: the number of processes
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise UserError(f"`workers` is {workers}: give 1 or more.", "workers")
        if not hasattr(reduction, "DupFd"):
            raise UserError("`workers` need Linux or macOS: leave them out.", "workers")
        self._workers = workers

    @property
    def slots(self) -> int:
        """The number of processes."""
        return self._workers

    def device(self, device: DeviceLike) -> torch.device:
        """The device of this name."""
        return choose_device(device)

    def put(self, value: object) -> "Spooled":
        """Write a value to a file without a name, which is gone when nobody has it open."""
        return Spooled(value)

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Run tasks, each in a process of its own; see `Executor`."""
        waiting, under_way = iter(tasks), dict[Connection, _Job]()
        free, failed = list(range(self.slots)), None
        try:
            while True:
                while free and failed is None and (task := next(waiting, None)) is not None:
                    job = _Job.begin(task, free.pop(0))
                    under_way[job.answers] = job
                if not under_way:
                    break
                for ready in wait(list(under_way)):
                    job = under_way.pop(ready)  # type: ignore[call-overload]
                    try:
                        answer = job.end()
                        if answer is None:
                            again = job.begin_again()
                            under_way[again.answers] = again
                            continue
                    except Exception as error:
                        failed = failed or error
                    else:
                        yield job.task, answer[0]
                    free.append(job.slot)
            if failed is not None:
                raise failed
        finally:
            for job in under_way.values():
                job.kill()


@dataclass(frozen=True)
class _Job:
    """A task under way in a process."""

    task: Task
    slot: int
    process: SpawnProcess
    answers: "Connection[Any, Any]"
    tries: int = 1

    @staticmethod
    def begin(task: Task, slot: int, tries: int = 1) -> "_Job":
        """Start a process for a task."""
        spooled = {n: a for n, a in enumerate(task.arguments) if isinstance(a, Spooled)}
        plain = [None if n in spooled else a for n, a in enumerate(task.arguments)]
        with _sending(task.name):
            call = pickle.dumps((task.function, plain))
        gpu = _gpu_of(slot) if task.gpus else None
        receiver, sender = _SPAWN.Pipe(duplex=False)
        threads = torch.get_num_threads()
        process = _SPAWN.Process(
            target=_work, args=(sender, call, spooled, threads, gpu), name=task.name, daemon=True
        )
        process.start()
        sender.close()  # so that the end of the process is the end of the pipe
        return _Job(task, slot, process, receiver, tries)

    def begin_again(self) -> "_Job":
        """Start another process for the task of one that was killed."""
        if self.tries > RETRIES:
            raise UserError(
                f"{self.task.name}: its process was killed {self.tries} times. If memory is too "
                "small, give fewer `workers`.",
                "workers",
            )
        return _Job.begin(self.task, self.slot, self.tries + 1)

    def end(self) -> tuple[Any] | None:
        """The result of the task; None if its process was killed."""
        try:
            failed, answer = pickle.loads(self.answers.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            if (self.process.exitcode or 0) > 0:
                raise UserError(
                    f"{self.task.name}: its process ended with code {self.process.exitcode}. A "
                    "script that uses `workers` must have its code under "
                    "`if __name__ == '__main__':`.",
                    "workers",
                ) from None
            return None
        finally:
            self.answers.close()
        self.process.join()
        if failed:
            raise answer
        return (answer,)

    def kill(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.answers.close()


@contextmanager
def _sending(what: str) -> Iterator[None]:
    """Say in a sentence what can't be sent to another process."""
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UserError(
            f"{what} can't be sent to another process ({described(error)}): define everything "
            "that it uses in a module, or leave `workers` out.",
            "workers",
        ) from None


class Spooled:
    """A value in a file without a name, which processes that are begun from here can read."""

    def __init__(self, value: object) -> None:
        place = Path(gettempdir())
        with writing(place), _sending("the work"):
            self._file = TemporaryFile(dir=place)  # noqa: SIM115 - open as long as this lives
            finalize(self, self._file.close)
            pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
            self._file.flush()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Received, (reduction.DupFd(self._file.fileno()),)


class _Received:
    """The same in another process."""

    def __init__(self, file: Any) -> None:
        self._descriptor: int = file.detach()

    def value(self) -> Any:
        """What was put."""
        with mmap(self._descriptor, 0, access=ACCESS_READ) as content:
            return pickle.loads(content)


def _work(
    answers: "Connection[Any, Any]",
    call: bytes,
    spooled: dict[int, _Received],
    threads: int,
    gpu: str | None,
) -> None:
    """What a process does: one task, and its answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who began it ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if gpu is not None:  # CUDA, which this process has not used yet, is to see this one alone
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(threads)
    try:
        function, arguments = pickle.loads(call)
        for place, received in spooled.items():
            arguments[place] = received.value()
        answer = pickle.dumps((False, function(*arguments)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        answer = _raised(error)
    answers.send_bytes(answer)
    answers.close()


def _raised(error: Exception) -> bytes:
    """An error as an answer."""
    try:
        return pickle.dumps((True, ExceptionWithTraceback(error, error.__traceback__)))
    except Exception:  # of a user's own code, with what can't be sent
        return pickle.dumps((True, RuntimeError(described(error))))


def _end_with_parent() -> None:
    """Do not outlive who began this process, however that one ends."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _gpu_of(slot: int) -> str:
    """The GPU of a slot: they take turns."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(n) for n in range(torch.cuda.device_count())] if seen is None else seen.split(",")
    return names[slot % len(names)]
