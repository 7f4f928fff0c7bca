"""A run on disk: configuration, metrics, checkpoint, coreset; what was begun can go on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from pseudocoreset.engine.files import (
    held,
    lock_file,
    open_tensors,
    write_tensors,
    write_text,
    writing,
)
from pseudocoreset.engine.loop import State
from pseudocoreset.errors import UserError

CHECKPOINT = "a checkpoint"
LOUD_SHARE = 0.01
"""More updates than this that missed γ are a reason not to trust the coreset."""
EXTENDABLE = ("steps", "checkpoint_every", "group")
"""What may change when a run goes on: update i depends neither on how many are to follow, nor on
how often they are kept, nor on how many samples are taken at once."""


class OtherRunError(UserError):
    """A folder holds another run than the one that was to go on in it, as `found` says."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}: {advice}.")
        self.found = found


class RunFolder:
    """The folder of one distillation."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path = path
        self._config = json.loads(json.dumps(config))  # as a file gives it back: no tuples
        self._pending: list[str] = []

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Begin the folder, or go on in it, and keep other processes out while this one works.

        A run of other settings is refused by name.
        """
        with lock_file(self.path / ".lock") as lock, held(lock, 0, wait=False) as mine:
            if not mine:
                raise UserError(
                    f"another process is at work in {self.path}: wait for it to end, or work in "
                    "another folder."
                )
            self._begin()
            yield

    def _begin(self) -> None:
        path, config = self.path, self._config
        if (path / "config.yaml").exists():
            there = read_config(path)
            for name in {**config, **there}:  # in their order: the method goes before its settings
                if name in EXTENDABLE or config.get(name) == there.get(name):
                    continue
                if name == "experts":  # their digests would tell nobody anything
                    raise OtherRunError(
                        f"{path} holds a run with other experts: other ones were given, or more "
                        "have been trained since",
                        "give another --out, or the experts it was begun with",
                    )
                raise OtherRunError(
                    f"{path} holds a run with {name} {there.get(name)}, not {config.get(name)}",
                    "give another --out, or the settings it was begun with",
                )
            self._refuse_fewer(config)
        write_text(path / "config.yaml", yaml.safe_dump(config, sort_keys=False))

    def _refuse_fewer(self, config: dict[str, Any]) -> None:
        """A coreset of 1000 updates must not say that it had 500."""
        if not self._checkpoint_path.exists():
            return
        with open_tensors(self._checkpoint_path, CHECKPOINT) as (_, metadata):
            done = metadata["update"]
        if config.get("steps", done) < done:
            raise OtherRunError(
                f"{self.path} holds a run of {done} updates, more than {config['steps']}",
                f"give --steps {done} or more, or another --out",
            )

    @property
    def coreset_path(self) -> Path:
        """Where the coreset is."""
        return self.path / "coreset.safetensors"

    @property
    def _metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def _checkpoint_path(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def restore(self) -> tuple[int, State]:
        """The last checkpoint: updates done, and all tensors; (0, {}) for a run not begun."""
        path = self._checkpoint_path
        if not path.exists():
            self._keep_metrics(0)
            return 0, {}
        with open_tensors(path, CHECKPOINT) as (tensors, metadata):
            state = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        self._keep_metrics(metadata["update"])
        return metadata["update"], state

    def log(self, figures: dict[str, float]) -> None:
        """Note the figures of an update; they are written with the next checkpoint."""
        self._pending.append(json.dumps(figures, allow_nan=False))

    def checkpoint(self, update: int, state: State) -> None:
        """Keep all that is needed to go on from here.

        Metrics go first: a crash between the two leaves lines of updates that will be done again,
        which `restore` drops.
        """
        if self._pending:
            path = self._metrics_path
            with writing(path), path.open("a", encoding="utf-8") as file:
                file.write("\n".join(self._pending) + "\n")
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


def read_config(path: Path) -> dict[str, Any]:
    """The resolved configuration of a run."""
    file = path / "config.yaml"
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path} is no run folder (it has no config.yaml): give the --out of a "
            "`pseudocoreset distill`."
        ) from None
    except PermissionError:
        raise
    except (OSError, ValueError, yaml.YAMLError):
        config = None
    if not isinstance(config, dict):
        raise UserError(f"{file} can't be read as a run's configuration: begin another run.")
    return config


def as_options(config: object) -> dict[str, Any] | None:
    """What `distill --config` takes of a run's configuration; None for any other.

    Data and experts are told there by what they hold, not by where they lie.
    """
    if not isinstance(config, dict) or "data_fingerprint" not in config:
        return None
    told = {"data", "data_fingerprint", "experts", "nets"}
    return {"net": config.get("nets")} | {k: v for k, v in config.items() if k not in told}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The figures of each update of a run; a line cut short by a crash is left out.

    One that an interrupt made twice counts once.
    """
    file = path / "metrics.jsonl"
    if not file.exists():
        return []
    rows = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict) or not isinstance(row.get("update"), int | float):
            break
        rows[row["update"]] = row
    return list(rows.values())


def missed_gamma(figures: dict[str, Any]) -> bool:
    """Whether an update did not reach γ, with one of its networks at least."""
    return any(v > 0 for k, v in figures.items() if k.split("/")[0] == "map_missed")
