"""The whole job on the embedded digits: experts, FBPC, SGHMC, beside random coresets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal

import torch

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import ImageData, load_data
from pseudocoreset.distill import distill
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.progress import SILENT, Progress
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.experts import ExpertSettings, train_experts
from pseudocoreset.posterior import Protocol, named_protocol
from pseudocoreset.report import RunReport, read_run, write_report
from pseudocoreset.settings import DistillSettings

NET = "convnet:width=32"
EXPERTS = ExpertSettings(num=5, epochs=20, lr=0.1, batch=64)
PROTOCOL = named_protocol("tuned", epochs=240, every=24)
FULL_PROTOCOL = named_protocol("tuned", epochs=50, every=5)
SEEDS = 3
SIZES = (1, 10)
FULL = "all-images"


def quickstart(
    out: Path, seed: int = 0, device: str = "auto", progress: Progress = SILENT
) -> list[RunReport]:
    """Run it all into the folder `out`; run again, it goes on where it stopped."""
    with _one_thread():
        return _quickstart(out, seed, device, progress)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread of PyTorch's: as fast for such small steps, or nearly, as two.

    On a machine that has other work besides, two would wait for one another at each operation, and
    a minute become ten.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _quickstart(out: Path, seed: int, device: str, progress: Progress) -> list[RunReport]:
    data = load_data("digits")
    compared = _Compared(out, seed, device, NET, PROTOCOL, FULL_PROTOCOL)
    beside = get_context("spawn").Process(target=_measure_beside, args=(compared,), daemon=True)
    beside.start()
    experts = train_experts(
        data, NET, out / "experts", EXPERTS, seed=seed, device=device, progress=progress
    )
    for ipc in SIZES:
        folder = out / f"fbpc-ipc{ipc}"
        settings = DistillSettings(method="fbpc", ipc=ipc)
        coreset = distill(
            data, experts, settings, out=folder, seed=seed, device=device, progress=progress
        )
        compared.evaluate(coreset, data, PROTOCOL, SEEDS, folder, progress)
    beside.join()
    if beside.exitcode != 0:  # it says why here, if it fails again
        compared.measure(progress)
    runs = [read_run(out / f"{name}-ipc{ipc}") for ipc in SIZES for name in ("random", "fbpc")]
    upper = json.loads((out / FULL / "evaluation.json").read_text(encoding="utf-8"))
    runs.append(RunReport("All training images", None, [], {}, upper))
    write_report(out / "report.html", "Pseudocoresets of handwritten digits", runs)
    return runs


@dataclass(frozen=True)
class _Compared:
    """What FBPC is compared with, which needs no experts: random images, and all images."""

    out: Path
    seed: int
    device: str
    net: str
    protocol: Protocol
    full_protocol: Protocol

    def measure(self, progress: Progress) -> None:
        """Score them all, into folders of their own."""
        data = load_data("digits")
        for ipc in SIZES:
            folder = self.out / f"random-ipc{ipc}"
            settings = DistillSettings(method="random", ipc=ipc)
            coreset = distill(
                data, (), settings, net=self.net, out=folder, seed=self.seed, device=self.device
            )
            self.evaluate(coreset, data, self.protocol, SEEDS, folder, progress)
        whole = whole_data(data, self.net)
        self.evaluate(whole, data, self.full_protocol, 1, self.out / FULL, progress)

    def evaluate(
        self,
        coreset: Pseudocoreset,
        data: ImageData,
        protocol: Protocol,
        seeds: int,
        folder: Path,
        progress: Progress,
    ) -> None:
        """Sample a coreset's posterior and keep its scores in `folder`."""
        evaluation = evaluate(
            coreset,
            data,
            protocol=protocol,
            seeds=seeds,
            first_seed=self.seed * SEEDS,
            device=self.device,
            progress=progress,
        )
        write_json(folder / "evaluation.json", evaluation.as_json())


def _measure_beside(compared: _Compared) -> None:
    """In a process of its own, on the second core."""
    signal(SIGINT, SIG_IGN)  # the first process ends this one
    with _one_thread():
        compared.measure(SILENT)


def whole_data(data: ImageData, net: str) -> Pseudocoreset:
    """The training set itself in the place of a coreset: the posterior to be matched."""
    provenance = Provenance(
        method="full data",
        net=net,
        data=data.name,
        data_fingerprint=data.fingerprint,
        holdout=0 if data.holdout is None else len(data.holdout),
        seed=0,
    )
    images = data.normalisation.apply(data.train.images)
    dsa = str(Augmentation.parse("on", data.mirror))
    return Pseudocoreset(
        images, data.train.labels, data.class_names, data.normalisation, dsa, provenance
    )
