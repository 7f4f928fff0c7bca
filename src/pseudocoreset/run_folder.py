"""The folder of a run: configuration, metrics, checkpoint and coreset. Runs can be resumed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml

from pseudocoreset.engine.files import (
    append_text,
    lock_file,
    locked,
    open_tensors,
    write_json,
    write_tensors,
    write_text,
)
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.options import LARGEST
from pseudocoreset.engine.parse import check_shape, read_json
from pseudocoreset.engine.text import printable
from pseudocoreset.engine.versions import made_on, refuse_other
from pseudocoreset.errors import UserError

CHECKPOINT = "a checkpoint"
START = "start.safetensors"
MOST_VALUES = 100_000
"""More values than these no configuration has; YAML can name a few so often that they are more."""
LOUD_SHARE = 0.01
"""More updates than this that missed γ are a reason not to trust the coreset."""


class OtherRunError(UserError):
    """The folder holds a run with other settings, described by `found`."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}: {advice}.", "out")
        self.found = found


class RunFolder:
    """The folder of one distillation.

    Options that are `extendable` may change when a run is resumed. The file `made.json` records the
    devices and versions of all updates; resuming on another kind of device or with another version
    needs `other_versions`.
    """

    def __init__(
        self,
        path: Path,
        config: dict[str, Any],
        extendable: frozenset[str] = frozenset(),
        *,
        device: torch.device | None = None,
        other_versions: bool = False,
    ) -> None:
        self.path = path
        self._device = device
        self._other_versions = other_versions
        self._extendable = extendable
        self._config = json.loads(json.dumps(config))  # as a file gives it back: no tuples
        self._pending: list[str] = []

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Begin the folder, or go on in it, and keep other processes out while this one works.

        A run of other settings is refused by name.
        """
        with lock_file(self.path / ".lock") as lock, locked(lock, 0, wait=False) as mine:
            if not mine:
                raise UserError(
                    f"another process is using {self.path}: wait until it ends, or give another "
                    "folder."
                )
            self._begin()
            yield

    def _begin(self) -> None:
        path, config = self.path, self._config
        if (path / "config.yaml").exists():
            there = read_config(path)
            free = {*self._extendable, "recipe"}  # what a recipe says is compared by itself
            for name in {**config, **there}:  # in their order: the method goes before its settings
                if name in free or config.get(name) == there.get(name):
                    continue
                if name == "experts":  # their digests would tell nobody anything
                    raise OtherRunError(
                        f"{path} holds a run with other experts (perhaps more experts have been "
                        "trained since)",
                        "give another `out`, or the experts it was started with",
                    )
                raise OtherRunError(
                    f"{path} holds a run with {printable(name)} {printable(there.get(name))}, not "
                    f"{config.get(name)}",
                    "give another `out`, or the settings it was started with",
                )
            done = self._done()
            self._refuse_fewer(config, done)
            if done < config.get("steps", 0) and self._device and not self._other_versions:
                for part in self.parts() if done else []:
                    refuse_other(part, self._device, path)
        write_text(path / "config.yaml", yaml.safe_dump(config, sort_keys=False))

    def _done(self) -> int:
        """The updates that the last checkpoint has."""
        if not self._checkpoint_path.exists():
            return 0
        with open_tensors(self._checkpoint_path, CHECKPOINT) as (_, metadata):
            return _updates(metadata)

    def _refuse_fewer(self, config: dict[str, Any], done: int) -> None:
        """A coreset of 1000 updates must not say that it had 500."""
        if config.get("steps", done) < done:
            raise OtherRunError(
                f"{self.path} holds a run of {done} updates, more than {config['steps']}",
                f"give `steps` {done} or more, or another `out`",
            )

    @property
    def coreset_path(self) -> Path:
        """Where the coreset is."""
        return self.path / "coreset.safetensors"

    @property
    def start_path(self) -> Path:
        """Where the points are that the first update began with, a byte for each number."""
        return self.path / START

    @property
    def _metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def _checkpoint_path(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def restore(self) -> tuple[int, State]:
        """The last checkpoint: updates done, and all tensors; (0, {}) for a run not begun."""
        path, done = self._checkpoint_path, 0
        state: State = {}
        if path.exists():
            with open_tensors(path, CHECKPOINT) as (tensors, metadata):
                state = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
                done = _updates(metadata)
        self._keep_metrics(done)
        if done < self._config.get("steps", 0):
            self._keep_part(done)
        return done, state

    def parts(self) -> list[dict[str, Any]]:
        """The devices and versions that made its updates, each with the update before its first.

        Updates that were made before this was recorded are in none.
        """
        path = self.path / "made.json"
        if not path.exists():
            return []
        try:
            found = read_json(path)
            check_shape(found, [{"after_update": int}])
        except ValueError as error:
            raise UserError(
                f"{path} can't be read ({printable(error)}): start another run."
            ) from None
        return list(found)

    def _keep_part(self, done: int) -> None:
        """Note that updates from here on are made here."""
        if self._device is None:
            return
        before = [part for part in self.parts() if done and part["after_update"] <= done]
        part = {"after_update": done, **made_on(self._device)}
        if not before or {**before[-1], "after_update": done} != part:
            write_json(self.path / "made.json", [*before, part])

    def log(self, figures: dict[str, float]) -> None:
        """Note the figures of an update; they are written with the next checkpoint."""
        self._pending.append(json.dumps(figures, allow_nan=False))

    def checkpoint(self, update: int, state: State) -> None:
        """Keep all that is needed to go on from here.

        Metrics go first: a crash between the two leaves lines of updates that will be done again,
        which `restore` drops.
        """
        if self._pending:
            append_text(self._metrics_path, "\n".join(self._pending) + "\n")
            self._pending.clear()
        metadata = {"kind": CHECKPOINT, "update": update}
        write_tensors(self._checkpoint_path, state, metadata)

    def metrics(self) -> list[dict[str, Any]]:
        """The figures of each update so far."""
        return read_metrics(self.path)

    def _keep_metrics(self, update: int) -> None:
        kept = [row for row in read_metrics(self.path) if row["update"] <= update]
        if kept or self._metrics_path.exists():
            write_text(self._metrics_path, "".join(json.dumps(row) + "\n" for row in kept))


def _updates(metadata: dict[str, Any]) -> int:
    """How many updates a checkpoint says that were made."""
    done = metadata["update"]
    if type(done) is not int or done < 0:
        raise ValueError("its number of updates is damaged")
    return done


def read_config(path: Path) -> dict[str, Any]:
    """The resolved configuration of a run: what JSON can say, and nothing else.

    Args:
        path: the run's folder
    """
    file = path / "config.yaml"
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path} is not a run folder (it has no config.yaml): give the folder that "
            "`pseudocoreset distill` wrote."
        ) from None
    except PermissionError:
        raise
    except Exception:  # a value that is not what its tag says can raise nearly anything
        config = None
    if not isinstance(config, dict) or not is_plain(config):
        raise UserError(f"{file} can't be read as a run's configuration: start another run.")
    return with_names_of_today(config)


def with_names_of_today(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run, where those of version 0.1 have the names of today.

    Args:
        config: the settings by name
    """
    if "form" in config:
        return config
    kept = {name: value for name, value in config.items() if name != "learn_labels"}
    if kept.get("method") == "random":  # which has no use for it
        kept.pop("init", None)
    labels = "learned" if config.get("learn_labels") is True else "hard"
    return {**kept, "form": "pixels", "labels": labels}


def is_plain(config: dict[Any, Any]) -> bool:
    """Whether it holds texts and numbers only, under names that are texts, and not too many.

    Args:
        config: what a YAML file says
    """
    left: list[Any] = [config]
    for _ in range(MOST_VALUES):
        if not left:
            return True
        value = left.pop()
        if isinstance(value, dict):
            if not all(isinstance(name, str) for name in value):
                return False
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, int):
            if abs(value) > LARGEST:
                return False
        elif value is not None and not isinstance(value, str | float):
            return False
    return False


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The figures of each update of a run; a line cut short by a crash is left out.

    One that an interrupt made twice counts once.

    Args:
        path: the run's folder
    """
    file = path / "metrics.jsonl"
    if not file.exists():
        return []
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except PermissionError:
        raise
    except OSError:
        raise UserError(f"{file} can't be read: start another run.") from None
    rows = {}
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict) or type(row.get("update")) not in (int, float):
            break
        rows[row["update"]] = row
    return list(rows.values())


def missed_gamma(figures: dict[str, Any]) -> bool:
    """Whether an update did not reach γ, with one of its networks at least."""
    missed = (v for k, v in figures.items() if k.split("/")[0] == "map_missed")
    return any(isinstance(value, int | float) and value > 0 for value in missed)
