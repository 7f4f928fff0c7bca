"""Expert trajectories: what is trained and kept, going on after a stop, and what is refused."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from pseudocoreset.data import Data, Scaling, Split, load_data
from pseudocoreset.engine.files import open_tensors, write_json
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertOptions, ExpertStore, StoreIdentity, train_experts
from pseudocoreset.experts import lane as lane_module
from pseudocoreset.experts import store as store_module
from pseudocoreset.experts import train as train_module
from pseudocoreset.experts.store import TRAJECTORY
from pseudocoreset.nets import Weights, make_net
from pseudocoreset.predictor import Predictor
from pseudocoreset.scale import SerialExecutor
from pseudocoreset.training import Training

CPU = torch.device("cpu")
NET = "convnet:width=8"
KEPT = "convnet:width=8,norm=batch,stats=kept"
FEW = ExpertOptions(num=2, epochs=3, lr=0.1, batch=16)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So little work is slower on two threads, and much slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def stripes(number: int, seed: int) -> Split:
    """Images of three classes: bright above, bright to the left, bright in the middle."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % 3
    patterns = torch.zeros(3, 1, 8, 8)
    patterns[0, :, :4], patterns[1, :, :, :4], patterns[2, :, 2:6, 2:6] = 1, 1, 1
    noise = torch.rand(number, 1, 8, 8, generator=generator)
    images = (patterns[labels] * 0.5 + noise * 0.5) * 255
    return Split(images.to(torch.uint8), labels)


def small_data(name: str = "stripes", seed: int = 0) -> Data:
    return Data(
        name=name,
        train=stripes(48, seed),
        test=stripes(30, seed + 100),
        class_names=("above", "left", "middle"),
        scaling=Scaling((0.5,), (0.25,)),
        mirror=False,
    )


def train(
    out: Path, settings: ExpertOptions = FEW, net: str = NET, data: Data | None = None
) -> ExpertStore:
    return train_experts(data or small_data(), net, out, settings, device="cpu", progress=False)


def refused(out: Path, *given: Any, **named: Any) -> str | None:
    """The parameter that is named where this is refused."""
    with pytest.raises(UserError) as error:
        train(out, *given, **named)
    return error.value.parameter


@pytest.fixture(scope="module")
def whole_store(tmp_path_factory: pytest.TempPathFactory) -> ExpertStore:
    """Two experts, to be read only."""
    return train(tmp_path_factory.mktemp("whole"))


def contents(store: ExpertStore) -> dict[str, bytes]:
    """All files of a store, byte for byte."""
    return {path.name: path.read_bytes() for path in sorted(store.path.iterdir())}


def snapshots(store: ExpertStore, number: int) -> list[Weights]:
    epochs = range(store.first_epoch, store.last_epoch + 1)
    return [store.snapshot(store.trajectory_path(number), epoch, CPU) for epoch in epochs]


# What is trained, and what is kept of it.


def test_trajectory_begins_with_the_init_and_has_a_snapshot_an_epoch(tmp_path: Path) -> None:
    store = train(tmp_path)
    net = store.make_net()
    for number in range(2):
        rng = Rng(CPU, 0)
        rng.reseed(0, "expert", number)
        kept = snapshots(store, number)
        assert len(kept) == 4
        assert torch.equal(kept[0].params, net.init(rng.device).params)
        for before, after in pairwise(kept):
            assert not torch.equal(before.params, after.params)
        assert all(len(snapshot.buffers) == 0 for snapshot in kept)
    assert len(store) == 2
    assert not torch.equal(snapshots(store, 0)[0].params, snapshots(store, 1)[0].params)


def loss_of(store: ExpertStore, weights: Weights, data: Data) -> float:
    logits = store.make_net().apply(weights, data.scaling.apply(data.train.inputs))
    return float(F.cross_entropy(logits, data.train.targets))


@pytest.mark.parametrize("dsa", ["on", "off"])
def test_training_learns(tmp_path: Path, dsa: str) -> None:
    data = small_data()
    store = train(tmp_path, replace(FEW, num=1, epochs=12, dsa=dsa), data=data)
    losses = [loss_of(store, weights, data) for weights in snapshots(store, 0)]
    assert losses[-1] < 0.6 * losses[0]
    figures = store.describe(store.trajectory_path(0))
    assert len(figures["train_loss"]) == 12
    assert figures["train_loss"][-1] < figures["train_loss"][0]
    assert figures["test_accuracy"] > 0.8
    assert figures["number"] == 0


def test_plain_sgd_by_hand(tmp_path: Path) -> None:
    """One batch an epoch and no augmentation: the order of the images does not matter."""
    data = small_data()
    store = train(tmp_path, replace(FEW, num=1, dsa="off", batch=1000), data=data)
    net, kept = store.make_net(), snapshots(store, 0)
    assert store.identity.batch == 48
    images = data.scaling.apply(data.train.inputs)
    for before, after in pairwise(kept):
        params = before.params.clone().requires_grad_()
        loss = F.cross_entropy(
            net.apply(before._replace(params=params), images), data.train.targets
        )
        (gradient,) = torch.autograd.grad(loss, params)
        torch.testing.assert_close(after.params, before.params - 0.1 * gradient)


def test_from_epoch_keeps_the_later_snapshots(tmp_path: Path) -> None:
    whole, late = train(tmp_path / "all"), train(tmp_path / "late", replace(FEW, from_epoch=2))
    assert (late.first_epoch, late.last_epoch) == (2, 3)
    for number in range(2):
        kept = snapshots(late, number)
        assert len(kept) == 2
        for one, other in zip(kept, snapshots(whole, number)[2:], strict=True):
            assert torch.equal(one.params, other.params)


def test_half_halves_the_file_and_rounds_the_weights(tmp_path: Path) -> None:
    whole = train(tmp_path / "single", FEW, KEPT)
    half = train(tmp_path / "half", replace(FEW, half=True), KEPT)
    for one, other in zip(snapshots(whole, 1), snapshots(half, 1), strict=True):
        assert other.params.dtype == torch.float32
        assert torch.equal(one.params.half().float(), other.params)
        assert torch.equal(one.buffers, other.buffers)  # few, and statistics may be large
    sizes = [store.trajectory_path(0).stat().st_size for store in (whole, half)]
    assert sizes[1] < 0.7 * sizes[0]


def test_buffers_are_kept_where_there_are_some(tmp_path: Path) -> None:
    store = train(tmp_path, FEW, KEPT)
    net = store.make_net()
    kept = snapshots(store, 0)
    assert net.num_buffers > 0
    assert all(len(snapshot.buffers) == net.num_buffers for snapshot in kept)
    assert not torch.equal(kept[0].buffers, kept[1].buffers)
    with open_tensors(store.trajectory_path(0), TRAJECTORY) as (tensors, _):
        assert tensors.get_slice("buffers").get_shape() == [4, net.num_buffers]
        assert tensors.get_slice("params").get_shape() == [4, net.num_params]


def test_seed_decides(tmp_path: Path) -> None:
    data = small_data()
    stores = [
        train_experts(data, NET, tmp_path / name, FEW, seed=seed, device="cpu", progress=False)
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    ]
    assert contents(stores[0]) == contents(stores[1])
    ends = [snapshots(store, 0)[-1].params for store in stores]
    assert not torch.equal(ends[0], ends[2])
    assert stores[0].fingerprint == stores[1].fingerprint != stores[2].fingerprint


def test_experts_see_the_training_images_and_nothing_else(tmp_path: Path) -> None:
    data = small_data().hold_out(12)
    assert data.holdout is not None
    spoiled = Split(255 - data.holdout.inputs, (data.holdout.targets + 1) % 3)
    test = Split(255 - data.test.inputs, data.test.targets)
    other_train = Split(data.train.inputs, (data.train.targets + 1) % 3)
    ends = [
        snapshots(train(tmp_path / str(number), FEW, data=seen), 1)[-1].params
        for number, seen in enumerate(
            [data, replace(data, holdout=spoiled, test=test), replace(data, train=other_train)]
        )
    ]
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])  # what is trained on does count


@pytest.mark.parametrize(
    ("lr", "batch"),
    [
        (1e30, 16),
        (1e30, 48),  # one step an epoch: the second shows what the first did
        (1e300, 48),  # the loss before the step is fine, the weights after it are not
    ],
)
def test_expert_that_diverges_stops_and_can_be_begun_anew(
    tmp_path: Path, lr: float, batch: int
) -> None:
    settings, net = replace(FEW, lr=lr, batch=batch), "convnet:width=8,norm=none"
    assert refused(tmp_path, settings, net) == "lr"
    assert {path.name for path in tmp_path.iterdir()} == {"index.json", ".lock"}
    assert len(train(tmp_path, replace(settings, lr=0.1), net)) == 2  # into the same folder


def test_weights_that_half_precision_cannot_hold_are_refused(tmp_path: Path) -> None:
    """Instance norm keeps the loss finite whatever the size of the weights before it."""
    assert refused(tmp_path, replace(FEW, lr=1e9, half=True)) == "lr"


# Going on.


def test_continued_is_the_same_as_at_once(tmp_path: Path) -> None:
    train(tmp_path / "parts", replace(FEW, num=1), KEPT)
    parts = train(tmp_path / "parts", replace(FEW, num=3), KEPT)
    at_once = train(tmp_path / "at once", replace(FEW, num=3), KEPT)
    assert contents(parts) == contents(at_once)
    assert len(parts) == 3
    assert len(train(tmp_path / "parts", replace(FEW, num=2), KEPT)) == 3  # nothing is lost


class Recorded:
    """Progress that is written down, and may interrupt."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.figures: list[dict[str, float]] = []
        self._stop_after = stop_after

    @contextmanager
    def task(self, what: str, total: int, done: int = 0) -> Iterator["Recorded"]:
        self.begun.append((what, total, done))
        yield self

    def advance(self, steps: int = 1, **figures: float) -> None:  # noqa: ARG002
        self.figures.append(figures)
        if len(self.figures) == self._stop_after:
            raise KeyboardInterrupt


def test_whole_trajectories_are_not_trained_again_and_progress_says_so(tmp_path: Path) -> None:
    first, second, third = Recorded(), Recorded(), Recorded()
    for settings, progress in ((FEW, first), (replace(FEW, num=3), second), (FEW, third)):
        train_experts(small_data(), NET, tmp_path, settings, device="cpu", progress=progress)
    assert first.begun == [("experts", 6, 0)]
    assert second.begun == [("experts", 9, 6)]
    assert third.begun == []
    assert [len(recorded.figures) for recorded in (first, second, third)] == [6, 3, 0]
    assert set(first.figures[0]) == {"loss", "accuracy"}
    losses = [figures["loss"] for figures in first.figures[:3]]
    store = ExpertStore.open(tmp_path)
    assert losses == store.describe(store.trajectory_path(0))["train_loss"]
    assert all(0 <= figures["accuracy"] <= 1 for figures in first.figures)


@pytest.mark.parametrize("stop_after", [1, 3, 4])
def test_interrupted_between_epochs_then_continued(tmp_path: Path, stop_after: int) -> None:
    stopped = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        train_experts(small_data(), NET, stopped, FEW, device="cpu", progress=Recorded(stop_after))
    there = {path.name for path in stopped.iterdir()} - {".lock"}
    first = {"trajectory-0000.json", "trajectory-0000.safetensors"}
    assert there == {"index.json"} | (first if stop_after > 3 else set())
    assert contents(train(stopped)) == contents(train(tmp_path / "whole"))


SCRIPT = """
import sys
import torch
sys.path.insert(0, {folder!r})
torch.set_num_threads({threads})
import test_experts
from pathlib import Path
test_experts.train(Path({out!r}), test_experts.LONG)
"""
LONG = ExpertOptions(num=4, epochs=8, lr=0.1, batch=8)


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> ExpertStore:
    """Trained without a stop."""
    return train(tmp_path_factory.mktemp("long"), LONG)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_killed_then_continued_is_the_same_as_uninterrupted(
    tmp_path: Path, long_store: ExpertStore, by: signal.Signals
) -> None:
    stopped = tmp_path / "stopped"
    script = SCRIPT.format(
        folder=str(Path(__file__).parent), threads=torch.get_num_threads(), out=str(stopped)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stderr=subprocess.PIPE
    )
    first = stopped / "trajectory-0000.safetensors"
    deadline = time.monotonic() + 60
    while not first.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.02)  # into the second trajectory
    process.send_signal(by)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -by, errors.decode()
    assert first.exists()
    assert not (stopped / "trajectory-0003.safetensors").exists()
    assert contents(train(stopped, LONG)) == contents(long_store)


OTHER = """
import sys, time
from pathlib import Path
from pseudocoreset.engine.files import locked
store, gift = Path(sys.argv[1]), sys.argv[2:]
with (store / ".lock").open("ab") as lock, locked(lock, 0, wait=False) as mine:
    print(mine, flush=True)
    while not (store / "trajectory-0001.safetensors").exists():
        time.sleep(0.01)
    for path in map(Path, gift):
        path.rename(store / path.name)
"""


@pytest.mark.parametrize("executor", [None, SerialExecutor()])
@pytest.mark.parametrize("finishes", [True, False])
def test_expert_of_another_process_is_left_to_it(
    tmp_path: Path, finishes: bool, executor: SerialExecutor | None
) -> None:
    """Another one holds expert 0: expert 1 goes first, and 0 is waited for, or trained at last."""
    alone = train(tmp_path / "alone")
    shared = tmp_path / "shared"
    shared.mkdir()
    gifts = [tmp_path / path.name for path in (alone.made_path(0), alone.trajectory_path(0))]
    for gift in gifts:
        gift.write_bytes((alone.path / gift.name).read_bytes())
    written = gifts[1].stat().st_mtime_ns
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(shared), *(map(str, gifts) if finishes else [])],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        progress = Recorded()
        store = train_experts(
            small_data(), NET, shared, FEW, device="cpu", executor=executor, progress=progress
        )
        assert process.wait(timeout=60) == 0
    assert contents(store) == contents(alone)
    assert (store.trajectory_path(0).stat().st_mtime_ns == written) == finishes
    assert len(store) == FEW.num
    # Expert 1 was trained first, and 0 not at all where the other one finished it.
    trained = [bool(figures) for figures in progress.figures]
    assert trained == [True] * FEW.epochs + [not finishes] * FEW.epochs
    times = [store.trajectory_path(number).stat().st_mtime_ns for number in (0, 1)]
    assert finishes or times[1] < times[0]


def test_experts_side_by_side_are_what_they_are_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: an epoch of each in turn, and who is done takes the next that nobody has."""
    settings = replace(FEW, num=3)
    alone = train(tmp_path / "alone", settings)
    monkeypatch.setattr(train_module, "experts_at_once", lambda *_: 2)
    begun: list[int] = []
    reseed = Rng.reseed
    monkeypatch.setattr(
        Rng, "reseed", lambda rng, seed, *why: (begun.extend(why[1:]), reseed(rng, seed, *why))
    )
    progress = Recorded()
    beside = train_experts(
        small_data(), NET, tmp_path / "beside", settings, device="cpu", progress=progress
    )
    assert begun == [0, 1, 2]
    assert contents(beside) == contents(alone)
    a, b, c = (alone.describe(path)["train_loss"] for path in alone.trajectories)
    in_turn = [a[0], a[1], b[0], a[2], b[1], c[0], b[2], c[1], c[2]]
    assert [figures["loss"] for figures in progress.figures] == in_turn


def test_stop_amid_experts_side_by_side_leaves_whole_ones_and_no_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_module, "experts_at_once", lambda *_: 2)
    complaints: list[object] = []  # of generators that could not be closed
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    waited: list[object] = []
    monkeypatch.setattr(SideStream, "wait", lambda beside: waited.append(beside))

    class Stop(Recorded):
        def advance(self, **figures: float) -> None:
            waited.clear()
            super().advance(**figures)

    stop = Stop(stop_after=2 * FEW.epochs)  # where the second one has its last epoch
    with pytest.raises(KeyboardInterrupt):
        train_experts(small_data(), NET, tmp_path, FEW, device="cpu", progress=stop)
    assert len(set(waited)) == 2  # neither is still at work
    store = ExpertStore.open(tmp_path)
    assert [store.is_whole(number) for number in range(2)] == [True, False]
    gc.collect()
    assert not complaints
    assert len(train(tmp_path)) == 2


def test_expert_that_diverges_beside_another_does_not_take_it_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expert 1 of four diverges when 0 is stored and 2 begun: that goes on, and 3 is not begun."""
    monkeypatch.setattr(train_module, "experts_at_once", lambda *_: 2)
    refuse = lane_module._refuse_divergence

    def diverge(expert: int, epoch: int, loss: float, *rest: Any) -> None:
        refuse(expert, epoch, float("nan") if (expert, epoch) == (1, 2) else loss, *rest)

    monkeypatch.setattr(lane_module, "_refuse_divergence", diverge)
    progress, settings = Recorded(), replace(FEW, num=4)
    with pytest.raises(UserError, match="expert 1 ") as error:
        train_experts(small_data(), NET, tmp_path, settings, device="cpu", progress=progress)
    assert error.value.parameter == "lr"
    store = ExpertStore.open(tmp_path)
    assert [store.is_whole(number) for number in range(4)] == [True, False, True, False]
    assert len(progress.figures) == 2 * FEW.epochs + 1


def test_second_expert_waits_until_there_is_memory_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(FEW, num=3)
    alone = train(tmp_path / "alone", settings)
    monkeypatch.setattr(train_module, "experts_at_once", lambda *_: 2)
    room = iter([False] * FEW.epochs + [True])
    monkeypatch.setattr(lane_module.Lane, "leaves_room", lambda _: next(room))
    progress = Recorded()
    beside = train_experts(
        small_data(), NET, tmp_path / "beside", settings, device="cpu", progress=progress
    )
    assert contents(beside) == contents(alone)
    a, b, c = (alone.describe(path)["train_loss"] for path in alone.trajectories)
    in_turn = [*a, b[0], b[1], c[0], b[2], c[1], c[2]]
    assert [figures["loss"] for figures in progress.figures] == in_turn


@pytest.mark.parametrize(("free", "room"), [(20, False), (21, True)])
def test_memory_for_another_expert_is_twice_what_one_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, room: bool
) -> None:
    store = train(tmp_path)
    reserved = iter([5, 15])
    monkeypatch.setattr(lane_module, "_reserved", lambda _: next(reserved))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 100))
    net, data = store.make_net(), small_data()
    predictor = Predictor(net, data.test.inputs, data.scaling)
    lane = lane_module.Lane(net, data, predictor, store.identity, CPU)
    lane._device = torch.device("cuda")
    assert lane.leaves_room() == room


def test_lane_is_waited_for_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU: all that begins an epoch is done beside, and nothing is read before the wait."""
    seen: list[str] = []
    for kind, names in ((SideStream, ("__enter__", "wait")), (Training, ("start", "run", "take"))):
        for name in names:
            monkeypatch.setattr(kind, name, noted(seen, name, getattr(kind, name)))
    train(tmp_path, replace(FEW, num=1, epochs=2))
    epoch = ["__enter__", "run", "wait", "take", "take"]
    assert seen == ["__enter__", "start", "wait", *epoch, *epoch, "wait"]


def noted(seen: list[str], name: str, done: Any) -> Any:
    def do(*given: Any) -> Any:
        seen.append(name)
        return done(*given)

    return do


@pytest.mark.parametrize("kept", [0, 100, -1])
def test_truncated_trajectory_is_trained_again(tmp_path: Path, kept: int) -> None:
    store = train(tmp_path)
    whole = contents(store)
    path = store.trajectory_path(0)
    path.write_bytes(path.read_bytes()[:kept])
    assert not store.is_whole(0)
    assert store.is_whole(1)
    assert contents(train(tmp_path)) == whole


def test_litter_of_a_killed_writer_does_not_count(tmp_path: Path) -> None:
    store = train(tmp_path)
    whole = contents(store)
    litter = tmp_path / ".trajectory-0000.safetensors.abcdefgh.part"
    store.trajectory_path(0).rename(litter)
    os.utime(litter, (0, 0))  # a writer that was at it just now is left alone
    assert len(ExpertStore.open(tmp_path)) == 1
    assert contents(train(tmp_path)) == whole


# What is refused.


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("data", {"data": small_data("others")}),
        ("fingerprint", {"data": small_data(seed=1)}),
        ("holdout", {"data": small_data().hold_out(12)}),
        ("net", {"net": "convnet:width=4"}),
        ("lr", {"settings": replace(FEW, lr=0.2)}),
        ("epochs", {"settings": replace(FEW, epochs=4)}),
        ("batch", {"settings": replace(FEW, batch=8)}),
        ("dsa", {"settings": replace(FEW, dsa="off")}),
        ("first_epoch", {"settings": replace(FEW, from_epoch=1)}),
        ("half", {"settings": replace(FEW, half=True)}),
    ],
)
def test_another_store_is_refused_by_name(
    tmp_path: Path, whole_store: ExpertStore, name: str, changes: dict[str, Any]
) -> None:
    there = tmp_path / "store"
    shutil.copytree(whole_store.path, there)
    whole = contents(ExpertStore.open(there))
    with pytest.raises(UserError, match=f"holds experts with {name} ") as error:
        train(there, **changes)
    assert error.value.parameter == "out"
    assert contents(ExpertStore.open(there)) == whole


def test_store_of_another_seed_is_refused(whole_store: ExpertStore) -> None:
    with pytest.raises(UserError, match="with seed 0, not 1") as error:
        train_experts(small_data(), NET, whole_store.path, FEW, seed=1, progress=False)
    assert error.value.parameter == "out"


def test_holdouts_of_one_size_and_another_seed_are_refused(tmp_path: Path) -> None:
    train(tmp_path, data=small_data().hold_out(12, seed=0))
    assert refused(tmp_path, data=small_data().hold_out(12, seed=1)) == "out"


def test_trajectory_of_another_store_is_refused(tmp_path: Path) -> None:
    other = train(tmp_path / "other", replace(FEW, lr=0.2))
    foreign = tmp_path / "foreign"
    store = train(foreign, replace(FEW, num=1))
    store.trajectory_path(1).write_bytes(other.trajectory_path(1).read_bytes())
    assert refused(foreign) == "out"
    with pytest.raises(UserError) as error:
        store.snapshot(store.trajectory_path(1), 0, CPU)
    assert error.value.parameter == "out"


def test_store_is_not_begun_anew_under_a_process_that_trains_its_first(tmp_path: Path) -> None:
    code = f"""if True:
        import sys
        from pathlib import Path
        from pseudocoreset.experts import ExpertStore
        store = ExpertStore.open(Path({str(tmp_path)!r}))
        with store.claims([3]) as claims:
            for number in claims.free():
                print("has", number, flush=True)
                sys.stdin.read()
    """
    slow = replace(FEW, num=1)
    assert refused(tmp_path, replace(slow, lr=1e30)) == "lr"
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"has 3\n"
    assert refused(tmp_path, slow) == "out"
    other.communicate()
    assert len(train(tmp_path, slow)) == 1


def test_whole_store_is_not_written_to(tmp_path: Path) -> None:
    whole = train(tmp_path)
    (tmp_path / ".lock").unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert contents(train(tmp_path)) == contents(whole)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_store_that_was_begun_anew_since_is_not_trained_into(tmp_path: Path) -> None:
    net = make_net(NET, **small_data().shape)
    first, second = (
        train_module.identify(small_data(), net, replace(FEW, lr=lr), 0) for lr in (0.1, 0.2)
    )
    store = ExpertStore.create(tmp_path, first)
    ExpertStore.create(tmp_path, second)
    with pytest.raises(UserError) as error, store.claims([0]):
        pass
    assert error.value.parameter == "out"


def test_index_that_was_lost_does_not_mix_stores(tmp_path: Path) -> None:
    store = train(tmp_path)
    (tmp_path / "index.json").unlink()
    with pytest.raises(UserError, match="is not an expert store"):
        ExpertStore.open(tmp_path)
    assert refused(tmp_path, replace(FEW, lr=0.2)) == "out"
    store = train(tmp_path)
    assert len(store) == 2


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"format": 2}', '{"format": 2, "identity": {"data": "x"}}', "\0"]
)
def test_broken_index_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    for attempt in (lambda: ExpertStore.open(tmp_path), lambda: train(tmp_path)):
        with pytest.raises(UserError, match="can't be read"):
            attempt()
    assert (tmp_path / "index.json").read_text() == text  # perhaps another program's


def test_places_without_a_store_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "odd" / "index.json").mkdir(parents=True)
    for place in ("", "nowhere", "file"):
        with pytest.raises(UserError, match="is not an expert store"):
            ExpertStore.open(tmp_path / place)
    with pytest.raises(UserError, match="can't be read"):
        ExpertStore.open(tmp_path / "odd")
    with pytest.raises(UserError, match="can't be written"):
        train(tmp_path / "file")


def test_another_format_is_refused(tmp_path: Path) -> None:
    identity = asdict(train(tmp_path).identity)
    write_json(tmp_path / "index.json", {"format": 3, "identity": identity})
    with pytest.raises(UserError, match="format 3"):
        ExpertStore.open(tmp_path)


def test_epochs_that_a_store_lacks_are_refused(tmp_path: Path) -> None:
    store = train(tmp_path, replace(FEW, num=1, from_epoch=2))
    store.require(2, 3)
    lacking = [
        lambda first=f, last=t: store.require(first, last) for f, t in ((0, 3), (1, 2), (2, 4))
    ]
    # Row −1 would be another epoch's.
    lacking += [lambda e=e: store.snapshot(store.trajectory_path(0), e, CPU) for e in (1, 4)]
    for attempt in lacking:
        with pytest.raises(UserError) as error:
            attempt()
        assert error.value.parameter == "experts"
    store.trajectory_path(0).unlink()
    with pytest.raises(UserError) as error:
        ExpertStore.open(tmp_path).require(2, 3)
    assert error.value.parameter == "experts"


# Reading.


class RowsOnly:
    """A safetensors file that gives nothing but slices, and counts the numbers read."""

    def __init__(self, tensors: Any) -> None:
        self._tensors = tensors
        self._slice: Any = None
        self.read = 0

    def keys(self) -> list[str]:
        return list(self._tensors.keys())

    def get_slice(self, name: str) -> "RowsOnly":
        self._slice = self._tensors.get_slice(name)
        return self

    def __getitem__(self, index: Any) -> torch.Tensor:
        values: torch.Tensor = self._slice[index]
        self.read += values.numel()
        return values


def test_snapshot_reads_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = train(tmp_path, replace(FEW, num=1), KEPT)
    net = store.make_net()
    opened: list[RowsOnly] = []

    @contextmanager
    def watched(path: Path, what: str) -> Iterator[tuple[RowsOnly, dict[str, object]]]:
        with open_tensors(path, what) as (tensors, metadata):
            opened.append(RowsOnly(tensors))
            yield opened[-1], metadata

    monkeypatch.setattr(store_module, "open_tensors", watched)
    store.snapshot(store.trajectory_path(0), 2, CPU)
    assert [file.read for file in opened] == [net.num_params + net.num_buffers]


def test_snapshot_keeps_nothing_of_the_file(tmp_path: Path) -> None:
    """A view would keep the file mapped, and be read later or never."""
    store = train(tmp_path, replace(FEW, num=1), KEPT)
    weights = store.snapshot(store.trajectory_path(0), 2, CPU)
    for part in weights:
        assert part.untyped_storage().nbytes() == part.numel() * 4
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path) not in maps.read_text()


def counted_store(path: Path, trajectories: int, epochs: int, first_epoch: int) -> ExpertStore:
    """A store whose every number says which snapshot it is of."""
    identity = StoreIdentity(
        **{**json.loads(INDEX)["identity"], "epochs": epochs, "first_epoch": first_epoch}
    )
    store = ExpertStore.create(path, identity)
    net = store.make_net()
    for number in range(trajectories):
        rows = [
            Weights(torch.full((net.num_params,), 100.0 * number + epoch), torch.zeros(0))
            for epoch in range(first_epoch, epochs + 1)
        ]
        store.write(number, rows, {}, net)
    return store


INDEX = json.dumps(
    {
        "identity": {
            "data": "stripes",
            "fingerprint": "0",
            "holdout": 0,
            "net": "convnet:width=4",
            "channels": 1,
            "image_size": 8,
            "classes": 3,
            "lr": 0.1,
            "batch": 16,
            "dsa": "off",
            "half": False,
            "seed": 0,
        }
    }
)


@pytest.mark.parametrize(("from_epoch", "to_epoch"), [(1, None), (3, None), (2, 4)])
def test_draws_cover_all_trajectories_and_the_epochs_equally(
    tmp_path: Path, from_epoch: int, to_epoch: int | None
) -> None:
    store = counted_store(tmp_path, trajectories=3, epochs=5, first_epoch=1)
    rng = Rng(CPU, 0)
    counts: dict[int, int] = {}
    epochs = range(from_epoch, (to_epoch or 5) + 1)
    cells = 3 * len(epochs)
    for _ in range(40 * cells):
        drawn = store.draw(from_epoch, rng, CPU, to_epoch).params.unique()
        counts[int(drawn)] = counts.get(int(drawn), 0) + 1
    expected = {100 * number + epoch for number in range(3) for epoch in epochs}
    assert set(counts) == expected
    statistic = sum((count - 40) ** 2 / 40 for count in counts.values())
    assert statistic < cells + 4 * (2 * cells) ** 0.5


def test_draws_are_by_seed(tmp_path: Path) -> None:
    store = counted_store(tmp_path, trajectories=5, epochs=9, first_epoch=0)
    streams = []
    for seed in (0, 0, 1):
        rng = Rng(CPU, seed)
        streams.append([float(store.draw(0, rng, CPU).params[0]) for _ in range(10)])
    assert streams[0] == streams[1] != streams[2]


def test_first_of_a_store_are_what_it_was_with_no_more(tmp_path: Path) -> None:
    store = counted_store(tmp_path, trajectories=2, epochs=2, first_epoch=0)
    two = store.fingerprint
    net = store.make_net()
    store.write(2, [Weights(torch.zeros(net.num_params), torch.zeros(0))] * 3, {}, net)
    first = store.first(2)
    assert (len(first), first.fingerprint) == (2, two)
    assert (len(store), len(store.first(5))) == (3, 3)


def test_trajectory_written_is_seen_at_once(tmp_path: Path) -> None:
    store = counted_store(tmp_path, trajectories=1, epochs=2, first_epoch=0)
    assert len(store) == 1
    fingerprint = store.fingerprint
    net = store.make_net()
    store.write(11, [Weights(torch.zeros(net.num_params), torch.zeros(0))] * 3, {}, net)
    assert [path.name for path in store.trajectories] == [
        "trajectory-0000.safetensors",
        "trajectory-0011.safetensors",
    ]
    both = store.fingerprint
    assert both != fingerprint
    store.write(11, [Weights(torch.ones(net.num_params), torch.zeros(0))] * 3, {}, net)
    others = store.fingerprint
    assert others != both
    store.trajectory_path(11).rename(store.trajectory_path(12))
    assert ExpertStore.open(tmp_path).fingerprint not in (both, others)


# Regression.


def slow_error(store: ExpertStore, table: Data, number: int) -> float:
    """The RMSE at every tenth point of one random order, in Python."""
    order = torch.randperm(len(table.train), generator=torch.Generator().manual_seed(0)).tolist()
    left_out = [place for count, place in enumerate(order) if count % 10 == number]
    assert len(left_out) == 6
    module = store.make_net().build().eval()
    weights = store.snapshot(store.trajectory_path(number), store.last_epoch, CPU)
    torch.nn.utils.vector_to_parameters(weights.params, module.parameters())
    mean, std = (torch.tensor(v) for v in (table.target_scaling.mean, table.target_scaling.std))
    squares = []
    for place in left_out:
        row = table.scaling.apply(table.train.inputs[place : place + 1])
        with torch.no_grad():
            away = module(row)[0] - (table.train.targets[place] - mean) / std
        squares += away.square().tolist()
    return (sum(squares) / len(squares)) ** 0.5


def test_noise_is_the_error_at_the_points_that_experts_left_out(
    table: Data, table_store: ExpertStore
) -> None:
    errors = [slow_error(table_store, table, number) for number in (0, 1)]
    for number, error in enumerate(errors):
        figures = table_store.describe(table_store.trajectory_path(number))
        assert figures["left_out_rmse"] == pytest.approx(error, rel=1e-4)
        assert 0 < figures["test_rmse"] < 3
    expected = (sum(error**2 for error in errors) / 2) ** 0.5
    assert table_store.noise == pytest.approx(expected, rel=1e-4)
    assert errors[0] != errors[1]


def test_points_left_out_are_not_trained_on(table: Data, tmp_path: Path) -> None:
    """Other targets at them change nothing of the expert, and of another expert something."""
    order = torch.randperm(len(table.train), generator=torch.Generator().manual_seed(0))
    targets = table.train.targets.clone()
    targets[order[::10]] += 5.0  # of expert 0
    other = replace(table, train=Split(table.train.inputs, targets))
    ends = []
    for name, seen in (("one", table), ("other", other)):
        settings = ExpertOptions(num=2, epochs=2, lr=0.05, batch=18)
        store = train(tmp_path / name, settings, "mlp:depth=1,width=4", seen)
        ends.append([snapshots(store, number)[-1].params for number in (0, 1)])
    assert torch.equal(ends[0][0], ends[1][0])
    assert not torch.equal(ends[0][1], ends[1][1])


def test_experts_of_classes_leave_out_nothing(whole_store: ExpertStore) -> None:
    assert whole_store.noise is None
    assert "left_out_rmse" not in whole_store.describe(whole_store.trajectory_path(0))
    assert "task" not in whole_store.identity.as_json()  # as in stores of the first edition


def test_store_of_a_regression_is_read_again(table_store: ExpertStore) -> None:
    opened = ExpertStore.open(table_store.path)
    assert opened.identity == table_store.identity
    assert (opened.identity.task, opened.identity.input_shape) == ("regression", (3,))
    assert opened.fingerprint == table_store.fingerprint
    assert opened.make_net().outputs == 2


def test_experts_of_a_table_take_no_augmentation(table: Data, tmp_path: Path) -> None:
    assert refused(tmp_path / "store", replace(FEW, dsa="on"), "mlp", table) == "dsa"
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("points", "lr", "batch"),
    [(48, 0.1, 8), (1200, 0.1, 60), (19_999, 0.1, 256), (20_000, 0.01, 256)],
)
def test_defaults_follow_from_the_number_of_points(points, lr, batch):
    train = Split(torch.zeros(points, 1), torch.arange(points) % 3)
    few = replace(small_data(), train=train, test=train, scaling=Scaling((0.0,), (1.0,)))
    found = ExpertOptions(num=3).suited_to(few)
    assert (found.lr, found.batch, found.num) == (lr, batch, 3)
    given = ExpertOptions(lr=0.5, batch=5).suited_to(few)
    assert (given.lr, given.batch) == (0.5, 5)


def test_default_experts_learn_a_small_table(tmp_path):
    data = load_data("breast-cancer")
    store = train_experts(data, "mlp", tmp_path, num=1, device="cpu", progress=False)
    assert store.describe(store.trajectories[0])["test_accuracy"] > 0.9
