"""Experts as tasks of an executor; who calls it stores what they give."""

from collections.abc import Generator, Iterable, Iterator

import torch

from pseudocoreset.data import Data
from pseudocoreset.engine.progress import SILENT_TASK, Task
from pseudocoreset.experts.lane import Lane, Trained
from pseudocoreset.experts.store import Claims, ExpertStore, StoreIdentity
from pseudocoreset.nets import Net
from pseudocoreset.predictor import Predictor
from pseudocoreset.scale import Executor
from pseudocoreset.scale import Task as Work


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
    """Train what no other process has, a task each; then what others had and did not store.

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
    shared = executor.put((net, data, store.identity, device))
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


def train_one(shared: tuple[Net, Data, StoreIdentity, torch.device], number: int) -> Trained:
    """What a task does: train one expert.

    Args:
        shared: what all experts share
        number: the expert
    """
    net, data, identity, device = shared
    on_device = data.to(device)
    predictor = Predictor(net, on_device.test.inputs, data.scaling)
    training = Lane(net, on_device, predictor, identity, device).train(number, SILENT_TASK)
    while True:
        try:
            next(training)
        except StopIteration as end:
            trained: Trained = end.value
            return trained
