"""What the peak of GPU memory is made of, where an update of FBPC takes more than the paper's.

    python benchmarks/memory_profile.py     (on a GPU; into results/memory-profile.json)

PyTorch reserves memory in pieces. For ConvNet with 1 image a class and LeNet with 10, with real
batches of one image, each piece at the peak is listed with its size and the functions of
the package that needed it first. Then the same updates with other settings of the allocator
(PYTORCH_ALLOC_CONF), and with steps on real images and on the coreset one after the other on one
stream, instead of side by side on two.
"""

import argparse
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import pseudocoreset
from pseudocoreset.engine.device import device_name
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.streams import SideStream
from pseudocoreset.engine.versions import versions
from pseudocoreset.methods import fbpc
from pseudocoreset.plan.measure import PeakMemory
from script import exit_with, run_script
from speed_row import Row, data_of, measure_update

CASES = (("convnet", 1), ("lenet", 10))
ALLOCATORS = ("", "expandable_segments:True", "large_segment_size_mb:11")
"""The first one is PyTorch's own; pieces are listed for it alone. 11 is the least that it takes."""
MOST_EVENTS = 1_000_000
MIB = 2**20
PACKAGE = Path(pseudocoreset.__file__).parent
MACHINERY = ("engine", "training.py", "nets")
"""Parts of the package through which every step goes."""
OUT = Path(__file__).parent.parent / "results" / "memory-profile.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # network and size as JSON: measure here
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no GPU here, and on a CPU there are no such pieces")
    if options.one is not None:
        print(json.dumps(measured(*json.loads(options.one))))
        return 0
    jobs = [
        (net, ipc, allocator, streams)
        for net, ipc in CASES
        for streams in (2, 1)
        for allocator in ALLOCATORS
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for _ in range(2):  # the first time kernels are compiled, with memory for the trials
            rows = list(pool.map(lambda job: child(*job), jobs))
    print("\n".join(line for row in rows for line in in_words(row)))
    if any("failed" in row for row in rows):  # what was stored before stays
        return 1
    write_json(options.out, rows)
    return 0


def in_words(row: dict[str, Any]) -> list[str]:
    """A line, and one for each piece."""
    name = f"{row['net']}, ipc {row['ipc']}, {row['allocator'] or 'as PyTorch has it'}, "
    name += f"streams: {row['streams']}"
    if "failed" in row:
        return [f"{name}: {row['failed']}"]
    pieces = [
        f"    {piece['mib']:6.0f} MiB in {piece['number']} on {piece['stream']}: {piece['for']}"
        for piece in row["pieces"]
    ]
    return [f"{name}: {row['peak_gb']:.3f} GB", *pieces]


def child(net: str, ipc: int, allocator: str, streams: int) -> dict[str, Any]:
    """A measurement in a process of its own, since the allocator is set once."""
    settings = {"PYTORCH_ALLOC_CONF": allocator} if allocator else {}
    job = json.dumps([net, ipc, streams, not allocator])
    found = run_script(__file__, "--one", job, environment={**os.environ, **settings})
    return {"net": net, "ipc": ipc, "allocator": allocator, "streams": streams, **found}


def measured(net: str, ipc: int, streams: int, with_pieces: bool) -> dict[str, Any]:
    """An update's peak beyond the data and the real batch, and what it is made of."""
    warnings.simplefilter("ignore", RuntimeWarning)  # γ that random images do not reach
    if streams == 1:
        fbpc.SideStream = lambda device, **_: SideStream(device, apart=False)  # type: ignore
    place = torch.device("cuda")
    row = Row("fbpc update", net, ipc, repeats=1, with_plain=False, real_batch=1)
    data = data_of(row).to(place)
    memory = PeakMemory(place)
    torch.cuda.memory._record_memory_history(
        context="alloc", stacks="python", max_entries=MOST_EVENTS
    )
    found = measure_update(row, data, place, memory)
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    return {
        "peak_gb": found["whole_peak_gb"],
        "pieces": pieces_at_peak(events) if with_pieces else [],
        "device": device_name(place),
        "versions": versions(),
    }


def pieces_at_peak(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was reserved when most was, largest first, put together by stream and who needed it."""
    reserved: dict[int, tuple[int, tuple[int, str]]] = {}
    streams: dict[int, str] = {}
    total = most = 0
    at_peak: list[tuple[int, tuple[int, str]]] = []
    for event in events:
        if event["action"] == "segment_alloc":
            streams.setdefault(event["stream"], f"stream {len(streams) + 1}")
            who = (event["stream"], needed_by(event["frames"]))
            reserved[event["addr"]] = event["size"], who
            total += event["size"]
            if total > most:
                most, at_peak = total, list(reserved.values())
        elif event["action"] == "segment_free" and event["addr"] in reserved:
            total -= reserved.pop(event["addr"])[0]
    sizes, numbers = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for size, who in at_peak:
        sizes[who] += size
        numbers[who] += 1
    return [
        {"mib": size / MIB, "number": numbers[who], "stream": streams[who[0]], "for": who[1]}
        for who, size in sizes.most_common()
    ]


def needed_by(frames: list[dict[str, Any]]) -> str:
    """The innermost functions on a stack that say what is done, not how steps are taken."""
    paths = [Path(frame["filename"]) for frame in frames]
    names = [
        f"{path.stem}.{frame['name']}"
        for path, frame in zip(paths, frames, strict=True)
        if path.is_relative_to(PACKAGE) and path.relative_to(PACKAGE).parts[0] not in MACHINERY
    ]
    return " < ".join(names[:4]) or "libraries"


if __name__ == "__main__":
    exit_with(main)
