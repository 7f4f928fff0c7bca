"""`quickstart`: the whole job on included data, compared with random points and all points."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal

import torch

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.shared import CommonOptions, add_common, progress_for
from pseudocoreset.coreset import Pseudocoreset, whole_data
from pseudocoreset.data import Data, load_data
from pseudocoreset.distillation import distill
from pseudocoreset.engine.device import DeviceLike
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.progress import ProgressLike
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.likelihoods import Gaussian
from pseudocoreset.posterior import SGHMC, Sampler
from pseudocoreset.report import (
    RunReport,
    keep_evaluation,
    print_scores,
    read_run,
    write_report,
)

SEEDS = 3
FULL = "all-data"


@dataclass(frozen=True)
class Demo:
    """The settings of a quickstart, for one data set."""

    net: str
    experts: ExpertOptions
    sampler: Sampler
    full_sampler: Sampler
    sizes: tuple[int, ...]


DEMOS = {
    "digits": Demo(
        "convnet:width=32",
        ExpertOptions(num=5, epochs=20, lr=0.1, batch=64),
        SGHMC(epochs=240, every=24),
        SGHMC(epochs=50, every=5),
        (1, 10),
    ),
    "diabetes": Demo(
        "mlp",
        ExpertOptions(num=10, epochs=60, lr=0.05, batch=32),
        SGHMC(epochs=500, every=50),
        SGHMC(epochs=100, every=10),
        (10,),
    ),
    "breast-cancer": Demo(
        "mlp",
        ExpertOptions(num=10, epochs=60, lr=0.05, batch=32),
        SGHMC(epochs=500, every=50),
        SGHMC(epochs=100, every=10),
        (5,),
    ),
}


@dataclass(frozen=True)
class _Options(Options):
    out: str | None = option(
        None, "folder for the results; default: quickstart, or quickstart-DATA"
    )
    data: str = option("digits", "data that come with the package", choices=DEMOS)


def configure(parser: Parser, words: list[str]) -> None:  # noqa: ARG001
    """Define the options of the command."""
    parser.add(_Options)
    add_common(parser)


def run(arguments: Arguments) -> None:
    """Run the whole job."""
    own, common = arguments.pick(_Options), arguments.pick(CommonOptions)
    out, progress = Path(own.out or _folder_for(own.data)), progress_for(arguments)
    runs = quickstart(out, data=own.data, seed=common.seed, device=common.device, progress=progress)
    print_scores(runs)
    print(f"Open {(out / 'report.html').resolve()}")


def _folder_for(data: str) -> str:
    return "quickstart" if data == "digits" else f"quickstart-{data}"


def quickstart(
    out: Path,
    *,
    data: str = "digits",
    seed: int = 0,
    device: DeviceLike = "auto",
    progress: ProgressLike = True,
) -> list[RunReport]:
    """Run it all into the folder `out`; call it again to resume.

    Args:
        out: folder of the results
        data: one of DEMOS
        seed: seed of all randomness
        device: where to run
        progress: whether to show a progress bar
    """
    with _one_thread():
        return _quickstart(out, data, seed, device, progress)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread of PyTorch, which is nearly as fast as two for small steps.

    On a busy machine two would wait for one another at each operation.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _quickstart(
    out: Path, name: str, seed: int, device: DeviceLike, progress: ProgressLike
) -> list[RunReport]:
    data, demo = load_data(name), DEMOS[name]
    baselines = _Baselines(out, name, demo, seed, str(device))
    second = get_context("spawn").Process(target=_measure_apart, args=(baselines,), daemon=True)
    second.start()
    experts = train_experts(
        data, demo.net, out / "experts", demo.experts, seed=seed, device=device, progress=progress
    )
    for ipc in demo.sizes:
        folder = out / f"fbpc-ipc{ipc}"
        coreset = distill(
            data, experts, "fbpc", ipc=ipc, out=folder, seed=seed, device=device, progress=progress
        )
        baselines.evaluate(coreset, data, demo.sampler, SEEDS, folder, progress)
    second.join()
    if second.exitcode != 0:  # it says why here, if it fails again
        baselines.measure(progress)
    if data.task == "regression":  # their noise is the experts'
        baselines.measure_with(experts.noise, progress)
    names = [f"{method}-ipc{ipc}" for ipc in demo.sizes for method in ("random", "fbpc")]
    runs = [read_run(out / each) for each in names]
    upper = json.loads((out / FULL / "evaluation.json").read_text(encoding="utf-8"))
    runs.append(
        RunReport(
            "All training data",
            None,
            [],
            {},
            upper,
            of_images=data.is_image,
            of_classes=data.task == "classification",
        )
    )
    write_report(out / "report.html", f"Pseudocoresets of {name}", runs)
    return runs


@dataclass(frozen=True)
class _Baselines:
    """The baselines of FBPC: random points and all points."""

    out: Path
    name: str
    demo: Demo
    seed: int
    device: str

    def measure(self, progress: ProgressLike) -> None:
        """Score them all, into folders of their own; regression waits for the experts' noise."""
        data = load_data(self.name)
        if data.task == "regression":
            return
        self.measure_with(None, progress)

    def measure_with(self, noise: float | None, progress: ProgressLike) -> None:
        """The same with a noise that is known."""
        data = load_data(self.name)
        for ipc in self.demo.sizes:
            folder = self.out / f"random-ipc{ipc}"
            coreset = distill(
                data,
                (),
                "random",
                ipc=ipc,
                target_noise=noise,
                net=self.demo.net,
                out=folder,
                seed=self.seed,
                device=self.device,
                progress=False,
            )
            self.evaluate(coreset, data, self.demo.sampler, SEEDS, folder, progress)
        likelihood = None if noise is None else Gaussian(data.outputs, noise)
        whole = whole_data(data, self.demo.net, likelihood)
        self.evaluate(whole, data, self.demo.full_sampler, 1, self.out / FULL, progress)

    def evaluate(
        self,
        coreset: Pseudocoreset,
        data: Data,
        sampler: Sampler,
        seeds: int,
        folder: Path,
        progress: ProgressLike,
    ) -> None:
        """Sample a coreset's posterior and keep its scores in `folder`."""
        evaluation = evaluate(
            coreset,
            data,
            sampler,
            seeds=seeds,
            first_seed=self.seed * SEEDS,
            device=self.device,
            progress=progress,
        )
        keep_evaluation(folder, evaluation.as_json(), data.test)


def _measure_apart(baselines: _Baselines) -> None:
    """Score the baselines in a second process."""
    signal(SIGINT, SIG_IGN)  # the first process ends this one
    with _one_thread():
        baselines.measure(False)
