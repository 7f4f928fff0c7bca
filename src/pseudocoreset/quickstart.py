"""The whole job on the embedded digits: experts, FBPC, SGHMC, beside random coresets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import ImageData, load_data
from pseudocoreset.distill import distill
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.progress import SILENT, Progress
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.experts import ExpertSettings, train_experts
from pseudocoreset.posterior import named_protocol
from pseudocoreset.report import RunReport, read_run, write_report
from pseudocoreset.settings import DistillSettings

NET = "convnet:width=32"
EXPERTS = ExpertSettings(num=5, epochs=20, lr=0.1, batch=64)
PROTOCOL = named_protocol("tuned", epochs=240, every=24)
FULL_PROTOCOL = named_protocol("tuned", epochs=50, every=5)
SEEDS = 3


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
    experts = train_experts(
        data, NET, out / "experts", EXPERTS, seed=seed, device=device, progress=progress
    )
    runs = []
    for ipc in (1, 10):
        for method in ("random", "fbpc"):
            folder = out / f"{method}-ipc{ipc}"
            coreset = distill(
                data,
                () if method == "random" else experts,
                DistillSettings(method=method, ipc=ipc),
                net=NET if method == "random" else None,
                out=folder,
                seed=seed,
                device=device,
                progress=progress,
            )
            evaluation = evaluate(
                coreset,
                data,
                protocol=PROTOCOL,
                seeds=SEEDS,
                first_seed=seed * SEEDS,
                device=device,
                progress=progress,
            )
            write_json(folder / "evaluation.json", evaluation.as_json())
            runs.append(read_run(folder))
    whole = whole_data(data, NET)
    upper = evaluate(whole, data, protocol=FULL_PROTOCOL, seeds=1, device=device, progress=progress)
    runs.append(RunReport("All training images", None, [], {}, upper.as_json()))
    write_report(out / "report.html", "Pseudocoresets of handwritten digits", runs)
    return runs


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
