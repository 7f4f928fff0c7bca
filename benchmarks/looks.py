"""What it costs to look whether γ is reached, which the device waits for.

    python benchmarks/looks.py              (on a GPU; into results/looks.json)
    python benchmarks/looks.py --small      (seconds on a CPU; writes only to an --out)

The same updates of FBPC and FBPC-isotropic, with as many steps to the MAP solution, take a look
every ten steps, as the package does, and once after the last. Each way is measured in turn, several
times.
"""

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.versions import versions
from pseudocoreset.methods import map_solution
from pseudocoreset.plan.measure import PeakMemory
from script import exit_with
from speed import SIZES, SMALL_NET
from speed_row import Row, data_of, measure_update

METHODS = ("fbpc", "fbpc-isotropic")
STEPS = 60
ROUNDS = 3
UPDATES = 10
OUT = Path(__file__).parent.parent / "results" / "looks.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--small", action="store_true", help="one small network and size")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # γ, which is out of reach here
    out = options.out
    if out is None and not options.small:
        if choose_device(options.device).type == "cpu":
            parser.error("results/ holds what a GPU took: give --out for what a CPU takes")
        out = OUT
    rows = []
    for method, ipc in product(METHODS, SIZES[:1] if options.small else SIZES):
        rows.append(compared(method, ipc, options.device, options.small))
        words = "{seconds:.5f} s with looks, {seconds_with_one:.5f} with one".format(**rows[-1])
        print(f"{method}, {ipc} a class: {words}; a look {rows[-1]['look_s']:.6f} s", flush=True)
        if out is not None:
            write_json(out, rows)
    return 0


def compared(method: str, ipc: int, device: str, small: bool) -> dict[str, Any]:
    """An update with its looks, and with one."""
    place, usual = choose_device(device), map_solution.BLOCK
    net, updates, rounds = (SMALL_NET, 1, 1) if small else ("convnet", UPDATES, ROUNDS)
    row = Row(f"{method} update", net, ipc, repeats=updates, with_plain=False, map_steps=STEPS)
    if small:
        row = replace(row, small=True, real_batch=8, image_size=8)
    data = data_of(row).to(place)
    times: dict[int, list[float]] = {usual: [], STEPS: []}
    for block in [*times] * rounds:
        with looking_every(block):
            times[block] += measure_update(row, data, place, PeakMemory(place))["fast_each_s"]
    seconds, with_one = (median(each) for each in times.values())
    return {
        "method": method,
        "net": net,
        "ipc": ipc,
        "map_steps": STEPS,
        "looks": STEPS // usual,
        "seconds": seconds,
        "seconds_with_one": with_one,
        "each_s": times[usual],
        "each_with_one_s": times[STEPS],
        "look_s": (seconds - with_one) / (STEPS // usual - 1),
        "device": device_name(place),
        "versions": versions(),
    }


@contextmanager
def looking_every(steps: int) -> Iterator[None]:
    """Look at the loss after so many steps."""
    usual, map_solution.BLOCK = map_solution.BLOCK, steps
    try:
        yield
    finally:
        map_solution.BLOCK = usual


if __name__ == "__main__":
    exit_with(main)
