"""A fault at every write of a job, one after another: a kill, a full disk, a loss of power.

Each fault strikes in a process that is forked for it, without the type checker of the tests. The
job is then run again until it is done: what it leaves must be, bit for bit, what it leaves when
nothing happens.

    python tests/faults/every_write.py FAULT JOB [STEP]    # prints what went wrong, `done NUMBER`
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from errno import ENOSPC
from itertools import count
from pathlib import Path
from typing import Any

WRITES = ("os.rename", "os.mkdir", "os.truncate", "os.remove", "os.rmdir", "os.chmod")
PAGE = 4096
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
"""Runs a command that sees mounts of its own, as the root of its own small world."""
Act = Callable[[str, Path], None]


def every_write(fault: str, job: str, step: int = 1) -> int:
    """Let a fault strike at every write of a job, or at every so manieth; how often it did.

    Args:
        fault: kill, full-disk, small-disk or power-loss, or several of them
        job: one of `jobs.make_jobs`
        step: from one to the next
    """
    words = [sys.executable, __file__, fault, job, str(step)]
    if fault == "small-disk":
        words = [*UNSHARE, *words]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    said = ended.stdout.splitlines()
    if ended.returncode != 0 or len(said) != 1 or not said[0].startswith("done "):
        raise AssertionError(f"exit code {ended.returncode}: {ended.stdout}{ended.stderr[-3000:]}")
    return int(said[0].split()[1])


def can_mount() -> bool:
    """Whether a disk of our own can be mounted here."""
    words = [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    there = shutil.which(UNSHARE[0]) is not None
    return there and subprocess.run(words, capture_output=True, check=False).returncode == 0


class Bench:
    """A job, what it leaves when nothing happens, and processes that are forked to run it."""

    def __init__(self, root: Path, name: str) -> None:
        from jobs import differences, left, make_jobs

        self.root, self.differences, self.left = root, differences, left
        self.job = make_jobs(root / "made")[name]
        place = self.place("whole")
        assert self.run(place, None) == 0, self.told
        self.whole = left(place)

    def place(self, name: str) -> Path:
        """A folder in which the job has not begun."""
        place = self.root / name / "place"
        place.mkdir(parents=True)
        self.job.prepare(place)
        return place

    def run(self, place: Path, act: Act | None, at_end: Callable[[], None] = lambda: None) -> int:
        """Run the job in a process of its own that acts before each write; how it ended."""
        note = self.root / "told"
        child = os.fork()
        if child == 0:
            _in_child(self.job.words(place), place, act, note, at_end)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.told = note.read_text()
        return ended

    def finish(self, place: Path, what: str) -> None:
        """Run the job again, and compare what it leaves."""
        code = self.run(place, None)
        if code != 0:
            print(f"{what}: exit code {code}: {self.told}")
            return
        other = self.differences(self.left(place), self.whole)
        if other:
            print(f"{what}: other than without it: {', '.join(other)}")


def _in_child(
    words: list[str], place: Path, act: Act | None, note: Path, at_end: Callable[[], None]
) -> None:
    """Run a command and end this process."""
    from pseudocoreset.cli import main

    code = 99
    with note.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            if act is not None:
                _watch(place, act)
            code = main(words)
            at_end()
        finally:  # whatever was raised, nothing of the parent may run in this process
            if sys.exc_info()[0] is not None:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _watch(place: Path, act: Act) -> None:
    """Call `act(what, path)` before each write under `place`."""
    sync, busy = os.fsync, False

    def event(what: str, path: Any) -> None:
        nonlocal busy
        if busy or not isinstance(path, str | bytes | os.PathLike):
            return
        whole = Path(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - no link is followed
        if place == whole or place in whole.parents:
            busy = True
            try:
                act(what, whole)
            finally:
                busy = False

    def audit(what: str, arguments: tuple[Any, ...]) -> None:
        if what == "open":
            writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
            if isinstance(arguments[2], int) and arguments[2] & writes:
                event(what, arguments[0])
        elif what in WRITES[:-1]:
            event(what, _path(arguments[what == "os.rename"]))

    def synced(handle: int) -> None:
        event("before fsync", _path(handle))
        sync(handle)
        event("fsync", _path(handle))

    sys.addaudithook(audit)
    os.fsync = synced


def _path(of: Any) -> Any:
    return os.readlink(f"/proc/self/fd/{of}") if isinstance(of, int) else of  # noqa: PTH115


def kills(bench: Bench, step: int) -> int:
    """SIGKILL before each write."""

    def fault(number: int, place: Path) -> bool:
        def kill(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        code = bench.run(place, _at(number, kill, lasting=False))
        if code not in (0, -signal.SIGKILL):
            print(f"kill {number}: exit code {code}: {bench.told}")
        return code == 0

    return _each(bench, "kill", fault, step)


def full_disk(bench: Bench, step: int) -> int:
    """No space from each write on."""

    def fault(number: int, place: Path) -> bool:
        def fill(what: str, path: Path) -> None:
            if what not in ("os.remove", "os.truncate", "os.rmdir", "fsync"):
                raise OSError(ENOSPC, os.strerror(ENOSPC), str(path))

        code = bench.run(place, _at(number, fill, lasting=True))
        return _check_refusal(bench, f"no space at {number}", code)

    return _each(bench, "no space at", fault, step)


def small_disk(bench: Bench, step: int) -> int:
    """Disks of each size that is too small, in pages; then there is room."""
    number = 0
    for pages in range(1, 1000, step):
        disk = bench.root / f"disk-{pages}"
        disk.mkdir()
        _mount(disk, f"size={pages * PAGE}")
        try:
            place = disk / "place"
            place.mkdir()
            bench.job.prepare(place)
        except OSError:  # not even room for what the job works on
            _unmount(disk)
            continue
        what = f"disk of {pages} pages"
        enough = _check_refusal(bench, what, bench.run(place, None))
        number += not enough
        _kept(bench, what, place)
        _mount(disk, "remount,size=64m")
        bench.finish(place, what)
        _unmount(disk)
        if enough:
            return number
    raise AssertionError("no disk is large enough")


def _mount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)


def _unmount(disk: Path) -> None:
    subprocess.run(["umount", str(disk)], check=True)
    disk.rmdir()


def _each(bench: Bench, what: str, fault: Callable[[int, Path], bool], step: int) -> int:
    """Let the fault strike at the first write, the second, … until the job ends before it does."""
    for number in count(1, step):
        place = bench.place(f"{number}")
        ended = fault(number, place)
        _kept(bench, f"{what} {number}", place)
        bench.finish(place, f"{what} {number}")
        shutil.rmtree(place.parent)
        if ended:
            return number // step
    raise AssertionError("it never ends")


def _at(number: int, act: Act, lasting: bool) -> Act:
    """Act at a write, or from it on."""
    writes = count(1)

    def counted(what: str, path: Path) -> None:
        write = next(writes)
        if write == number or (lasting and write > number):
            act(what, path)

    return counted


def _check_refusal(bench: Bench, what: str, code: int) -> bool:
    """Whether the job ended well; if not, it must have said why in one sentence."""
    lines = [line for line in bench.told.splitlines() if line.startswith("pseudocoreset: ")]
    if code == 0:
        return True
    if code != 2 or len(lines) != 1 or "Traceback" in bench.told:
        print(f"{what}: exit code {code}: {bench.told}")
    return False


def _kept(bench: Bench, what: str, place: Path) -> None:
    """Every file that is there must be whole."""
    try:
        bench.left(place)
    except Exception as error:
        print(f"{what}: a file is not whole: {error!r}")


def main() -> None:
    """Let a fault strike at every write of a job."""
    import torch
    from power_loss import power_loss

    faults = {"kill": kills, "full-disk": full_disk, "small-disk": small_disk}
    faults |= {"power-loss": power_loss}
    torch.set_num_threads(1)
    names, job, step = sys.argv[1].split(","), sys.argv[2], int((*sys.argv, "1")[3])
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        bench = Bench(Path(name), job)
        number = sum(faults[fault](bench, step) for fault in names)
    print(f"done {number}")


if __name__ == "__main__":
    main()
