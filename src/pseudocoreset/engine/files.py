"""Write files completely or not at all, so that they survive crashes and power loss."""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from errno import EINVAL, EISDIR, ENOTSUP
from glob import escape
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pseudocoreset.engine.parse import parse_json
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

ANY = "a file of pseudocoreset"
DAMAGED = (*(ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError),)
"""Errors that damaged files can cause."""
LEFT_BEHIND_S = 3600
"""Temporary files that were not written to for this long are removed."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it is synced and moved there at once.

    Other processes see either the old file or the complete new one, also after a crash or power
    loss.
    """
    with writing(path):
        make_folder(path.parent)
        if path.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder")
        _remove_left_behind(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        os.close(handle)
        part = Path(name)
        try:
            yield part
            sync(part)
            # mkstemp makes files private; a result should have the permissions of any other file.
            umask = os.umask(0)
            os.umask(umask)
            part.chmod(0o666 & ~umask)
            part.replace(path)
            sync(path.parent)
        finally:
            part.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder and its parents and sync them to disk."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for place in reversed(missing):
        sync(place.parent)


def sync_tree(folder: Path) -> None:
    """Sync all files of a folder to disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def append_text(path: Path, text: str) -> None:
    """Append to a text file and sync it; where that fails, the file is as it was before."""
    with writing(path), path.open("ab") as file:
        before = file.tell()
        try:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def sync(path: Path) -> None:
    """Write a file's content, or a folder's list of names, to the disk itself."""
    folder = path.is_dir()
    if folder and os.name == "nt":  # where folders can't be opened
        return
    with suppress(PermissionError) if folder else nullcontext():  # one that may not be listed
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if not folder or error.errno not in (EINVAL, ENOTSUP):  # no such thing there
                raise
        finally:
            os.close(handle)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors while writing a file (permissions, a full disk) into one sentence."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} can't be written ({reason}): give another path.") from None


def refuse_unwritable(folder: Path) -> None:
    """Raise an error now if a folder is not writable, instead of after long work."""
    whole = folder.absolute()
    there = next(place for place in (whole, *whole.parents) if place.exists())
    if not there.is_dir():
        raise UserError(f"{folder} can't be created because {there} is a file: give another path.")
    if not os.access(there, os.W_OK):
        raise UserError(f"{folder} can't be written: {there} is not writable. Give another path.")


def refuse_unwritable_file(path: Path | str | None, *read: Path | str) -> None:
    """The same for a file, which must not be one of the inputs."""
    if path is None:
        return
    if Path(path).resolve() in [Path(name).resolve() for name in read]:
        raise UserError(f"{path} is also an input and would be overwritten: write to another file.")
    if Path(path).is_dir():
        raise UserError(f"{path} is a folder and can't be written as a file: give another path.")
    refuse_unwritable(Path(path).parent)


def _remove_left_behind(path: Path) -> None:
    """Remove what processes that were killed wrote of this file; another may be writing it now."""
    # mkstemp puts eight characters in the middle.
    for part in path.parent.glob(f".{escape(path.name)}.????????.part"):
        with suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > LEFT_BEHIND_S:
                part.unlink()


@contextmanager
def lock_file(path: Path) -> Iterator[IO[bytes]]:
    """A file for `locked`."""
    with writing(path):
        make_folder(path.parent)
        file = path.open("ab")
    with file:
        yield file


@contextmanager
def locked(file: IO[bytes], number: int | None, wait: bool) -> Iterator[bool]:
    """Lock a number, or all numbers, of an open file against other processes.

    Gives False where another process has it and it is not to be waited for. It is free again when
    this process ends, however it does. Where the system has no such locks, all are free.
    """
    mine = True
    span = (0, 0) if number is None else (1, number)  # how many from where; 0: to the end
    if fcntl is not None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), *span)
        except (BlockingIOError, PermissionError):
            mine = False
        except OSError:  # a file system without locks
            pass
    try:
        yield mine
    finally:
        if fcntl is not None and mine and not file.closed:  # closing it frees them all
            with suppress(OSError):
                fcntl.lockf(file, fcntl.LOCK_UN, *span)


def write_text(path: Path, text: str) -> None:
    """Write a text file, completely or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, completely or not at all."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """A value as our JSON files have it."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write a safetensors file, completely or not at all; `metadata` goes in as one JSON text."""
    arrays, places = {}, set()
    for name, tensor in tensors.items():
        array = tensor.detach().cpu().contiguous()
        place = array.untyped_storage().data_ptr()
        arrays[name] = array.clone() if place in places else array  # a file shares no memory
        places.add(place)
    with whole_file(path) as part:
        save_file(arrays, part, {"pseudocoreset": json.dumps(metadata, allow_nan=False)})


@contextmanager
def open_tensors(path: Path, what: str = ANY) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Open a safetensors file of ours: its tensors, to be read lazily, and its metadata.

    `what` names the kind of file ("a coreset") in the sentence that refuses another.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the path of {what}.")
    try:
        opened = safe_open(path, "pt")
        with opened as tensors:
            text = (tensors.metadata() or {}).get("pseudocoreset")
            if text is None:
                raise UserError(f"{path} was not written by pseudocoreset: give {what}.")
            metadata = parse_json(text)
            if not isinstance(metadata, dict):
                raise ValueError("its metadata is no JSON object")
            if metadata.get("kind") != what and what != ANY:
                raise UserError(f"{path} holds {printable(metadata.get('kind'))}: give {what}.")
            yield tensors, metadata
    except FileNotFoundError:
        if path.exists():  # safetensors says so of a file that it may not read, too
            raise UserError(f"{path} can't be read: check its permissions.") from None
        raise UserError(f"{path} does not exist: give the path of {what}.") from None
    except UserError:
        raise
    except (SafetensorError, OSError, *DAMAGED) as error:
        reason = printable(error)
        raise UserError(f"{path} can't be read as {what} ({reason}): make it again.") from None
