"""A disk that forgets what was not synced: what would be there after a loss of power."""

import shutil
from pathlib import Path
from typing import Any

from every_write import Bench

MODELS = ("nothing unsynced", "names at once")
"""Nothing survives that was not synced; or files' names do, and their content if it was."""


class Disk:
    """Follows the files under a folder, write by write, and knows which have reached the disk.

    Args:
        place: the folder
        out: where to put what would survive, a folder for each state of it
    """

    def __init__(self, place: Path, out: Path) -> None:
        self._place, self._out = place, out
        self._names: dict[int, int] = {}  # what an inode is called here: inodes are used again
        self._next = 0
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, tuple[int, bool]]] = {}
        self._seen: set[str] = set()
        self._look()
        for path in (place, *place.rglob("*")):  # what was there before is on the disk
            self._sync(path)

    def act(self, what: str, path: Path) -> None:
        """Note what a write does to the disk, and keep what would survive now."""
        self._look()
        if what == "fsync":
            self._sync(path)
        for model in MODELS:
            self._keep(self._surviving(model))

    def end(self) -> None:
        """The job says that it is done: what would survive now is to be all of it."""
        self._look()
        _write(self._surviving(MODELS[0]), self._out / "end" / "place")

    def _look(self) -> None:
        """Forget the inodes that are gone, and name those that are new."""
        there = {path.lstat().st_ino for path in (self._place, *self._place.rglob("*"))}
        self._names = {inode: name for inode, name in self._names.items() if inode in there}
        for inode in there - self._names.keys():
            self._names[inode] = self._next = self._next + 1

    def _name(self, path: Path) -> int:
        return self._names[path.lstat().st_ino]

    def _sync(self, path: Path) -> None:
        if not path.exists():
            return
        if path.is_dir():
            self._folders[self._name(path)] = self._entries(path)
        else:
            self._files[self._name(path)] = path.read_bytes()

    def _entries(self, folder: Path) -> dict[str, tuple[int, bool]]:
        return {path.name: (self._name(path), path.is_dir()) for path in folder.iterdir()}

    def _surviving(self, model: str) -> dict[str, Any]:
        if model == MODELS[0]:
            return self._synced(self._name(self._place))
        return self._named(self._place)

    def _synced(self, folder: int) -> dict[str, Any]:
        return {
            name: self._synced(inner) if is_folder else self._files.get(inner, b"")
            for name, (inner, is_folder) in self._folders.get(folder, {}).items()
        }

    def _named(self, folder: Path) -> dict[str, Any]:
        return {
            path.name: self._named(path)
            if path.is_dir()
            else self._files.get(self._name(path), b"")
            for path in folder.iterdir()
        }

    def _keep(self, tree: dict[str, Any]) -> None:
        text = repr(_sorted(tree))
        if text not in self._seen:
            self._seen.add(text)
            _write(tree, self._out / f"{len(self._seen):04}" / "place")


def _sorted(tree: Any) -> Any:
    return [(k, _sorted(v)) for k, v in sorted(tree.items())] if isinstance(tree, dict) else tree


def _write(tree: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, content in tree.items():
        if isinstance(content, dict):
            _write(content, folder / name)
        else:
            (folder / name).write_bytes(content)


def power_loss(bench: Bench, step: int) -> int:
    """Go on from each state that a loss of power could leave; how many there were."""
    place, out = bench.place("run"), bench.root / "surviving"
    disk = Disk(place, out)
    code = bench.run(place, disk.act, disk.end)
    if code != 0:
        print(f"exit code {code}: {bench.told}")
        return 0
    other = bench.differences(bench.left(out / "end" / "place"), bench.whole)
    if other:
        print(f"done, and not on the disk: {', '.join(other)}")
    states = sorted(path for path in out.iterdir() if path.name != "end")
    for state in states[::step]:
        what = f"state {int(state.name)} of {len(states)}"
        bench.finish(state / "place", what)
        shutil.rmtree(state)
    return len(states[::step])
