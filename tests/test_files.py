"""Files that appear whole or not at all, and the refusal of those that are not ours."""

import os
import signal
import sys
import time
from errno import ENOSPC
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from pseudocoreset.engine.files import (
    LEFT_BEHIND_S,
    append_text,
    lock_file,
    open_tensors,
    whole_file,
    write_json,
    write_tensors,
)
from pseudocoreset.engine.parse import Shape, check_shape, parse_json
from pseudocoreset.errors import UserError


class Interrupted(BaseException):
    """Not an Exception, as KeyboardInterrupt is not."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_seen_before_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "a.txt"
    with whole_file(target) as part:
        part.write_text("half")
        assert not target.exists()
        assert part.parent == target.parent  # a move within a file system is atomic
    assert target.read_text() == "half"
    assert names(target.parent) == ["a.txt"]


def write_then_raise(target: Path, error: BaseException) -> None:
    with whole_file(target) as part:
        part.write_text("new")
        raise error


@pytest.mark.parametrize("error", [ValueError(), Interrupted()])
def test_exception_leaves_the_old_file_and_no_litter(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(type(error)):
        write_then_raise(target, error)
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [OSError(ENOSPC, "No space left"), SafetensorError("No space")])
def test_full_disk_is_refused_and_leaves_the_old_file(tmp_path: Path, error: Exception) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(UserError, match="No space"):
        write_then_raise(target, error)
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced and what is moved, in that order."""
    calls: list[str] = []
    sync, move = os.fsync, os.replace

    def fsync(handle: int) -> None:
        calls.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name}")
        sync(handle)

    def replace(source: object, target: Path) -> None:
        calls.append(f"move to {target.name}")
        move(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return calls


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_file_is_synced_before_it_is_moved_and_its_folders_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = recorded(monkeypatch)
    write_json(tmp_path / "new" / "folder" / "a.json", 1)
    part = calls[2].removeprefix("sync ")
    assert part.startswith(".a.json.")
    made = [f"sync {tmp_path.name}", "sync new"]
    assert calls == [*made, f"sync {part}", "move to a.json", "sync folder"]


def test_text_that_can_not_be_appended_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(ENOSPC, "No space left")

    path = tmp_path / "a.txt"
    append_text(path, "one\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="No space"):
            append_text(path, "two\n")
    assert path.read_text() == "one\n"
    append_text(path, "three\n")
    assert path.read_text() == "one\nthree\n"


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", "1e999", "9" * 400, "[" * 100_000, "{"])
def test_json_that_we_never_write_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("a", float),
        (True, float),
        (1.5, int),
        (1, bool),
        (None, dict),
        ({}, {"a": int}),
        ({"a": "b"}, {"a": int}),
        ([1, "a"], [int]),
        ({"a": [{"b": []}]}, {"a": [{"b": int | None}]}),
    ],
)
def test_value_of_another_shape_is_refused(value: object, shape: Shape) -> None:
    with pytest.raises(ValueError):
        check_shape(value, shape)


def test_value_of_its_shape_is_taken() -> None:
    value = {"a": [{"b": None}, {"b": 3}], "c": 1, "d": 0.5, "e": True, "more": "text"}
    check_shape(value, {"a": [{"b": int | None}], "c": float, "d": float, "e": bool})


def leave_litter(target: Path) -> None:
    """What a process that is killed while it writes leaves behind."""
    child = os.fork()
    if child == 0:
        with whole_file(target) as part:
            part.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("name", ["a.txt", "a[1]*.txt"])
def test_litter_of_a_killed_process_is_removed(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    target.write_text("old")
    leave_litter(target)
    assert target.read_text() == "old"
    (litter,) = (path for path in tmp_path.iterdir() if path != target)
    write_json(target, 1)
    assert litter.exists()  # a process may be at it still
    os.utime(litter, (0, time.time() - LEFT_BEHIND_S - 1))
    write_json(target, 2)
    assert names(tmp_path) == [name]


def test_two_may_write_the_same_file_at_once(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with whole_file(target) as part:
        part.write_text("slow")
        write_json(target, "quick")
    assert target.read_text() == "slow"
    assert names(tmp_path) == ["a.txt"]


def test_other_files_under_way_are_left_alone(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a.txt") as first, whole_file(tmp_path / "ba.txt") as second:
        first.write_text("1")
        second.write_text("2")
        write_json(tmp_path / "a", 3)  # "a" is how the name of "a.txt" begins
    assert names(tmp_path) == ["a", "a.txt", "ba.txt"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_those_of_any_new_file(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_json(tmp_path / "a.json", {})
        assert os.umask(umask) == umask  # and it is left as it was
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == mode


def test_numbers_that_json_does_not_know_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert names(tmp_path) == []


def test_tensors_and_metadata_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    matrix = torch.arange(6.0).view(2, 3).T  # not contiguous
    write_tensors(path, {"x": matrix.requires_grad_()}, {"kind": "a coreset", "loss": [0.1, 2]})
    with open_tensors(path, "a coreset") as (tensors, metadata):
        assert torch.equal(tensors.get_tensor("x"), matrix)
        assert metadata == {"kind": "a coreset", "loss": [0.1, 2]}


def test_lock_that_can_be_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / ".lock", tmp_path):
        with pytest.raises(UserError, match="can't be written"), lock_file(place):
            pass


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as refused, open_tensors(path, "a coreset"):
        pass
    assert str(path) in str(refused.value)
    return str(refused.value)


def test_open_refuses_what_is_not_there(tmp_path: Path) -> None:
    assert "does not exist: give the path of a coreset" in refusal(tmp_path / "none")
    assert "is a folder: give the path of a coreset" in refusal(tmp_path)


def test_open_refuses_another_kind_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"x": torch.zeros(2)}, {"kind": "an expert trajectory"})
    assert "holds an expert trajectory: give a coreset" in refusal(path)


@pytest.mark.parametrize("metadata", [None, {"by": "another"}])
def test_open_refuses_files_of_other_programs(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"x": torch.zeros(2)}, path, metadata)
    assert "was not written by pseudocoreset" in refusal(path)


@pytest.mark.parametrize("text", ["{", "[1]", "3", ""])
def test_open_refuses_broken_metadata(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"x": torch.zeros(2)}, path, {"pseudocoreset": text})
    assert "can't be read as a coreset" in refusal(path)


@pytest.mark.parametrize("kept", [0, 4, 20, -1])
def test_open_refuses_truncated_files(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"x": torch.zeros(200)}, {"kind": "a coreset"})
    path.write_bytes(path.read_bytes()[:kept])
    assert "can't be read as a coreset" in refusal(path)


def test_reading_a_file_loads_no_pickle(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    torch.save({"x": torch.zeros(2)}, path)
    assert "can't be read as a coreset" in refusal(path)
