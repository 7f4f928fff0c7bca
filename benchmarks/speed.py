"""How fast the package is beside its plain twin, and how much memory it takes.

    python benchmarks/speed.py --data cifar10:DIR     (into results/benchmark.json)
    python benchmarks/speed.py --scaling              (how cost grows; into results/scaling.json)
    python benchmarks/speed.py --memory               (of all methods; into results/memory.json)
    python benchmarks/speed.py --small                (seconds on a CPU; writes only to an --out)

Each row is measured in a process of its own: the package, then the same computation in ordinary
eager PyTorch (`plain.py`) on the same device, both with TF32 convolutions and products, the package
with bfloat16 in its training steps besides, and, for FBPC, the same number of steps to the MAP
solution. Times are medians over repeats after warm-up. Updates are
those of a coreset of real images with the paper's settings for CIFAR-10; without --data, images of
the same size are made up. Experts are random weights there, on which an update takes as long.

On a GPU everything is run once before that, several rows side by side, so that the compiler's cache
is full: neither times nor memory are then those of compiling (`once_s` is what a second run takes
before its first update). With --filled an earlier run of the same rows has done that; `compiled`
says of each row whether it had to compile all the same. Rows then have the GPU one after another;
the next one loads its libraries and data meanwhile.

`peak_gb` (10⁹ bytes) is what the allocator reserved, captured graphs included, beyond the data; of
an FBPC update also beyond the real-batch step: it is measured with real batches of one image, and
`real_batch_gb` is what batches as they are add. On a CPU it is the growth of the process. With
--memory, rows are measured side by side, which memory does not mind, and have no times.

The file is a list of rows and is written whole after each; a row that failed says why. With
--resume, rows that are there already, of the same versions, are kept.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pseudocoreset.data import load_data
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.files import refuse_unwritable_file, write_json
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.nets import make_net
from script import exit_with, run_script
from speed_row import STAND_IN, Row, measure

METHODS = ("fbpc", "fbpc-isotropic", "bpc-fkl", "bpc-rkl", "bpc-w")
ROWS = (*METHODS, "expert", "sghmc")
USUAL_ROWS = ("fbpc", "fbpc-isotropic", "bpc-fkl", "expert", "sghmc")
NETS = ("convnet", "lenet", "resnet18")
SIZES = (1, 10, 50)
RESULTS = Path(__file__).parent.parent / "results"
SMALL_NET = "convnet:width=8"
AT_ONCE = max(2, (os.cpu_count() or 2) // 2)
TIMES = ("plain_s", "fast_s", "ratio", "fast_each_s", "once_s")
SCALING_MAP_STEPS = 50

PAPER = {
    # Tables gpu_memory_ipc, gpu_memory and wall_clock_time; seconds on an RTX 3090.
    ("fbpc", "convnet", 1): {"paper_gb": 0.04, "paper_s": 1.5},
    ("fbpc", "convnet", 10): {"paper_gb": 0.32, "paper_s": 3.29},
    ("fbpc", "convnet", 50): {"paper_gb": 1.59, "paper_s": 8.38},
    ("fbpc", "lenet", 10): {"paper_gb": 0.02},
    ("fbpc", "resnet18", 10): {"paper_gb": 2.56},
    ("bpc-fkl", "convnet", 1): {"paper_gb": 0.41, "paper_s": 1.04},
    ("bpc-fkl", "convnet", 10): {"paper_gb": 3.17, "paper_s": 1.37},
    ("bpc-fkl", "convnet", 50): {"paper_gb": 15.59, "paper_s": 2.59},
    ("bpc-fkl", "lenet", 10): {"paper_gb": 0.11},
    ("bpc-fkl", "resnet18", 10): {"paper_gb": 12.18},
}


def main() -> int:
    options = parse()
    if options.one is not None:
        warnings.simplefilter("ignore", RuntimeWarning)  # γ that random images do not reach
        print(json.dumps(measure(Row(**json.loads(options.one)), options.turn)))
        return 0
    rows = wanted_rows(options)
    refuse_mistakes(rows)
    out = options.out
    refuse_unwritable_file(out)
    found = read_rows(out) if out is not None and out.exists() else []
    failed = 0
    missing = [row for row in rows if not (options.resume and any(is_done(o, row) for o in found))]
    begun = time.perf_counter()
    measured = measured_rows(missing, side_by_side=options.memory, filled=options.filled)
    for number, (row, new) in enumerate(zip(missing, measured, strict=True), 1):
        if options.memory:
            new = {name: value for name, value in new.items() if name not in TIMES}
        failed += "failed" in new
        if row.grows is None:
            new |= PAPER.get((row.method, row.net, row.ipc), {})
        found = with_row(found, new)
        if out is not None:
            write_json(out, found)
        words = f"{row.what}, {row.net}, ipc {row.ipc}: {new.get('failed', 'done')}"
        since = time.perf_counter() - begun
        print(f"{number}/{len(missing)} {words} ({since:.0f} s since the start)", flush=True)
    places = [place_of(row.as_json(), device_name(choose_device(row.device))) for row in rows]
    print(table([old for old in found if place_of(old["row"], old["device"]) in places]))
    return 1 if failed else 0


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows that a file has."""
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        _ = [place_of(row["row"], row["device"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{path} is no list of this script's rows ({error!r}): give another --out."
        raise UserError(reason) from None
    return rows


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=STAND_IN, help="a data spec; default: images made up")
    parser.add_argument("--out", type=Path, help="the file of rows")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--small", action="store_true", help="digits and a tiny network, once")
    parser.add_argument("--scaling", action="store_true", help="how cost grows; no plain twin")
    parser.add_argument("--memory", action="store_true", help="peak memory of all methods' updates")
    parser.add_argument("--rows", type=listed, help=f"some of {','.join(ROWS)}")
    parser.add_argument("--nets", type=listed, help="networks, each with every size")
    parser.add_argument("--ipcs", type=numbers, help="images per class")
    parser.add_argument("--repeats", type=int, default=5, help="measured updates a row")
    parser.add_argument("--resume", action="store_true", help="keep rows that are there")
    parser.add_argument("--filled", action="store_true", help="the compiler's cache is full")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a Row as JSON: measure it here
    parser.add_argument("--turn", type=Path, help=argparse.SUPPRESS)  # when this file is free
    options = parser.parse_args()
    unknown = set(options.rows or ()) - set(ROWS)
    if unknown:
        parser.error(f"--rows {','.join(sorted(unknown))}: give some of {','.join(ROWS)}")
    if options.memory and options.scaling:
        parser.error("--memory and --scaling are two runs: give one of them")
    if options.repeats < 1 or min(options.ipcs or [1]) < 1:
        parser.error("--repeats and --ipcs must be 1 or more")
    if options.out is None and not options.small and options.one is None:
        if choose_device(options.device).type == "cpu":
            parser.error("results/ holds what a GPU took: give --out for what a CPU takes")
        name = "scaling" if options.scaling else "memory" if options.memory else "benchmark"
        options.out = RESULTS / f"{name}.json"
    return options


def listed(text: str) -> list[str]:
    return text.split(",")


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def wanted_rows(options: argparse.Namespace) -> list[Row]:
    common = {"data": options.data, "device": options.device, "repeats": options.repeats}
    if options.small:
        common |= {"data": "digits", "repeats": 1, "small": True}
    if options.scaling:
        return scaling_rows(Row("fbpc update", "convnet", 10, **common))
    names = options.rows or USUAL_ROWS
    if options.memory:
        names = options.rows or METHODS
        common |= {"repeats": 1, "with_plain": False}
    one = SMALL_NET if options.small else "convnet"
    chosen = options.small or options.nets or options.ipcs
    nets = options.nets or ([one] if chosen or options.memory else NETS)
    sizes = options.ipcs or ([1] if options.small else SIZES)
    cells = [(net, ipc) for net in nets for ipc in sizes]
    rows = []
    for name in names:
        if name == "expert":
            of_experts = options.nets or [one]
            rows += [Row("expert epoch", net, None, **common) for net in of_experts]
        elif name == "sghmc":
            of_chains = cells if chosen else [(one, 10)]
            rows += [Row("sghmc 5 seeds", net, ipc, **common) for net, ipc in of_chains]
        else:
            rows += [Row(f"{name} update", net, ipc, **common) for net, ipc in cells]
    return rows


def refuse_mistakes(rows: list[Row]) -> None:
    """Refuse at once what every row's process would refuse by itself."""
    stored = {row.data for row in rows} - {STAND_IN}
    shapes = {data: load_data(data).shape for data in stored}
    for row in rows:
        choose_device(row.device)
        made_up = {"input_shape": (3, row.image_size, row.image_size), "outputs": row.classes}
        make_net(row.net, **shapes.get(row.data, made_up))


def scaling_rows(base: Row) -> list[Row]:
    """One thing grows at a time; every update takes the same steps to its MAP solution.

    The row of 10 images a class, measured once, belongs to all four series.
    """
    small = base.small
    base = replace(base, data=STAND_IN, with_plain=False, map_steps=SCALING_MAP_STEPS)
    if small:
        base = replace(base, net=SMALL_NET, ipc=1, map_steps=10, image_size=8)
        return [replace(base, ipc=ipc, grows="ipc") for ipc in (1, 2)]
    rows = [replace(base, ipc=ipc, grows="ipc") for ipc in (1, 10, 50, 100, 200)]
    widths = [f"convnet:width={width}" for width in (32, 64, 256, 512)]
    rows += [replace(base, net=net, grows="parameters") for net in widths]
    rows += [replace(base, image_size=64, grows="image size")]
    rows += [replace(base, classes=number, grows="classes") for number in (100, 200)]
    return rows


def place_of(row: dict[str, Any], device: str) -> dict[str, Any]:
    """What a file has but one row of: how often it is measured makes no other."""
    kept = {name: value for name, value in row.items() if name not in ("repeats", "device")}
    return kept | {"on": device}


def with_row(found: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows with a new one in its place; a failure does not take that of what was measured."""
    place = place_of(new["row"], new["device"])
    for number, old in enumerate(found):
        if place_of(old["row"], old["device"]) == place:
            kept = old if "failed" in new and "failed" not in old else new
            return [*found[:number], kept, *found[number + 1 :]]
    return [*found, new]


def is_done(old: dict[str, Any], row: Row) -> bool:
    place = place_of(row.as_json(), device_name(choose_device(row.device)))
    same = place_of(old["row"], old["device"]) == place and "failed" not in old
    return same and old["versions"] == versions()


def measured_rows(
    rows: list[Row], side_by_side: bool, filled: bool = False
) -> Iterator[dict[str, Any]]:
    """Each row as a process of its own measures it; a failure is a row too."""
    alone = {row: shortened(replace(row, real_batch=1)) for row in rows if has_real_batch(row)}
    on_gpu = any(choose_device(row.device).type == "cuda" for row in rows)
    with (
        ThreadPoolExecutor(AT_ONCE) as pool,
        ThreadPoolExecutor(2) as two,
        tempfile.TemporaryDirectory() as folder,
    ):
        if on_gpu and not filled:
            list(pool.map(child, [*map(shortened, rows), *alone.values()]))
        found_alone = dict(zip(alone, pool.map(child, alone.values()), strict=True))
        if side_by_side:
            found = pool.map(child, rows)
        elif on_gpu:
            found = two.map(partial(child, turn=Path(folder, "turn")), rows)
        else:
            found = map(child, rows)
        for row, new in zip(rows, found, strict=True):
            yield without_real_batch(new, found_alone[row]) if row in alone else new


def has_real_batch(row: Row) -> bool:
    """Whether the real-batch step is stated apart; on a CPU there is but one peak a process."""
    return row.what == "fbpc update" and choose_device(row.device).type == "cuda"


def shortened(row: Row) -> Row:
    """As little as runs all of its steps."""
    return replace(row, with_plain=False, repeats=1)


def without_real_batch(new: dict[str, Any], alone: dict[str, Any]) -> dict[str, Any]:
    if "failed" in new:
        return new
    if "failed" in alone:
        return new | {"peak_failed": alone["failed"]}
    beyond = alone["whole_peak_gb"]
    return new | {"peak_gb": beyond, "real_batch_gb": new["whole_peak_gb"] - beyond}


def child(row: Row, turn: Path | None = None) -> dict[str, Any]:
    words = ["--one", json.dumps(asdict(row)), *([] if turn is None else ["--turn", str(turn)])]
    found = run_script(__file__, *words)
    if "failed" not in found:
        return found
    empty = dict.fromkeys(("plain_s", "fast_s", "ratio", "peak_gb"))
    place = device_name(choose_device(row.device))
    named = {"what": row.what, "net": row.net, "ipc": row.ipc, **empty, "device": place}
    return named | found | {"row": row.as_json(), "versions": versions()}


COLUMNS = {
    "ratio": "{:.1f}×",
    "what": "{}",
    "net": "{}",
    "ipc": "{}",
    "plain_s": "{:.4g}",
    "fast_s": "{:.4g}",
    "map_steps": "{:g}",
    "parameters": "{:,}",
    "peak_gb": "{:.3f}",
    "plain_peak_gb": "{:.3f}",
    "paper_s": "{}",
    "paper_gb": "{}",
    "once_s": "{:.1f}",
    "failed": "{:.150}",
}


def table(rows: list[dict[str, Any]]) -> str:
    """Ratios first; GB are 10⁹ bytes, and the paper's seconds those of an RTX 3090."""
    lines = [[*COLUMNS, ""]]
    for row in rows:
        cells = [
            "-" if row.get(name) is None else form.format(row[name])
            for name, form in COLUMNS.items()
        ]
        grown = row["row"]
        size = f"{grown['image_size']}², {grown['classes']} classes" if grown["grows"] else ""
        lines.append([*cells, size])
    used = [i for i, column in enumerate(zip(*lines, strict=True)) if {*column[1:]} - {"-", ""}]
    widths = {i: max(len(line[i]) for line in lines) for i in used}
    shown = ["  ".join(line[i].ljust(widths[i]) for i in used).rstrip() for line in lines]
    devices = sorted({row["device"] for row in rows})
    return "\n".join([f"on {', '.join(devices)}", *shown])


if __name__ == "__main__":
    exit_with(main)
