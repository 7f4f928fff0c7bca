"""What to try next, by Optuna, from the trials so far and the number of the next.

Nothing is kept between two questions: the answer follows from what is asked alone, so that a search
that was stopped goes on as if it had not been.
"""

from collections.abc import Iterable
from statistics import median
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from pseudocoreset.engine.random import seed_for
from pseudocoreset.tuning.space import Settings, Space
from pseudocoreset.tuning.trials import FINISHED, PRUNED, RUNNING, Trial

AT_RANDOM = 8
"""Trials before the others tell where to look."""
BEFORE_PRUNING = 4
"""Early scores that it takes to stop a trial by them."""


def next_settings(space: Space, trials: Iterable[Trial], seed: int, number: int) -> Settings:
    """The settings of trial `number`: the recipe's in the first, then what the others suggest.

    Args:
        space: the settings that may be tried
        trials: the trials so far, some of them under way
        seed: the search's seed
        number: which trial is asked for
    """
    if number == 0:
        return space.first()
    sampler = TPESampler(
        n_startup_trials=AT_RANDOM, seed=seed_for(seed, "trial", number) % 2**32, constant_liar=True
    )
    study = _quiet_study(sampler)
    for trial in sorted(trials, key=lambda trial: trial.number):
        study.add_trial(_told(space, trial))
    asked = study.ask()
    return space.walk(lambda name, distribution: _suggest(asked, name, distribution))


def worth_going_on(trials: Iterable[Trial]) -> float | None:
    """The early NLL above which a trial is stopped: the median of those so far.

    Args:
        trials: the trials so far
    """
    early = [trial.early_nll for trial in trials if trial.early_nll is not None]
    return median(early) if len(early) >= BEFORE_PRUNING else None


def _quiet_study(sampler: TPESampler) -> optuna.Study:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(sampler=sampler)
    finally:
        optuna.logging.set_verbosity(before)


def _told(space: Space, trial: Trial) -> FrozenTrial:
    """A trial as Optuna knows it; one that diverged is the worst of those that were stopped."""
    distributions: dict[str, BaseDistribution] = {}

    def again(name: str, distribution: BaseDistribution) -> Any:
        distributions[name] = distribution
        return trial.settings[name]

    space.walk(again)
    states = {FINISHED: TrialState.COMPLETE, RUNNING: TrialState.RUNNING}
    return create_trial(
        state=states.get(trial.state, TrialState.PRUNED),
        value=trial.nll if trial.state == FINISHED else None,
        params=trial.settings,
        distributions=distributions,
        intermediate_values={1: trial.early_nll}
        if trial.state == PRUNED and trial.early_nll is not None
        else None,
    )


def _suggest(asked: optuna.Trial, name: str, distribution: BaseDistribution) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return asked.suggest_categorical(name, distribution.choices)
    if isinstance(distribution, IntDistribution):
        return asked.suggest_int(name, distribution.low, distribution.high, log=distribution.log)
    assert isinstance(distribution, FloatDistribution)
    return asked.suggest_float(name, distribution.low, distribution.high, log=distribution.log)
