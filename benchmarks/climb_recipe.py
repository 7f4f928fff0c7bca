"""Improve settings one at a time on held-out training images.

    pseudocoreset experts --data cifar10:DIR --holdout 5000 --num 15 --epochs 30 --out experts
    python benchmarks/climb_recipe.py plan.json --data cifar10:DIR --experts experts \
        --seconds 300 --out climb.json

`plan.json` has settings to begin with, and changes to try in turn:

    {"base": {"method": "fbpc-isotropic", "ipc": 10, "form": "mosaic:2", "sampler_prior": 0.3},
     "tries": [{"form": "chroma:2"}, {"gamma": 0.2}, {"sampler_schedule": "cosine"}]}

Settings that begin with `sampler_` are the sampler's, `sampler_name` says which it is. `init` may
be `previous`: the best coreset so far.
A change that lowers the NLL of a chain is kept; with `"always": true` it is kept whatever it does,
and with `"with": {...}` it comes with others. No try is begun after `--seconds`, but for the change
`"final": {...}`, which is made at the end and kept, such as more updates. The file has a row for
each, with its scores by one network, one chain and all chains pooled, on held-out images alone.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data, load_data
from pseudocoreset.distillation import run
from pseudocoreset.engine.device import choose_device, device_name
from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.versions import versions
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.experts import ExpertStore
from pseudocoreset.plan.measure import Stopwatch
from pseudocoreset.posterior import named_sampler, sampler_class
from script import exit_with, job_of

PREFIX, SHARPNESS = "sampler_", "label_temperature"
SCORES = ("accuracy", "nll", "ece")
LAST = 50
Settings = dict[str, Any]


class Climb:
    """The best settings so far, and all that was tried."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.data: Data = load_data(options.data).hold_out(options.holdout)
        self.store = ExpertStore.open(options.experts)
        self.coresets: dict[str, tuple[Pseudocoreset, float, Settings]] = {}
        self.rows: list[Settings] = []
        self.best: tuple[float, Settings] = (float("inf"), {})

    def go(self, plan: Settings) -> None:
        """The base, then each change on top of the best so far."""
        began = monotonic()
        self.attempt(plan["base"], {}, always=True)
        for change in plan["tries"]:
            if monotonic() - began > self.options.seconds:
                break
            changes = {k: v for k, v in change.items() if k not in ("always", "with")}
            changes |= change.get("with", {})
            try:
                self.attempt({**self.best[1], **changes}, changes, always="always" in change)
            except Exception as error:  # the next try may do
                self.keep({"changes": changes, "failed": repr(error)[:500]})
        if "final" in plan:
            self.attempt({**self.best[1], **plan["final"]}, plan["final"], always=True)

    def attempt(self, settings: Settings, changes: Settings, *, always: bool) -> None:
        """Make the coreset, unless it was made before; score it; keep what is better."""
        settings = {k: v for k, v in settings.items() if v is not None}
        making = _making(settings)
        name = json.dumps(making, sort_keys=True)
        if name not in self.coresets:
            began, watch = monotonic(), Stopwatch(choose_device(self.options.device), wait=False)
            made = self._made(making, watch)
            self.coresets[name] = (made, monotonic() - began, _figures(watch))
        coreset, seconds, figures = self.coresets[name]
        coreset = _sharpened(coreset, settings.get(SHARPNESS, 1.0))
        began = monotonic()
        row: Settings = {"changes": changes, "settings": settings, "distill_s": round(seconds, 1)}
        row |= {"figures": figures, "scores": self._scores(coreset, settings)}
        row |= {"score_s": round(monotonic() - began, 1)}
        nll = row["scores"]["chain"]["nll"]
        row["kept"] = always or nll < self.best[0]
        if row["kept"]:
            self.best = (nll, settings)
            if self.options.keep is not None:
                coreset.save(self.options.keep, half=True)
        self.keep(row)

    def _made(self, making: Settings, watch: Stopwatch) -> Pseudocoreset:
        start = None
        if making.get("init") == "previous":
            making = {k: v for k, v in making.items() if k != "init"}
            start = self.coresets[json.dumps(_making(self.best[1]), sort_keys=True)][0]
        job = job_of(making, self.data, [self.store], start=start)
        stores = [self.store] if job.method.needs_experts or _asks_experts(making) else []
        nets = [] if stores else [self.store.identity.net]
        return run(job, self.data, stores, nets=nets, device=self.options.device, progress=watch)

    def _scores(self, coreset: Pseudocoreset, settings: Settings) -> Settings:
        changes = {k.removeprefix(PREFIX): v for k, v in settings.items() if k.startswith(PREFIX)}
        kind = sampler_class(changes.pop("name", "sghmc"))
        found = evaluate(
            coreset,
            self.data,
            named_sampler("tuned", kind(**changes)),
            seeds=self.options.seeds,
            split="holdout",
            device=self.options.device,
            progress=False,
        ).as_json()
        parts = {"single": found["single"], "chain": found, "pooled": found["pooled"]}
        scores = {
            name: {score: round(part[score], 4) for score in SCORES} for name, part in parts.items()
        }
        return {**scores, "pooled_temperature": round(found["pooled_temperature"], 3)}

    def keep(self, row: Settings) -> None:
        """Write all rows, and print this one."""
        self.rows.append(row)
        store = self.store
        content = {
            "experts": f"{len(store)} of {store.last_epoch} epochs",
            "holdout": self.options.holdout,
            "seeds": self.options.seeds,
            "device": device_name(choose_device(self.options.device)),
            "versions": versions(),
            "rows": self.rows,
        }
        write_json(self.options.out, content)
        shown = row.get("scores", row.get("failed"))
        taken = f"{row.get('distill_s')} + {row.get('score_s')} s"
        steps = row.get("figures", {}).get("map_steps")
        print(
            self.options.out.stem, row["changes"], shown, row.get("kept"), taken, steps, flush=True
        )


def _making(settings: Settings) -> Settings:
    """What a coreset is made by; its labels are made sharper at the end."""
    return {k: v for k, v in settings.items() if not k.startswith(PREFIX) and k != SHARPNESS}


def _sharpened(coreset: Pseudocoreset, temperature: float) -> Pseudocoreset:
    if not coreset.targets.is_floating_point() or temperature == 1:
        return coreset
    return replace(coreset, targets=(coreset.targets.log() / temperature).softmax(1))


def _figures(watch: Stopwatch) -> Settings:
    """The means of what the method told of its updates, over the last of them."""
    late = watch.figures[-LAST:]
    return (
        {name: float(f"{fmean(one[name] for one in late):.3g}") for name in late[0]} if late else {}
    )


def _asks_experts(making: Settings) -> bool:
    return "experts" in (making.get("labels"), making.get("label_start"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("--data", required=True, help="a data spec")
    parser.add_argument("--holdout", type=int, default=5000, help="as the experts were trained")
    parser.add_argument("--experts", type=Path, required=True, help="a store of such experts")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seeds", type=int, default=2, help="chains a coreset")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--keep", type=Path, help="keep the best coreset in this file")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    Climb(options).go(json.loads(options.plan.read_text(encoding="utf-8")))


if __name__ == "__main__":
    exit_with(main)
