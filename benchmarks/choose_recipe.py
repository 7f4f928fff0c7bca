"""Try a method's settings on held-out training images, to choose a recipe by.

    pseudocoreset experts --data cifar10:DIR --holdout 5000 --num 12 --epochs 50 --out experts
    python benchmarks/choose_recipe.py tries.json --data cifar10:DIR --experts experts \
        --out results/heldout.json

`tries.json` is a list of settings with a name, such as
`[{"name": "later", "method": "fbpc", "ipc": 10, "recipe": "tuned", "from_epoch": 25}]`; what is not
given is the recipe's. Each makes a coreset, whose posterior is sampled by the protocol `tuned` and
scored on the images that experts and coreset never saw. Its row holds besides all settings of the
method, as recipes change, and the figures of its updates (losses, variances, steps), as means over
the first, the middle and the last 20.

The file keeps what it has; rows go to its part, called a wave, of the same experts, protocol,
number of chains, device and versions. A try that is there by name is not run again. With --at-once,
several run side by side in processes of their own.
"""

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from pseudocoreset.data import Data, load_data
from pseudocoreset.distillation import run
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.files import lock_file, locked, write_json
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.experts import ExpertStore
from pseudocoreset.plan.measure import Stopwatch
from pseudocoreset.posterior import SGHMC, Sampler, named_sampler, sampler_name
from script import exit_with, job_of, run_script
from speed_row import without_place

SCORES = ("accuracy", "nll", "nll_kim", "ece")
SPAN = 20
SAMPLES = 10

Content = dict[str, Any]
"""Settings, rows, waves and files, as they are in JSON."""


def main() -> int:
    options = parse()
    if options.one is not None:
        print(json.dumps(tried(json.loads(options.one), options)))
        return 0
    store = ExpertStore.open(options.experts)
    tries = read_tries(options.tries)
    data = load_data(options.data, options.image_size).hold_out(options.holdout)
    for name, settings in tries.items():
        refuse(name, settings, data, store)
    before = {row["name"]: row["settings"] for row in kept(options, store)[1]["rows"]}
    for name in before.keys() & tries.keys():
        if before[name] != tries[name]:
            raise UserError(f"{options.out} has {name!r} with other settings: give another name.")
    missing = [{"name": n, "settings": s} for n, s in tries.items() if n not in before]
    same = ["--data", options.data, "--holdout", str(options.holdout), "--device", options.device]
    same += ["--experts", str(options.experts), "--seeds", str(options.seeds)]
    same += [] if options.image_size is None else ["--image-size", str(options.image_size)]
    ask = partial(run_script, __file__, *same, "--epochs", str(options.epochs), longest_s=None)
    failed = 0
    with ThreadPoolExecutor(options.at_once) as pool:
        waiting = {pool.submit(ask, "--one", json.dumps(one)): one["name"] for one in missing}
        try:
            for answer in as_completed(waiting):
                failed += not stored(waiting[answer], answer.result(), options, store)
        except BaseException:  # what has not begun yet is not to begin
            pool.shutdown(cancel_futures=True)
            raise
    return 1 if failed else 0


def stored(name: str, row: Content, options: argparse.Namespace, store: ExpertStore) -> bool:
    """Store a row, or say why there is none."""
    if "failed" in row:
        print(f"{name} failed: {row['failed']}", flush=True)
        return False
    lock = options.out.with_name(f".{options.out.name}.lock")
    with lock_file(lock) as file, locked(file, 0, wait=True):
        content, wave = kept(options, store)  # anew: others may have written meanwhile
        wave["rows"].append(row)
        write_json(options.out, content)
    scores = f"{row['accuracy']:.2%}, NLL {row['nll']:.3f}, Kim et al.'s {row['nll_kim']:.3f}"
    print(f"{name}: {scores}", flush=True)
    return True


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tries", nargs="?", type=Path)
    parser.add_argument("--data", required=True, help="a data spec")
    parser.add_argument("--image-size", type=int, help="resize images to this side")
    parser.add_argument("--holdout", type=int, default=5000, help="as the experts were trained")
    parser.add_argument("--experts", type=Path, required=True, help="a store of such experts")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--seeds", type=int, default=1, help="chains a coreset")
    parser.add_argument("--epochs", type=int, default=1000, help="epochs of a chain")
    parser.add_argument("--at-once", type=int, default=1, help="tries side by side")
    parser.add_argument("--out", type=Path, help="a file, which keeps what it has")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is None and (options.tries is None or options.out is None):
        parser.error("give a file of tries, and --out")
    for name in ("at_once", "seeds", "holdout"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is too small: give 1 or more")
    if options.epochs < SAMPLES or options.epochs % SAMPLES:
        parser.error(f"--epochs {options.epochs} is no multiple of {SAMPLES}, the samples a chain")
    return options


def read_tries(path: Path) -> dict[str, Content]:
    """The settings by name."""
    try:
        tries = json.loads(path.read_text(encoding="utf-8"))
        named = {one["name"]: {k: v for k, v in one.items() if k != "name"} for one in tries}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no list of settings with a name ({error!r}).") from None
    if not named:
        raise UserError(f"{path} is empty: give a list of settings with a name.")
    if len(named) < len(tries):
        raise UserError(f"{path} has a name twice.")
    return named


def refuse(name: str, settings: Content, data: Data, store: ExpertStore) -> None:
    """Refuse at once what would be refused after other tries."""
    try:
        job_of(settings, data, [store])
    except (UserError, TypeError, ValueError) as error:
        raise UserError(f"{name!r} can't be tried: {error}") from None


def kept(options: argparse.Namespace, store: ExpertStore) -> tuple[Content, Content]:
    """What the file has, and its wave of tries like these, begun if there is none."""
    content: Content = {"waves": []}
    if options.out.exists():
        try:
            content = json.loads(options.out.read_text(encoding="utf-8"))
            _ = [wave["rows"] for wave in content["waves"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{options.out} is no file of this script ({error!r}): give another --out."
            raise UserError(reason) from None
    made_with = {
        "experts": f"{len(store)} of {store.last_epoch} epochs",
        "fingerprint": store.fingerprint,
        "protocol": protocol_of(options),
        "seeds": options.seeds,
        "device": device_name(choose_device(options.device)),
        "versions": versions(),
    }
    for wave in content["waves"]:
        if made_with.items() <= wave.items():
            return content, wave
    command = f"python benchmarks/choose_recipe.py TRIES --data {without_place(options.data)} "
    command += f"--image-size {options.image_size} " if options.image_size is not None else ""
    command += f"--holdout {options.holdout} --experts EXPERTS --seeds {options.seeds} "
    command += f"--epochs {options.epochs} --out {options.out.name}"
    wave = {"command": command, **made_with, "rows": []}
    content["waves"].append(wave)
    return content, wave


def sampler_for(options: argparse.Namespace) -> Sampler:
    """The protocol `tuned`, with as many samples a chain however long it is."""
    chain = SGHMC(epochs=options.epochs, every=options.epochs // SAMPLES)
    return named_sampler("tuned", chain)


def protocol_of(options: argparse.Namespace) -> Content:
    """The sampler as the file has it."""
    sampler = sampler_for(options)
    return {"sampler": sampler_name(sampler), **sampler.as_dict(), "chains": 1}


def tried(one: Content, options: argparse.Namespace) -> Content:
    """Make the coreset and score it."""
    data = load_data(options.data, options.image_size).hold_out(options.holdout)
    store = ExpertStore.open(options.experts)
    watch = Stopwatch(choose_device(options.device), wait=False)
    job = job_of(one["settings"], data, [store])
    coreset = run(job, data, [store], device=options.device, progress=watch)
    scores = evaluate(
        coreset,
        data,
        sampler_for(options),
        seeds=options.seeds,
        split="holdout",
        device=options.device,
        progress=False,
    )
    row = {**one, "config": coreset.provenance.config}
    row |= {name: round(scores.mean(name), 4) for name in SCORES}
    names = watch.figures[0] if watch.figures else {}
    return row | {name: along([f[name] for f in watch.figures]) for name in names}


def along(values: Sequence[float]) -> list[float]:
    """The means over the first, the middle and the last of them."""
    middle = max(0, len(values) // 2 - SPAN // 2)
    parts = (values[:SPAN], values[middle : middle + SPAN], values[-SPAN:])
    return [float(f"{fmean(part):.3g}") for part in parts]


if __name__ == "__main__":
    exit_with(main)
