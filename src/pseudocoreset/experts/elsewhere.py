"""Train experts as tasks of an executor. The calling process stores the results."""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import torch

from pseudocoreset.data import Data
from pseudocoreset.engine.progress import SILENT_TASK, Task
from pseudocoreset.experts.lane import Lane, Trained
from pseudocoreset.experts.store import Claims, ExpertStore, StoreIdentity
from pseudocoreset.nets import Net
from pseudocoreset.predictor import Predictor
from pseudocoreset.scale import Executor
from pseudocoreset.scale import Task as Work

CPU = torch.device("cpu")


@dataclass(frozen=True)
class _Shared:
    """What all experts of a call have in common."""

    name: str
    net: Net
    data: Data
    identity: StoreIdentity
    device: torch.device

    def lane(self) -> Lane:
        """Where they are trained."""
        on_device = self.data.to(self.device)
        predictor = Predictor(self.net, on_device.test.inputs, self.data.scaling)
        return Lane(self.net, on_device, predictor, self.identity, self.device)


_LANES: dict[str, Lane] = {}
"""The last one: a worker that trains one expert after another captures its steps once."""


def train_elsewhere(
    executor: Executor,
    gpu_share: float,
    net: Net,
    data: Data,
    store: ExpertStore,
    device: torch.device,
    claims: Claims,
    task: Task,
) -> None:
    """Train the experts that no other process has, one per task; then those others did not finish.

    Args:
        executor: what runs the tasks
        gpu_share: the share of a GPU that one expert needs
        net: the network
        data: the data set
        store: where the experts are stored, from here alone
        device: where they are trained
        claims: which are to be trained
        task: what listens
    """
    gpus = gpu_share if device == torch.device("cuda") else 0.0
    shared = executor.put(_Shared(uuid4().hex, net, data.to(CPU), store.identity, device))
    claimed: dict[int, Generator[int]] = {}  # until it is stored

    def work(number: int) -> Work:
        return Work(f"expert {number}", train_one, (shared, number), gpus)

    def free() -> Iterator[Work]:
        while (number := next(claim := claims.free(), None)) is not None:
            if store.is_whole(number):  # since another process wrote it
                _skip(task, store)
                claim.close()
            else:
                claimed[number] = claim
                yield work(number)

    def store_all(todo: Iterable[Work]) -> None:
        for done, trained in executor.run(todo):
            number = done.arguments[1]
            store.write(number, trained.snapshots, trained.figures, net, trained.made)
            for loss in trained.figures["train_loss"]:
                task.advance(loss=loss)
            if number in claimed:
                claimed.pop(number).close()

    store_all(free())
    for number in claims.others():
        if store.is_whole(number):
            _skip(task, store)
        else:
            store_all([work(number)])


def _skip(task: Task, store: ExpertStore) -> None:
    """Show the epochs of an expert that another process has stored."""
    for _ in range(store.identity.epochs):
        task.advance()


def train_one(shared: _Shared, number: int) -> Trained:
    """What a task does: train one expert.

    Args:
        shared: settings of all experts
        number: the expert
    """
    if shared.name not in _LANES:
        _LANES.clear()
        _LANES[shared.name] = shared.lane()
    training = _LANES[shared.name].train(number, SILENT_TASK)
    while True:
        try:
            next(training)
        except StopIteration as end:
            trained: Trained = end.value
            return trained
