"""Whole small files of every kind that the package reads, and the commands that read them."""

import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "data")]

from make_data import (  # noqa: E402
    make_cifar_binary,
    make_cifar_python,
    make_folder,
    make_mnist,
    make_npz,
    make_tiny_imagenet,
    pixels,
    smooth,
)
from shortened import NET, exact_trial, shorten  # noqa: E402

import pseudocoreset as pc  # noqa: E402
from made_beyond import made_beyond  # noqa: E402
from made_cells import made  # noqa: E402
from pseudocoreset.cli import main  # noqa: E402
from pseudocoreset.engine.files import write_json  # noqa: E402
from pseudocoreset.nets import make_net  # noqa: E402
from pseudocoreset.reproduce.beyond.stored import write_cell  # noqa: E402
from pseudocoreset.reproduce.cells import Scope, cells_of  # noqa: E402
from pseudocoreset.reproduce.exact.problems import PROBLEMS  # noqa: E402
from pseudocoreset.reproduce.stored import write_measured  # noqa: E402

PRINT = ["--print-config"]
SHORT = ["--epochs", "2", "--every", "1", "--quiet"]
OUT = "OUT"
"""In a command, a place where nothing is yet."""
SMALL = ["--method", "fbpc", "--ipc", "1", "--samples", "2", "--gamma", "2", "--from-epoch", "1"]
SMALL += ["--max-map-steps", "4", "--covariance-steps", "2", "--real-batch", "4", "--quiet"]


@dataclass
class Kind:
    """Files of one kind.

    Args:
        folder: what is put back as it was after each case
        commands: what reads the files, in words
        damaged: pattern of the files to damage; all by default
    """

    folder: Path
    commands: list[list[str]]
    damaged: str = "*"
    files: list[Path] = field(init=False)

    def __post_init__(self) -> None:
        found = (path for path in self.folder.rglob(self.damaged) if path.is_file())
        self.files = sorted(path for path in found if path.name != ".lock")


def make_world(root: Path) -> dict[str, Kind]:
    """Write all files, each kind in a folder of its own."""
    shorten()
    with redirect_stdout(io.StringIO()):
        return dict(_kinds(root))


def _run(*words: object) -> None:
    told = io.StringIO()
    with redirect_stderr(told):
        code = main([str(word) for word in words])
    assert code == 0, told.getvalue()


def _kinds(root: Path) -> Iterator[tuple[str, Kind]]:
    make_npz_data(root / "whole" / "data.npz")
    data = f"npz:{root / 'whole' / 'data.npz'}"
    whole = root / "whole"
    experts = ["experts", "--data", data, "--net", NET, "--num", "2", "--epochs", "2"]
    experts += ["--batch", "6", "--quiet", "--out"]
    _run(*experts, whole / "experts")
    distill = ["distill", "--data", data, *SMALL]
    made_run = [*distill, "--experts", str(whole / "experts"), "--steps", "2", "--out"]
    _run(*made_run, whole / "run")
    coreset, posterior = whole / "run" / "coreset.safetensors", whole / "posterior.safetensors"
    _run("sample", coreset, "--out", posterior, "--chains", "1", *SHORT)
    _run("evaluate", whole / "run", "--data", data, "--seeds", "1", *SHORT)
    score = ["--data", data, "--seeds", "1", *SHORT]
    image = str(whole / "one.png")
    smooth(8, channels=1).save(image)

    yield "coreset", _coresets(root / "coreset", coreset, data, posterior)
    yield "posterior", _posteriors(root / "posterior", posterior, data, image)
    yield "table-files", _table_files(root / "table-files")
    place = root / "store"
    shutil.copytree(whole / "experts", place)
    small = [*distill, "--experts", str(place), "--steps", "1", "--out", OUT]
    more = [*experts, str(place), "--num", "3"]
    plan = ["plan", "distill", *small[1:-2]]
    yield "store", Kind(place, [["info", str(place)], small, more, plan])
    place = root / "run"
    shutil.copytree(whole / "run", place)
    again = [*made_run, str(place)]
    longer = [*again, "--steps", "3"]
    commands = [["info", str(place)], ["report", str(place)], again, longer]
    commands += [["evaluate", str(place), *score], ["plan", *longer[:-4], "--steps", "9"]]
    shutil.rmtree(place / "figures", ignore_errors=True)
    (place / "report.html").unlink()
    yield "run", Kind(place, commands)
    yield from _texts(root, whole, data)
    yield from _data_kinds(root, whole, score)
    yield "foreign", _foreign(root / "foreign", data, score, experts)
    yield "corruptions", _corruptions(root / "corruptions", posterior, data)
    yield "cells", _cells(root / "cells")
    yield "work", _work(root / "work", data)


def make_npz_data(path: Path) -> None:
    """Three classes of grey images."""
    path.parent.mkdir(parents=True)
    make_npz(path, train_images=pixels(12, 8, 8), test_images=pixels(6, 8, 8, seed=1))


def _coresets(place: Path, coreset: Path, data: str, posterior: Path) -> Kind:
    place.mkdir()
    one = pc.Pseudocoreset.load(coreset)
    one.save(place / "full.safetensors")
    one.save(place / "half.safetensors", precision="half")
    one.save(place / "byte.safetensors", precision="byte")
    whole = pc.load_data(data)
    mosaic = pc.distill(whole, (), "random", ipc=1, form="mosaic:2", net=NET, progress=False)
    mosaic.save(place / "mosaic.safetensors")
    soft = torch.full((len(one), len(one.class_names)), 1 / len(one.class_names))
    object.__setattr__(one, "targets", soft)
    one.save(place / "soft.safetensors")
    one.save(place / "soft-half.safetensors", precision="half")
    short = ["--chains", "1", *SHORT]
    commands = [
        ["info", "FILE"],
        ["evaluate", "FILE", "--data", data, "--seeds", "1", *SHORT],
        ["evaluate", "FILE", "--data", data, "--seeds", "1", "--protocol", "bayes", *SHORT],
        ["sample", "FILE", "--out", OUT, *short],
        ["export", "FILE", "--to", "png", "--out", OUT],
        ["export", "FILE", "--to", "npz", "--out", f"{OUT}.npz"],
        ["export", "FILE", "--to", "hf", "--out", OUT],
        ["compare", "FILE", str(posterior), "--data", data, *short],
        ["distill", "--data", data, *SMALL, "--experts", str(coreset.parents[1] / "experts")],
    ]
    commands[-1] += ["--steps", "1", "--init", "FILE", "--out", OUT]
    return Kind(place, commands)


def _posteriors(place: Path, posterior: Path, data: str, image: str) -> Kind:
    place.mkdir()
    one = pc.Posterior.load(posterior)
    one.save(place / "full.safetensors")
    one.save(place / "half.safetensors", half=True)
    commands = [
        ["info", "FILE"],
        ["evaluate", "FILE", "--data", data],
        ["predict", "FILE", image, "--json", f"{OUT}.json"],
        ["predict", "FILE", image, "--csv", f"{OUT}.csv", "--quiet"],
        ["compare", "FILE", str(posterior), "--data", data],
    ]
    return Kind(place, commands)


def _table_files(place: Path) -> Kind:
    """A coreset and a posterior for regression, with columns."""
    place.mkdir()
    rows = place.parent / "whole" / "rows.csv"
    rows.write_text(table_text())
    data = pc.load_data(f"table:{rows}", target="price", task="regression")
    coreset = pc.distill(
        data, (), "random", ipc=3, net="mlp:depth=1,width=4", target_noise=0.5, progress=False
    )
    coreset.save(place / "coreset.safetensors")
    sampler = pc.SGHMC(epochs=2, every=1)
    posterior = pc.sample(coreset, sampler, chains=2, progress=False)
    posterior.save(place / "posterior.safetensors")
    of_data = ["--data", f"table:{rows}", "--target", "price", "--task", "regression"]
    commands = [
        ["info", "FILE"],
        ["evaluate", str(place / "coreset.safetensors"), *of_data, "--seeds", "1", *SHORT],
        ["evaluate", str(place / "posterior.safetensors"), *of_data],
        ["predict", str(place / "posterior.safetensors"), str(rows), "--csv", f"{OUT}.csv"],
        ["export", str(place / "coreset.safetensors"), "--to", "hf", "--out", OUT],
        ["sample", str(place / "coreset.safetensors"), "--out", OUT, "--chains", "1", *SHORT],
    ]
    return Kind(place, commands)


def table_text() -> str:
    """Two columns of numbers, one of categories, and a price."""
    random = np.random.default_rng(0)
    lines = ["size,age,town,price"]
    for number in range(30):
        size, age = random.uniform(10, 99), random.integers(0, 90)
        lines.append(f"{size:.2f},{age},{'abc'[number % 3]},{size * 3.5 + age:.3f}")
    return "\n".join(lines) + "\n"


def _texts(root: Path, whole: Path, data: str) -> Iterator[tuple[str, Kind]]:
    """Configurations and recipes: what they ask for is not carried out, but for a start of it."""
    place = root / "config"
    place.mkdir()
    words = ["distill", "--data", data, *SMALL, "--experts", str(whole / "experts")]
    told = io.StringIO()
    with redirect_stdout(told):
        _run(*words, "--print-config")
    (place / "printed.yaml").write_text(told.getvalue())
    shutil.copy(whole / "run" / "config.yaml", place / "run.yaml")
    config = ["distill", "--config", "FILE", "--data", data]
    begun = [*config, "--experts", str(whole / "experts"), "--out", OUT, "--steps", "0"]
    yield "config", Kind(place, [[*config, "--print-config"], [*begun, "--ipc", "1", "--quiet"]])
    place = root / "sampling"
    place.mkdir()
    (place / "a.yaml").write_text("protocol: bayes\nsampler: sghmc\nstep: 0.1\nweight: 2\n")
    coreset = str(whole / "run" / "coreset.safetensors")
    words = ["sample", coreset, "--config", "FILE", "--out", OUT, "--chains", "1", *SHORT]
    yield "sampling", Kind(place, [words, ["evaluate", coreset, "--config", "FILE", *PRINT]])
    place = root / "recipe"
    place.mkdir()
    recipe = Path(pc.__file__).parent / "recipes" / "digits-1.yaml"
    shutil.copy(recipe, place / "recipe.yaml")
    small = ["distill", "--data", data, "--ipc", "1", "--experts", str(whole / "experts")]
    small += ["--from-epoch", "1", "--recipe", "FILE"]
    begun = [*small, "--steps", "0", "--out", OUT, "--quiet"]
    yield "recipe", Kind(place, [[*small, "--print-config"], begun])


def _data_kinds(root: Path, whole: Path, score: list[str]) -> Iterator[tuple[str, Kind]]:
    posterior = str(whole / "posterior.safetensors")
    place = root / "table"
    place.mkdir()
    table = place / "rows.csv"
    table.write_text(table_text())
    fitted = str(root / "table-files" / "posterior.safetensors")
    commands = [["info", f"table:{table}", "--target", "price"], ["predict", fitted, str(table)]]
    commands += [["info", f"table:{table}", "--target", "town"]]
    random = ["distill", "--method", "random", "--ipc", "1", "--quiet", "--out", OUT]
    commands += [[*random, "--data", f"table:{table}", "--target", "town", "--net", "mlp:width=4"]]
    yield "table", Kind(place, commands)

    place = root / "npz"
    make_npz_data(place / "data.npz")
    np.savez(place / "images.npz", images=pixels(2, 8, 8))
    npz = f"npz:{place / 'data.npz'}"
    commands = [["info", npz], ["predict", posterior, str(place / "images.npz")]]
    commands += [[*random, "--data", npz, "--net", NET]]
    yield "npz", Kind(place, commands)

    place = root / "folder"
    make_folder(place, channels=1)
    for number, suffix in enumerate(("jpg", "gif", "bmp", "tiff", "webp", "ppm")):
        smooth(8, seed=number, channels=1).save(place / "train" / "cat" / f"more.{suffix}")
    commands = [["info", f"folder:{place}"], ["predict", posterior, str(place)]]
    commands += [["predict", posterior, "FILE"]]
    commands += [["info", f"folder:{place / 'train'}", "--image-size", "8"]]
    yield "images", Kind(place, commands)

    makers = {
        "cifar10-binary": lambda to: make_cifar_binary(to, 10),
        "cifar100-binary": lambda to: make_cifar_binary(to, 100),
        "cifar10-python": lambda to: make_cifar_python(to, 10),
        "cifar10-python2": lambda to: make_cifar_python(to, 10, python2=True),
        "mnist": make_mnist,
        "mnist-gz": lambda to: make_mnist(to, zipped=True),
        "tiny-imagenet": make_tiny_imagenet,
    }
    for name, make in makers.items():
        place = root / name
        make(place)
        spec = name if name == "tiny-imagenet" else name.partition("-")[0]
        commands = [["info", f"{spec}:{place}"]]
        _run(*commands[0])  # which leaves the cache of Tiny-ImageNet there, a file to damage too
        small = "convnet:depth=1,width=4"
        commands += [[*random, "--data", f"{spec}:{place}", "--net", small, "--image-size", "8"]]
        yield name, Kind(place, commands)


def _foreign(place: Path, data: str, score: list[str], experts: list[str]) -> Kind:
    """Files that other programs pickle: sets of images, and trajectories; and an npz."""
    place.mkdir()
    images, labels = torch.randn(3, 1, 8, 8), torch.arange(3)
    torch.save(images, place / "images_best.pt")
    torch.save(labels, place / "labels_best.pt")
    np.savez(place / "set.npz", images=images.numpy(), labels=labels.numpy())
    net = make_net(NET, input_shape=(1, 8, 8), outputs=3)
    weights = net.unflatten(net.init(torch.Generator().manual_seed(0)).params)
    snapshot = [tensor.clone() for tensor in weights.values()]
    torch.save([[snapshot, snapshot]] * 2, place / "replay_buffer_0.pt")
    old = [[snapshot, snapshot]]
    torch.save(old, place / "replay_buffer_1.pt", _use_new_zipfile_serialization=False)
    commands = [
        ["evaluate", str(place), *score, "--net", NET],
        ["evaluate", str(place / "set.npz"), *score, "--net", NET],
        [*experts, OUT, "--from-replay", str(place)],
    ]
    return Kind(place, commands)


def _corruptions(place: Path, posterior: Path, data: str) -> Kind:
    place.mkdir()
    test = pc.load_data(data).test
    np.save(place / "labels.npy", test.targets.repeat(5).numpy().astype(np.uint8))
    for name in ("fog", "snow"):
        np.save(place / f"{name}.npy", pixels(5 * len(test), 8, 8, 1))
    words = ["evaluate", str(posterior), "--data", data, "--corruptions", "fog,snow"]
    return Kind(place, [[*words, "--corruptions-dir", str(place)]])


def _cells(place: Path) -> Kind:
    """A few measured cells of the paper's tables and beyond, and trials of exact models."""
    scope = Scope("cifar10")
    for table in ("table1", "dsa"):
        for cell in cells_of(table, "paper", "cifar10")[:6]:
            write_measured(cell.path(place, scope), made(cell, 50.0))
    for name, ipc in (("best", 1), ("best", 10)):
        found = made_beyond(name, ipc, 50.0)
        write_cell(found.cell.path(place, scope), found)
    for name in PROBLEMS:
        stored = {"format": 1, "problem": name, "trials": [{"seed": 0, **exact_trial()}]}
        write_json(place / "exact" / f"{name}.json", stored)
    results = Path(__file__).parents[2] / "results"
    for name in ("coresets/cifar10-fbpc-ipc1.safetensors", "pictures/cifar10-fbpc-ipc1.png"):
        (place / name).parent.mkdir()
        shutil.copy(results / name, place / name)
    shutil.copy(results / "pictures" / "cifar10-table1.png", place / "pictures")
    commands = [
        ["reproduce", "--out", str(place), "--quiet"],
        ["reproduce", "--out", str(place)],
        ["reproduce", "table1", "dsa", "beyond", "exact", "--list", "--out", str(place)],
        ["reproduce", "beyond", "--out", str(place)],
        ["reproduce", "exact", "--out", str(place), "--trials", "1"],
    ]
    return Kind(place, commands)


def _work(place: Path, data: str) -> Kind:
    """What `reproduce` keeps beside its results: experts, runs, and the time they took."""
    words = ["reproduce", "table1", "--data", data, "--cells", "fbpc/1", "--num", "1"]
    words += ["--epochs", "1", "--steps", "1", "--seeds", "1", "--work", str(place), "--out"]
    _run(*words, place.parent / "whole" / "results")
    for figures in [*place.rglob("figures"), *place.rglob("report.html")]:
        shutil.rmtree(figures, ignore_errors=True)
    return Kind(place, [[*words, OUT]])
