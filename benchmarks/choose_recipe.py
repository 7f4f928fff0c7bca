"""Try a method's settings on held-out training images, to choose a recipe by.

    pseudocoreset experts --data cifar10:DIR --holdout 5000 --num 12 --epochs 50 --out experts
    python benchmarks/choose_recipe.py tries.json --data cifar10:DIR --experts experts \
        --out results/heldout.json

`tries.json` is a list of settings with a name, such as
`[{"name": "later", "method": "fbpc", "ipc": 10, "recipe": "tuned", "from_epoch": 25}]`; what is not
given is the recipe's. Each makes a coreset, whose posterior is sampled by the protocol `tuned` and
scored on the images that experts and coreset never saw. Its row holds besides what the updates told
(losses, variances, steps), as means over the first, the middle and the last 20.

The file keeps what it has; rows go to its part, called a wave, of the same experts, protocol,
device and versions. A try that is there by name is not run again. With --at-once, several run side
by side in processes of their own.
"""

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from pseudocoreset import DistillSettings, distill, evaluate, load_data
from pseudocoreset.coreset import versions
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.files import write_json
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.measure import Stopwatch
from pseudocoreset.posterior import named_protocol
from script import asked, exit_with
from speed_row import without_place

SCORES = ("accuracy", "nll", "nll_kim", "ece")
SPAN = 20

Try = dict[str, Any]


def main() -> int:
    options = parse()
    if options.one is not None:
        print(json.dumps(tried(json.loads(options.one), options)))
        return 0
    store = ExpertStore.open(options.experts)
    content, wave = kept(options, store)
    before = {row["name"]: row["settings"] for row in wave["rows"]}
    missing = []
    for name, settings in read_tries(options.tries).items():
        if name not in before:
            missing.append({"name": name, "settings": settings})
        elif before[name] != settings:
            raise UserError(f"{options.out} has {name!r} with other settings: give another name.")
    failed = 0
    with ThreadPoolExecutor(options.at_once) as pool:
        same = ["--data", options.data, "--holdout", str(options.holdout)]
        same += ["--experts", str(options.experts), "--device", options.device]
        same += ["--seeds", str(options.seeds), "--epochs", str(options.epochs)]
        ask = partial(asked, __file__, *same, longest_s=None)
        waiting = {pool.submit(ask, "--one", json.dumps(one)): one["name"] for one in missing}
        for answer in as_completed(waiting):
            row = answer.result()
            if "failed" in row:
                failed += 1
                print(f"{waiting[answer]} failed: {row['failed']}", flush=True)
                continue
            wave["rows"].append(row)
            write_json(options.out, content)
            told = f"{row['accuracy']:.2%}, NLL {row['nll']:.3f}, Kim et al.'s {row['nll_kim']:.3f}"
            print(f"{row['name']}: {told}", flush=True)
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tries", nargs="?", type=Path)
    parser.add_argument("--data", required=True, help="a data spec")
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
    if options.at_once < 1:
        parser.error(f"--at-once {options.at_once} is too small: give 1 or more")
    return options


def read_tries(path: Path) -> dict[str, Try]:
    """The settings by name, each known to be settings."""
    try:
        tries = list(json.loads(path.read_text(encoding="utf-8")))
        named = {settings.pop("name"): settings for settings in tries}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no list of settings with a name ({error!r}).") from None
    if not named:
        raise UserError(f"{path} is no list of settings with a name.")
    known = {field.name for field in fields(DistillSettings)}
    for name, settings in named.items():
        for setting in settings:
            if setting not in known:
                raise UserError(f"{path}: {name!r} has {setting!r}, which is no setting.")
    if len(named) < len(tries):
        raise UserError(f"{path} has a name twice.")
    return named


def kept(options: argparse.Namespace, store: ExpertStore) -> tuple[Try, Try]:
    """What the file has, and its wave of these experts, begun if there is none."""
    content: Try = {"waves": []}
    if options.out.exists():
        content = json.loads(options.out.read_text(encoding="utf-8"))
    made_with = {
        "experts": f"{len(store)} of {store.last_epoch} epochs",
        "fingerprint": store.fingerprint,
        "protocol": asdict(protocol_of(options)),
        "device": device_name(choose_device(options.device)),
        "versions": versions(),
    }
    for wave in content["waves"]:
        if made_with.items() <= wave.items():
            return content, wave
    command = f"python benchmarks/choose_recipe.py {options.tries.name} --data "
    command += f"{without_place(options.data)} --holdout {options.holdout} --experts "
    command += f"{options.experts.name} --epochs {options.epochs} --out {options.out.name}"
    wave = {"command": command, **made_with, "rows": []}
    content["waves"].append(wave)
    return content, wave


def protocol_of(options: argparse.Namespace) -> Any:
    return named_protocol("tuned", epochs=options.epochs, every=max(1, options.epochs // 10))


def tried(one: Try, options: argparse.Namespace) -> Try:
    """Make the coreset and score it."""
    data = load_data(options.data).hold_out(options.holdout)
    store = ExpertStore.open(options.experts)
    watch = Stopwatch(choose_device(options.device), wait=False)
    settings = DistillSettings(**one["settings"])
    coreset = distill(data, store, settings, device=options.device, progress=watch)
    scores = evaluate(
        coreset,
        data,
        protocol=protocol_of(options),
        seeds=options.seeds,
        split="holdout",
        device=options.device,
    )
    row = {**one, "chains": options.seeds} | {k: round(scores.mean(k), 4) for k in SCORES}
    names = watch.figures[0] if watch.figures else {}
    return row | {name: along([f[name] for f in watch.figures]) for name in names}


def along(values: Sequence[float]) -> list[float]:
    """The means over the first, the middle and the last of them."""
    middle = max(0, len(values) // 2 - SPAN // 2)
    parts = (values[:SPAN], values[middle : middle + SPAN], values[-SPAN:])
    return [round(fmean(part), 3) for part in parts]


if __name__ == "__main__":
    exit_with(main)
