"""Expert trajectories on disk: `index.json`, and one safetensors file per trajectory.

A small JSON file next to each states the device and versions that made it.

A trajectory is a matrix `params` (snapshots × parameters), and `buffers` where the network has
some; row r is the state after `first_epoch + r` epochs. Files appear whole or not at all, and a
snapshot is read as one row, whatever the size of the store.
"""

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import IO, Any, get_type_hints

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.engine.files import lock_file, locked, open_tensors, write_json, write_tensors
from pseudocoreset.engine.parse import read_json
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.nets import Net, NetLike, Weights, make_net, make_stored_net

FORMAT = 2
TRAJECTORY = "an expert trajectory"


@dataclass(frozen=True)
class StoreIdentity:
    """The settings that all trajectories of a store have in common."""

    data: str
    holdout: int  # before the fingerprint, which follows from it: a refusal names the first
    fingerprint: str
    net: str
    channels: int
    image_size: int
    classes: int
    epochs: int
    first_epoch: int
    lr: float
    batch: int
    dsa: str
    half: bool
    seed: int
    task: str = "classification"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """What the networks take; for tables `channels` is the number of columns."""
        sides = (self.image_size, self.image_size) if self.image_size else ()
        return (self.channels, *sides)

    def as_json(self) -> dict[str, Any]:
        """The content of files; the task only where it is not the usual one."""
        values = asdict(self)
        if self.task == "classification":
            del values["task"]
        return values


class ExpertStore:
    """A folder of experts: snapshots of their weights after each epoch."""

    def __init__(
        self,
        path: Path,
        identity: StoreIdentity,
        num: int | None = None,
        *,
        net_source: str | None = None,
        trust_code: bool = False,
    ) -> None:
        self.path = path
        self.identity = identity
        self._num = num
        self._net_source = net_source
        self._trust_code = trust_code

    def __repr__(self) -> str:
        kept = self.identity
        what = f"{printable(kept.net)} on {printable(kept.data)}"
        return f"ExpertStore({str(self.path)!r}, {len(self)} × {what})"

    def first(self, num: int) -> "ExpertStore":
        """The same store with only the first trajectories.

        Args:
            num: how many
        """
        source, trust = self._net_source, self._trust_code
        return ExpertStore(self.path, self.identity, num, net_source=source, trust_code=trust)

    @staticmethod
    def open(
        path: Path | str, *, net: NetLike | None = None, trust_code: bool = False
    ) -> "ExpertStore":
        """Open an existing store.

        Args:
            path: the store's folder
            net: the network, needed if it is your own code
            trust_code: run code of your own that the store names
        """
        path = Path(path)
        index = path / "index.json"
        try:
            content = read_json(index)
            if content["format"] != FORMAT:
                raise UserError(
                    f"{index} has format {printable(content['format'])} and this version reads "
                    f"{FORMAT}: train the experts again."
                )
            identity = StoreIdentity(**content["identity"])
            _check_types(identity)
            source = content.get("net_source")
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{path} is not an expert store (it has no index.json): make one with "
                "`pseudocoreset experts`."
            ) from None
        except UserError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{index} can't be read as an expert store's index ({printable(error)}): train the "
                "experts again into another folder."
            ) from None
        store = ExpertStore(path, identity, net_source=source, trust_code=trust_code)
        if net is not None:
            store._refuse_unlike(net)
        return store

    def _refuse_unlike(self, net: NetLike) -> None:
        identity = self.identity
        spec = make_net(net, input_shape=identity.input_shape, outputs=identity.classes).spec
        if spec != identity.net:
            raise UserError(
                f"{self.path} holds experts of {printable(identity.net)}, not of {spec}.", "net"
            )

    @staticmethod
    def create(
        path: Path | str, identity: StoreIdentity, net_source: str | None = None
    ) -> "ExpertStore":
        """Open a store for writing, or create one. A store with other settings is refused.

        A store without any trajectory (for example after divergence) is replaced, unless another
        process is using it.

        Args:
            path: the store's folder
            identity: the settings of all its trajectories
            net_source: digest of the source code of a network of your own
        """
        path = Path(path)
        store = ExpertStore(path, identity, net_source=net_source)
        if (path / "index.json").exists():
            there = ExpertStore.open(path)
            if there.trajectories:  # nothing is to be written, which may not be allowed
                store._refuse_another(there)
                return store
        with store._lock() as lock, locked(lock, None, wait=False) as alone:
            if not alone and (path / "index.json").exists():
                store._refuse_another(ExpertStore.open(path))
                return store
            for trajectory in store.trajectories:  # of a store whose index was lost
                store._refuse_foreign(trajectory, store.describe(trajectory))
            index = {"format": FORMAT, "identity": identity.as_json()}
            if net_source is not None:
                index["net_source"] = net_source
            write_json(path / "index.json", index)
        return store

    def _refuse_another(self, there: "ExpertStore") -> None:
        advice = "give another `out`, or the settings it was started with"
        self._refuse_other(self.path, asdict(there.identity), advice)

    def _refuse_other(self, path: Path, identity: Mapping[str, Any], advice: str) -> None:
        """Refuse, naming the difference, what is of another identity than this store."""
        for name, here in asdict(self.identity).items():
            there = identity.get(name, "classification" if name == "task" else None)
            if there != here:
                raise UserError(
                    f"{path} holds experts with {name} {printable(there)}, not {here}: {advice}.",
                    "out",
                )

    @property
    def first_epoch(self) -> int:
        """The first epoch with a snapshot; 0 is the initialisation."""
        return self.identity.first_epoch

    @property
    def last_epoch(self) -> int:
        """The last epoch of each trajectory."""
        return self.identity.epochs

    @property
    def fingerprint(self) -> str:
        """A digest of the settings and the weights."""
        held_ones = [(path.name, self._digest_of(path)) for path in self.trajectories]
        return _digest(json.dumps([self.identity.as_json(), held_ones], sort_keys=True).encode())

    def _digest_of(self, trajectory: Path) -> Any:
        with open_tensors(trajectory, TRAJECTORY) as (_, metadata):
            return metadata["digest"]

    def __len__(self) -> int:
        """The number of complete trajectories."""
        return len(self.trajectories)

    @cached_property
    def trajectories(self) -> list[Path]:
        """The files of the complete trajectories when the store was opened, by number."""
        return sorted(self.path.glob("trajectory-*.safetensors"))[: self._num]

    def trajectory_path(self, number: int) -> Path:
        """The file of trajectory `number`.

        Args:
            number: the number of the trajectory
        """
        return self.path / f"trajectory-{number:04d}.safetensors"

    def made_path(self, number: int) -> Path:
        """The file with the device and versions that made trajectory `number`.

        Args:
            number: the number of the trajectory
        """
        return self.trajectory_path(number).with_suffix(".json")

    def makers(self) -> list[dict[str, Any]]:
        """The devices and versions that made the trajectories, each once.

        Trajectories made before this was recorded are not included.
        """
        found: list[dict[str, Any]] = []
        for trajectory in self.trajectories:
            try:
                made = read_json(trajectory.with_suffix(".json"))
            except (OSError, ValueError):
                continue
            if isinstance(made, dict) and made not in found:
                found.append(made)
        return found

    def is_whole(self, number: int) -> bool:
        """Whether trajectory `number` exists and can be read.

        Args:
            number: the number of the trajectory
        """
        path = self.trajectory_path(number)
        try:
            metadata = self.describe(path)
        except UserError:
            return False
        self._refuse_foreign(path, metadata)
        self.refuse_other_net(path)
        return True

    def refuse_damaged(self) -> None:
        """Raise an error for trajectories that do not fit the store."""
        for path in self.trajectories:
            self._refuse_foreign(path, self.describe(path))
            self.refuse_other_net(path)

    def refuse_other_net(self, trajectory: Path) -> None:
        """Raise an error if stored weights do not fit the network.

        Args:
            trajectory: a trajectory's file
        """
        with open_tensors(trajectory, TRAJECTORY) as (tensors, _):
            shapes = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
            sizes = shapes["params"][1], shapes.get("buffers", (0, 0))[1]
            kept = self.last_epoch - self.first_epoch + 1
            if any(shape[0] != kept for shape in shapes.values()):
                raise ValueError(f"it has not {kept} snapshots")
        self._net.refuse_other_weights(trajectory, sizes)

    def make_net(self) -> Net:
        """The network of the experts."""
        return self._net

    @cached_property
    def _net(self) -> Net:
        identity = self.identity
        return make_stored_net(
            identity.net,
            input_shape=identity.input_shape,
            outputs=identity.classes,
            source=self.path,
            trust_code=self._trust_code,
            digest=self._net_source,
        )

    @property
    def noise(self) -> float | None:
        """For regression, the scaled RMSE of the experts on points they were not trained on."""
        errors = [self.describe(path).get("left_out_rmse") for path in self.trajectories]
        known = [float(error) for error in errors if error is not None]
        return sqrt(sum(error**2 for error in known) / len(known)) if known else None

    @contextmanager
    def claims(self, numbers: Sequence[int]) -> Iterator["Claims"]:
        """Divide trajectories among the processes that train them.

        Call it once per process: its locks belong to the process.

        Args:
            numbers: the trajectories to be made
        """
        with self._lock() as lock:
            self._refuse_another(ExpertStore.open(self.path))  # begun anew since it was opened
            yield Claims(lock, numbers)

    def _lock(self) -> AbstractContextManager[IO[bytes]]:
        return lock_file(self.path / ".lock")

    def _refuse_foreign(self, trajectory: Path, metadata: Mapping[str, Any]) -> None:
        advice = f"it is not of the store {self.path}, so take it away"
        identity = metadata.get("identity")
        self._refuse_other(trajectory, identity if isinstance(identity, dict) else {}, advice)

    def write(
        self,
        number: int,
        snapshots: list[Weights],
        figures: Mapping[str, Any],
        net: Net,
        made: Mapping[str, Any] | None = None,
    ) -> None:
        """Store one trajectory.

        Args:
            number: the number of the trajectory
            snapshots: the weights after each stored epoch
            figures: what to keep in the metadata
            net: the network
            made: where and by which versions it was made; kept beside the file, not in it, so
                that equal weights are equal files
        """
        dtype = torch.float16 if self.identity.half else torch.float32
        tensors = {"params": torch.stack([s.params for s in snapshots]).to(dtype)}
        if net.num_buffers:
            tensors["buffers"] = torch.stack([s.buffers for s in snapshots])
        metadata = {
            "kind": TRAJECTORY,
            "number": number,
            "identity": self.identity.as_json(),
            "digest": _digest(*(part.numpy().data for part in tensors.values())),
            **figures,
        }
        if made is not None:  # first: where there is a trajectory, what belongs to it is there
            write_json(self.made_path(number), made)
        write_tensors(self.trajectory_path(number), tensors, metadata)
        self.__dict__.pop("trajectories", None)

    def describe(self, path: Path) -> dict[str, Any]:
        """A trajectory's metadata: its number and how its training went.

        Args:
            path: a trajectory's file
        """
        with open_tensors(path, TRAJECTORY) as (_, metadata):
            return metadata

    def snapshot(self, trajectory: Path, epoch: int, device: torch.device) -> Weights:
        """The weights after `epoch` epochs. Only these are read from the file.

        Args:
            trajectory: a trajectory's file
            epoch: the epoch; 0 is the init
            device: where to put the weights
        """
        self.require(epoch, epoch)
        row = epoch - self.first_epoch
        with open_tensors(trajectory, TRAJECTORY) as (tensors, metadata):
            self._refuse_foreign(trajectory, metadata)
            params: Float[Tensor, " p"] = tensors.get_slice("params")[row]
            if "buffers" in tensors.keys():  # noqa: SIM118 - safetensors' object is no dict
                buffers: Float[Tensor, " q"] = tensors.get_slice("buffers")[row]
            else:
                buffers = torch.zeros(0)
            # Copies: a slice is a view of the mapped file, which it would keep open.
            return Weights(
                params.to(device, torch.float32, copy=True), buffers.to(device, copy=True)
            )

    def draw(
        self, from_epoch: int, rng: Rng, device: torch.device, to_epoch: int | None = None
    ) -> Weights:
        """A random snapshot of a random trajectory.

        Args:
            from_epoch: the first epoch
            rng: source of the choice
            device: where to put the weights
            to_epoch: the last epoch; None for the last one stored
        """
        trajectory = self.trajectories[rng.choose(len(self))]
        last = self.last_epoch if to_epoch is None else to_epoch
        epoch = from_epoch + rng.choose(last - from_epoch + 1)
        return self.snapshot(trajectory, epoch, device)

    def require(self, first: int, last: int) -> None:
        """Raise an error if an epoch from `first` to `last` is not stored.

        Args:
            first: the first epoch that is needed
            last: the last epoch that is needed
        """
        if not self.trajectories:
            raise UserError(
                f"{self.path} holds no whole trajectory yet: run `pseudocoreset experts` again.",
                "experts",
            )
        if first < self.first_epoch or max(first, last) > self.last_epoch:
            raise UserError(
                f"{self.path} holds epochs {self.first_epoch} to {self.last_epoch} and epochs "
                f"{first} to {last} are needed: train experts that keep them, or give another "
                "`from_epoch`, `to_epoch` or `start_epochs`, whichever the method takes.",
                "experts",
            )


class Claims:
    """Trajectories to train, each claimed by one process until it asks for the next."""

    def __init__(self, lock: IO[bytes], numbers: Sequence[int]) -> None:
        self._lock = lock
        self._rest = iter(numbers)
        self._others: list[int] = []

    def free(self) -> Generator[int]:
        """The trajectories that no other process has claimed, one after another.

        Several of these iterators can be used in turn.
        """
        while (number := next(self._rest, None)) is not None:
            with locked(self._lock, number, wait=False) as mine:
                if mine:
                    yield number
                else:
                    self._others.append(number)

    def give_no_more(self) -> None:
        """Claim no more trajectories."""
        self._rest = iter(())

    def others(self) -> Iterator[int]:
        """The trajectories that other processes had claimed, after they released them.

        Ask for them when nothing else is under way, or two processes may wait for each other.
        """
        for number in self._others:
            with locked(self._lock, number, wait=True):
                yield number


def _check_types(identity: StoreIdentity) -> None:
    """Raise TypeError for an index whose values are of other types."""
    kinds: dict[str, type | tuple[type, ...]] = get_type_hints(StoreIdentity)
    kinds["lr"] = (int, float)
    for name, kind in kinds.items():
        value = getattr(identity, name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"{name} is {printable(repr(value))}")


def _digest(*parts: bytes | memoryview) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
