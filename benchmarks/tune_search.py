"""How low an NLL `tune` finds in twenty trials, beside Optuna's TPE alone.

    OMP_NUM_THREADS=1 python benchmarks/tune_search.py DIR     (into results/tune/searches.json)

Fashion-MNIST in DIR at half its size: 2,000 training images and 2,000 held out, a small network,
short trials. Both searches are run from several seeds, which also change the experts; the first
trial of a seed is the same in both: CIFAR-10's recipe. What the file has is not measured again.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from optuna.samplers import TPESampler

import pseudocoreset as pc
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.random import seed_for
from pseudocoreset.engine.versions import versions
from pseudocoreset.scale import Task
from pseudocoreset.tuning import driver, sampler
from pseudocoreset.tuning.space import Settings, Space
from pseudocoreset.tuning.trials import Trial
from script import exit_with

OUT = Path(__file__).parent.parent / "results" / "tune" / "searches.json"
HALF = 2000
TRIALS = 20
NET = "convnet:depth=2,width=8"
EXPERTS = {"num": 3, "epochs": 8, "lr": 0.05, "batch": 64}
TRIAL = {"method": "fbpc-isotropic", "ipc": 4, "steps": 24, "chain_epochs": 50}


def tpe_alone(space: Space, trials: Iterable[Trial], seed: int, number: int) -> Settings:
    """Eight trials at random, then TPE over all settings at once.

    Args:
        space: the settings that may be tried
        trials: the trials so far
        seed: the search's seed
        number: which trial is asked for
    """
    if number == 0:
        return space.first()
    chosen_by = TPESampler(n_startup_trials=8, seed=seed_for(seed, "trial", number) % 2**32)
    study = sampler._quiet_study(chosen_by)
    for trial in trials:
        study.add_trial(sampler._told(space, trial))
    asked = study.ask()
    return space.walk(lambda *option: sampler._chosen_anew(asked, {}, [], *option))


SEARCHES = {"tune": sampler.next_settings, "TPE alone": tpe_alone}


def run_search(data: pc.Data, search: str, seed: int) -> dict[str, Any]:
    """What a search found.

    Args:
        data: the data set
        search: which
        seed: of the search and its experts
    """
    driver.next_settings = SEARCHES[search]  # type: ignore[assignment]
    own = {"seed": seed, "device": "cpu", "progress": False}
    with TemporaryDirectory() as folder:
        experts = pc.train_experts(data, NET, f"{folder}/experts", **EXPERTS, **own)
        found = pc.tune(data, experts, out=f"{folder}/tune", trials=TRIALS, **TRIAL, **own)
    return {
        "search": search,
        "seed": seed,
        "first": found.first.nll,
        "lowest": found.best.nll,
        "trial": found.best.number,
        "settings": found.best.settings,
        "nll": [trial.nll for trial in found.trials],
        "versions": versions(),
    }


def small_data(folder: str) -> pc.Data:
    """Some of Fashion-MNIST, at half its size.

    Args:
        folder: where it is
    """
    whole = pc.load_data(f"fashion-mnist:{folder}")
    some = torch.randperm(len(whole.train), generator=torch.Generator().manual_seed(0))[: 2 * HALF]
    images = torch.nn.functional.avg_pool2d(whole.train.inputs.float(), 2).round().byte().numpy()
    targets = whole.train.targets.numpy()
    tests = slice(0, 100)  # nothing is scored on them
    data = pc.from_arrays(
        images[some], targets[some], images[tests], targets[tests], name="fashion-mnist"
    )
    return data.hold_out(HALF)


def main() -> None:
    """Run all searches and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="folder of Fashion-MNIST")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    executor = pc.ProcessExecutor(given.workers)
    data = executor.put(small_data(given.data))
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    known = [(row["search"], row["seed"]) for row in rows]
    pairs = [(search, seed) for seed in range(given.seeds) for search in SEARCHES]
    pairs = [pair for pair in pairs if pair not in known]
    tasks = [Task(f"{search}, {seed}", run_search, (data, search, seed)) for search, seed in pairs]
    for task, row in executor.run(tasks):
        rows.append(row)
        print(f"{task.name}: {row['first']:.4f} -> {row['lowest']:.4f} in trial {row['trial']}")
    rows.sort(key=lambda row: (row["seed"], row["search"]))
    content = {
        "trials": TRIALS,
        "net": NET,
        "experts": EXPERTS,
        "trial": TRIAL,
        "rows": rows,
    }
    write_json(given.out, content)


if __name__ == "__main__":
    exit_with(main)
