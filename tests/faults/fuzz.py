"""Damaged files through the commands: exit code 0 or 2, one sentence, in bounded time and memory.

The cases run in a process of their own, without the type checker of the tests, which would refuse
what the package has to refuse itself:

    python tests/faults/fuzz.py KIND NUMBER SEED [FIRST]    # KIND may be `all`
"""

import faulthandler
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

SECONDS = 60
"""A case takes a fraction of a second; the machine may be busy with others."""
MEMORY = 400 << 20
"""What a case may add to the memory of the process."""
ADDRESSES = 8 << 30
"""What the process may ask for, so that a mistake does not take the machine down."""
FILES = ("coreset", "posterior", "table-files", "store", "run", "config", "sampling", "recipe")
DATA = ("table", "npz", "images", "mnist", "mnist-gz", "tiny-imagenet", "corruptions", "foreign")
CIFAR = ("cifar10-binary", "cifar100-binary", "cifar10-python", "cifar10-python2")
KINDS = (*FILES, *DATA, *CIFAR, "cells", "work")


class TooLongError(BaseException):
    """A case took longer than it may; nothing in the package catches it."""


def fuzz(kind: str, number: int, seed: int) -> list[dict[str, Any]]:
    """Run so many cases of a kind, or of all kinds, in a process of their own; those that failed.

    Args:
        kind: one of `KINDS`, or all
        number: cases of each kind
        seed: of the damage; the same seed makes the same cases
    """
    words = [sys.executable, __file__, kind, str(number), str(seed)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    if ended.returncode != 0 or not lines or lines[-1] != "done":
        raise AssertionError(f"exit code {ended.returncode}: {ended.stderr[-3000:]}")
    return [json.loads(line) for line in lines[:-1]]


def main() -> None:
    """Print the cases that failed, a line of JSON each, and `done`."""
    import torch
    from fuzz_world import make_world
    from make_data import small_cifar

    kind, number, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    with tempfile.TemporaryDirectory() as name, small_cifar():
        root = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(root / "cache")
        world = make_world(root / "world")
        shutil.copytree(root / "world", root / "pristine")
        for each in KINDS if kind == "all" else [kind]:
            for place in range(first, first + number):
                _case(root, world, each, place, seed)
    print("done")


def _too_long(*_: object) -> None:
    raise TooLongError


def _case(root: Path, world: dict[str, Any], name: str, number: int, seed: int) -> None:
    """Damage a file, run a command, and put everything back."""
    from mutate import mutated

    kind, random = world[name], Random(f"{name} {number} {seed}")
    path = random.choice(kind.files)
    others = [random.choice(world[other].files) for other in random.sample(KINDS, 2)]
    content = mutated(path.read_bytes(), path.name, random, [p.read_bytes() for p in others])
    path.write_bytes(content)
    os.utime(path)
    out = root / "out" / "new"
    out.parent.mkdir()
    words = [
        word.replace("FILE", str(path)).replace("OUT", str(out))
        for word in random.choice(kind.commands)
    ]
    wrong = failure_of(words)
    if wrong is not None:
        keep = os.environ.get("FUZZ_KEEP")
        if keep:
            Path(keep).mkdir(parents=True, exist_ok=True)
            (Path(keep) / f"{name}-{seed}-{number}-{path.name}").write_bytes(content)
        case = {"kind": name, "number": number, "seed": seed, "file": path.name}
        print(json.dumps({**case, "words": " ".join(words), "wrong": wrong}), flush=True)
    shutil.rmtree(out.parent)
    shutil.rmtree(kind.folder)
    shutil.copytree(root / "pristine" / kind.folder.name, kind.folder)


def failure_of(words: list[str], code: int | None = None) -> str | None:
    """What is wrong with how a command ended; None if nothing is.

    Args:
        words: the command
        code: the exit code that is expected; 0 and 2 are both good by default
    """
    from pseudocoreset.cli import main as run
    from pseudocoreset.engine.text import printable

    out, told = io.StringIO(), io.StringIO()
    before = _peak(reset=True)
    signal.alarm(SECONDS)
    faulthandler.dump_traceback_later(5 * SECONDS, exit=True)  # stuck where no signal is looked at
    try:
        with redirect_stdout(out), redirect_stderr(told):
            found = run(words)
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
    lines = told.getvalue().splitlines()
    if found not in ((0, 2) if code is None else (code,)):
        return f"exit code {found}: {told.getvalue()}"
    if any(not line.startswith("pseudocoreset: ") for line in lines):
        return f"not a sentence of ours: {told.getvalue()}"
    refusals = [line for line in lines if not line.startswith("pseudocoreset: warning: ")]
    if len(refusals) != (found == 2) or any(line != printable(line, len(line)) for line in lines):
        return f"not one sentence: {told.getvalue()!r}"
    if "memory is too small" in told.getvalue():
        return f"more than {ADDRESSES} bytes were asked for"
    used = _peak() - before
    return f"{used} bytes were taken" if used > MEMORY else None


def _peak(reset: bool = False) -> int:
    """The most memory that this process had since it was last asked to forget it."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        text = Path("/proc/self/status").read_text()
        return 1024 * int(text.partition("VmHWM:")[2].split()[0])
    except OSError:  # not Linux
        return 0


if __name__ == "__main__":
    main()
