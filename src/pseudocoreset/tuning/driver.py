"""Run the trials of a search and write the best settings as a recipe."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from pseudocoreset.data import Data
from pseudocoreset.distillation import DistillOptions, Job, check_stores, resolve
from pseudocoreset.engine.device import DeviceLike
from pseudocoreset.engine.files import refuse_unwritable, write_text
from pseudocoreset.engine.progress import ProgressLike, progress_of
from pseudocoreset.engine.text import printable
from pseudocoreset.engine.versions import refuse_other, versions
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertOptions, ExpertStore, train_experts
from pseudocoreset.methods import Method, method_name
from pseudocoreset.nets import NetLike, default_net, make_net
from pseudocoreset.plan.estimate import plan_experts
from pseudocoreset.plan.share import sharing_as_planned
from pseudocoreset.posterior import sampler_name
from pseudocoreset.run_folder import RunFolder
from pseudocoreset.scale import Executor, SerialExecutor, Task
from pseudocoreset.tuning.attempt import Scoring, attempt
from pseudocoreset.tuning.cost import plan_tune
from pseudocoreset.tuning.first_trial import (
    TuneOptions,
    first_job,
    trains_experts,
    trial_steps,
)
from pseudocoreset.tuning.sampler import next_settings, worth_going_on
from pseudocoreset.tuning.space import Settings, Space
from pseudocoreset.tuning.trials import FAILED, RUNNING, Trial, Trials

GPU_SHARE = 0.25
"""Of a GPU that a trial declares at least."""
NOT_OF_A_RECIPE = ("ipc", "checkpoint_every")


@dataclass(frozen=True)
class Tuned:
    """The result of a search."""

    recipe: Path
    """The path of the recipe, for `distill(..., recipe=...)`."""
    best: Trial
    trials: list[Trial]

    @property
    def first(self) -> Trial:
        """The first trial, with the default settings of `distill`."""
        return self.trials[0]

    def __repr__(self) -> str:
        before = "" if self.first.nll is None else f", {self.first.nll:.4f} before"
        count = f"{len(self.trials)} trials"
        return f"Tuned({str(self.recipe)!r}, {count}, nll {self.best.nll:.4f}{before})"


def search(
    data: Data,
    stores: Sequence[ExpertStore],
    method: Method,
    options: DistillOptions,
    how: TuneOptions,
    *,
    recipe: str,
    nets: Sequence[NetLike],
    out: Path,
    executor: Executor | None,
    seed: int,
    device: DeviceLike,
    other_versions: bool,
    progress: ProgressLike,
) -> Tuned:
    """The same as `tune`, with its options in objects.

    Args:
        data: the data set, with held-out points
        stores: the experts; none: they are trained where the method needs them
        method: the method
        options: the options of the loop; those that are given are not searched
        how: how long the search is
        recipe: what to begin with
        nets: the network, if no experts are given
        out: folder of the search
        executor: what runs the trials; None: this process
        seed: seed of all randomness
        device: where they run
        other_versions: resume a search that another device or version began
        progress: whether to show a progress bar
    """
    how.check()
    refuse_unwritable(out)
    if not method.makes_updates:
        raise UserError(f"{method_name(method)} has no settings to search.", "method")
    if method.along_sum and "lr_images" in options.given:
        raise UserError(
            f"`lr_images` of {method_name(method)} is searched: leave it out.", "lr_images"
        )
    stores = list(stores)
    if trains_experts(stores, method, how, nets):
        first_job(data, stores, method, options, recipe)  # what it refuses is refused at once
        net = next(iter(nets), None) or default_net(data.input_shape)
        one = ExpertOptions(num=1, epochs=how.epochs)
        stores = [
            train_experts(
                data,
                net,
                out / "experts",
                num=how.num,
                epochs=how.epochs,
                seed=seed,
                device=device,
                executor=sharing_as_planned(executor, device, plan_experts, data, net, one),
                other_versions=other_versions,
                progress=progress,
            )
        ]
        nets = []
    check_stores(stores, data)
    planned = partial(plan_tune, recipe=recipe, nets=nets, device="cuda")
    runs = sharing_as_planned(executor, device, planned, data, stores, method, options, how)
    looked = _Search(data, stores, list(nets), method, options, how, recipe, seed)
    return looked.go(out, runs or SerialExecutor(), device, other_versions, progress)


class _Search:
    """A search under way."""

    def __init__(
        self,
        data: Data,
        stores: list[ExpertStore],
        nets: list[NetLike],
        method: Method,
        options: DistillOptions,
        how: TuneOptions,
        recipe: str,
        seed: int,
    ) -> None:
        self._data, self._stores, self._nets = data, stores, nets
        self._how, self._seed = how, seed
        self._job = resolve(data, stores, method, options, recipe)
        given = {name: getattr(o, name) for o in (options, method) for name in o.given}
        kept = {name: value for name, value in given.items() if name not in NOT_OF_A_RECIPE}
        self._values = {**self._job.recipe.values, **kept}
        self._updates = self._job.options.steps
        """Of a coreset made by the recipe that is found."""
        self._values["steps"] = trial_steps(self._job, options)
        spans = [(store.first_epoch, store.last_epoch) for store in stores]
        epochs = (max(a for a, _ in spans), min(b for _, b in spans)) if spans else None
        self._space = Space(self._job, method, options, data, epochs)

    def go(
        self,
        out: Path,
        runs: Executor,
        device: DeviceLike,
        other_versions: bool,
        progress: ProgressLike,
    ) -> Tuned:
        """Run the trials that are left, and write the recipe."""
        folder = RunFolder(out, self._config())
        with folder.alone():
            trials = Trials(out / "trials.json", self._facts(runs, device))
            for trial in trials:
                if not self._space.has(trial.settings):
                    raise UserError(
                        f"{out / 'trials.json'} has a trial {trial.number} with settings that "
                        "are not searched here: give another `out`.",
                        "out",
                    )
            left = len(trials.all()) < self._how.trials or trials.in_state(RUNNING)
            if left and not other_versions:
                for trial in trials:
                    refuse_other(trial.made_with, runs.device(device), out)
            self._run(trials, runs, device, progress)
            best = trials.best()
            if best is None:
                why = [trial.failed for trial in trials.in_state(FAILED)]
                raise UserError(f"no trial gave a score: {why[0]}")
            path = out / "recipe.yaml"
            write_text(path, self._recipe_text(best, trials))
        return Tuned(path, best, trials.all())

    def _run(
        self, trials: Trials, runs: Executor, device: DeviceLike, progress: ProgressLike
    ) -> None:
        ended = sum(trial.state != RUNNING for trial in trials)
        total = max(self._how.trials, len(trials.all()))
        if ended == total:
            return
        with progress_of(progress).task("trials", total, ended) as task:
            for done, found in runs.run(self._tasks(trials, runs, device)):
                number = int(done.name.rpartition(" ")[2])
                asked = next(trial for trial in trials if trial.number == number)
                trials.put(replace(asked, **found))
                best = trials.best()
                figures = {"nll": found.get("nll"), "best": best and best.nll}
                task.advance(**{k: v for k, v in figures.items() if v is not None})

    def _tasks(self, trials: Trials, runs: Executor, device: DeviceLike) -> Iterator[Task]:
        """Trials that were under way when the search was stopped; then new ones."""
        begun = time.monotonic()
        data = runs.put(self._data)
        place = runs.device(device)
        scoring = Scoring(self._how.chain_epochs, self._how.seeds, self._seed, str(place))
        # A task with a share sees one GPU alone, so that one that was chosen by number has none.
        share = GPU_SHARE if place == torch.device("cuda") else 0.0

        def task(trial: Trial) -> Task:
            job, bound = self._job_of(trial.settings), worth_going_on(trials)
            given = (job, data, self._stores, self._nets, scoring, bound)
            return Task(f"trial {trial.number}", attempt, given, share)

        for trial in trials.in_state(RUNNING):
            yield task(trial)
        limit = self._how.seconds
        while (number := len(trials.all())) < self._how.trials:
            if limit is not None and number and time.monotonic() - begun > limit:
                return
            trial = Trial(number, next_settings(self._space, trials, self._seed, number))
            trials.put(trial)
            yield task(trial)

    def _job_of(self, settings: Settings) -> Job:
        """The job that `distill` would do by a recipe of these settings."""
        found = replace(self._job.recipe, values={**self._values, **settings})
        options = DistillOptions(ipc=self._job.options.ipc)
        return resolve(self._data, self._stores, type(self._job.method)(), options, found)

    def _config(self) -> dict[str, Any]:
        """What a search is; another one is refused by name in its folder."""
        data, how = self._data, self._how
        return {
            **self._job_of(self._space.first()).config(),
            "data": data.name,
            "data_fingerprint": data.fingerprint,
            "holdout": len(data.holdout or ()),
            "seed": self._seed,
            "seeds": how.seeds,
            "chain_epochs": how.chain_epochs,
            "searched": self._space.names,
            "nets": [make_net(net, **data.shape).spec for net in self._nets],
            "experts": [store.fingerprint for store in self._stores],
        }

    def _facts(self, runs: Executor, device: DeviceLike) -> dict[str, Any]:
        """What the table of trials says besides them."""
        sampler = Scoring(self._how.chain_epochs, self._how.seeds, self._seed, device).sampler()
        return {
            "settings": self._config(),
            "recipe": {"from": self._job.recipe.data, "section": self._job.recipe.section},
            "protocol": {"sampler": sampler_name(sampler), **sampler.as_dict(), "split": "holdout"},
            "device": runs.device(device).type,
            "versions": versions(),
        }

    def _recipe_text(self, best: Trial, trials: Trials) -> str:
        """The best settings as a recipe's file has them."""
        options, first = self._job.options, trials.all()[0]
        values: Mapping[str, Any] = {**self._values, **best.settings, "steps": self._updates}
        content = {"best": {method_name(self._job.method): dict(values)}}
        recipe = f"{printable(self._job.recipe.data)} ({self._job.recipe.section})"
        before = f"{first.nll:.4f}" if first.nll is not None else "no score"
        lines = [
            f"{printable(self._data.name)}, {options.ipc} per class: trial {best.number} of "
            f"{len(trials.all())} by `pseudocoreset tune`, seed {self._seed}.",
            f"NLL on {len(self._data.holdout or ()):,} held-out training points after "
            f"{self._values['steps']} updates: {best.nll:.4f}.",
            f"The recipe of {recipe}: {before}.",
        ]
        head = "".join(f"# {line}\n" for line in lines)
        return head + yaml.safe_dump(content, sort_keys=False)
