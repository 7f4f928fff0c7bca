"""Compare coresets made by the package and by plain PyTorch.

    python benchmarks/fast_and_plain.py --data cifar10:DIR --experts EX --out FILE

Both start at the same images and take as many updates of FBPC, with the paper's settings, the same
experts and the same steps to each MAP solution; then each one's posterior is sampled for five seeds
by the package and scored on the test images. Their images part, by rounding, which Adam makes steps
of where a gradient is nothing else, and on CUDA by other augmentations. The scores should agree
within their noise: that of the chains, and that of making a coreset, which --again shows by
coresets of other seeds.
"""

import argparse
import time
from dataclasses import asdict, replace
from pathlib import Path

import plain
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data, load_data
from pseudocoreset.distillation import run
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.versions import versions
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.experts import ExpertStore
from pseudocoreset.plan.measure import Stopwatch, synchronize
from pseudocoreset.posterior import named_sampler
from script import exit_with, job_of
from speed_row import without_place

SCORES = ("accuracy", "nll", "nll_kim", "ece")


def main() -> None:
    options = parse()
    place, data = choose_device(options.device), load_data(options.data)
    _ = data.fingerprint  # once, before the images move to the device
    data, store = data.to(place), ExpertStore.open(options.experts)
    settings = {"method": "fbpc", "ipc": options.ipc, "steps": options.steps}
    job, begin = (job_of(s, data, [store]) for s in (settings, {**settings, "steps": 0}))
    watch = Stopwatch(place)
    fast = run(job, data, [store], device=place, progress=watch)
    map_steps = [int(figures["map_steps"]) for figures in watch.figures]
    start = run(begin, data, [store], device=place, progress=False)

    begun = time.perf_counter()
    *_, images = plain.coreset_updates(data, store, job, place, map_steps)
    synchronize(place)
    plain_s = time.perf_counter() - begun
    twin = replace(fast, inputs=images.cpu())

    rows = [
        {"made_by": "the package", "seconds": sum(watch.durations)} | scored(fast, data, options),
        {"made_by": "its plain twin", "seconds": plain_s} | scored(twin, data, options),
    ]
    for seed in range(1, 1 + options.again):
        other = run(job, data, [store], seed=seed, device=place, progress=False)
        rows.append({"made_by": f"the package, seed {seed}"} | scored(other, data, options))
    moved = (fast.inputs - start.inputs).norm()
    numbers = f"--ipc {options.ipc} --steps {options.steps} --seeds {options.seeds}"
    numbers += f" --again {options.again}"
    found = {
        "command": f"python benchmarks/fast_and_plain.py --data {without_place(options.data)} "
        f"--experts EX {numbers} --out FILE",
        "rows": rows,
        "images_apart": float((twin.inputs - fast.inputs).norm() / moved),
        "map_steps": map_steps,
        "settings": job.config(),
        "experts": asdict(store.identity) | {"num": len(store)},
        "protocol": named_sampler("tuned").as_dict() | {"seeds": options.seeds},
        "device": device_name(place),
        "versions": versions(),
    }
    write_json(options.out, found)
    for row in rows:
        print(", ".join(f"{n} {v if isinstance(v, str) else f'{v:.4g}'}" for n, v in row.items()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="a data spec")
    parser.add_argument("--experts", type=Path, required=True, help="a store of experts")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--ipc", type=int, default=10, help="images a class")
    parser.add_argument("--steps", type=int, default=300, help="updates")
    parser.add_argument("--seeds", type=int, default=5, help="posteriors a score")
    parser.add_argument("--again", type=int, default=0, help="coresets of other seeds besides")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error("--steps are updates: give 1 or more")
    return options


def scored(coreset: Pseudocoreset, data: Data, options: argparse.Namespace) -> dict[str, float]:
    """Means and standard deviations over the seeds."""
    found = evaluate(
        coreset, data, "tuned", seeds=options.seeds, device=options.device, progress=False
    )
    both = {name: (found.mean(name), found.std(name)) for name in SCORES}
    return {f"{n}{end}": v[k] for n, v in both.items() for k, end in enumerate(("", "_std"))}


if __name__ == "__main__":
    exit_with(main)
