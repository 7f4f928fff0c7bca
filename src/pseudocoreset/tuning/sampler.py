"""Choose the settings of the next trial.

Twenty trials can't cover all settings. So each option of the recipe is moved alone at first, what
helped is put together and taken farther, and then a few options at a time of the best trial are
chosen again by Optuna.

Nothing is kept between two questions: the answer follows from what is asked alone, so that a search
that was stopped goes on as if it had not been.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import zip_longest
from random import Random
from statistics import quantiles
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
from pseudocoreset.tuning.space import Settings, Space, nearest
from pseudocoreset.tuning.trials import FINISHED, PRUNED, RUNNING, Trial

ALONE = 8
"""Trials that move one option of the recipe."""
PART = 1 / 3
"""How far: a part of the way to its bound."""
TOGETHER = (1, 2, 3)
"""How many options of the best trial are chosen again: one of these."""
REACH = 4.0
"""How many times smaller or larger a number may get then."""
TRIES = 20
"""At settings that no trial had yet."""
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
    planned = [space.first(), *_moved_alone(space)]
    if number < len(planned):
        return planned[number]
    known = sorted(trials, key=lambda trial: trial.number)
    joined = _joined(space, known, len(planned))
    return joined or _from_best(space, known, seed_for(seed, "trial", number))


def worth_going_on(trials: Iterable[Trial]) -> float | None:
    """The early NLL above which a trial is stopped: that of the worst quarter so far.

    Small steps are slow at first and better in the end, so that a trial is not stopped for less.

    Args:
        trials: the trials so far
    """
    early = [trial.early_nll for trial in trials if trial.early_nll is not None]
    return quantiles(early, n=4)[2] if len(early) >= BEFORE_PRUNING else None


def _moved_alone(space: Space) -> list[Settings]:
    """The recipe's settings with one option moved: numbers, then texts, then the other way."""
    first, kinds = space.first(), dict[str, BaseDistribution]()

    def look(name: str, distribution: BaseDistribution) -> Any:
        kinds[name] = distribution
        return first[name]

    space.walk(look)
    names = sorted(kinds, key=lambda name: isinstance(kinds[name], CategoricalDistribution))
    moves = [[(name, value) for value in _moves(kinds[name], first[name])] for name in names]
    found = list[Settings]()
    for turn in zip_longest(*moves):
        for name, value in filter(None, turn):
            settings = space.near({**first, name: value})
            if settings not in (first, *found):
                found.append(settings)
    return found[:ALONE]


def _moves(distribution: BaseDistribution, value: Any) -> Iterator[Any]:
    """Where an option may be moved alone; first the way on which its bound is farther."""
    if isinstance(distribution, CategoricalDistribution):
        yield from (choice for choice in distribution.choices if choice != value)
        return
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    bounds = [distribution.low, distribution.high]
    if distribution.log:
        bounds.sort(key=lambda bound: -max(bound / value, value / bound))
        found = [value * (bound / value) ** PART for bound in bounds]
    else:
        bounds.sort(key=lambda bound: -abs(bound - value))
        found = [value + (bound - value) * PART for bound in bounds]
    yield from map(round, found) if isinstance(distribution, IntDistribution) else found


def _joined(space: Space, trials: list[Trial], planned: int) -> Settings | None:
    """All moves that made the recipe better, at once; then farther, as long as it helps.

    None while some moves are under way, and when this helps no more.
    """
    alone, first = trials[:planned], space.first()
    if any(trial.state == RUNNING for trial in alone) or not alone or alone[0].nll is None:
        return None
    lowest = alone[0].nll
    moves = Settings()
    for trial in sorted(alone, key=lambda trial: trial.nll or 0.0, reverse=True):
        if trial.nll is not None and trial.nll < lowest:  # the better of two moves comes last
            moves |= {name: v for name, v in trial.settings.items() if first.get(name) != v}
    lowest = min(trial.nll for trial in alone if trial.nll is not None)
    for times in range(1, round(1 / PART) + 1):
        far = {name: _farther(first.get(name), value, times) for name, value in moves.items()}
        settings = space.near({**first, **far})
        tried = next((trial for trial in trials if trial.settings == settings), None)
        if tried is None:
            return settings
        if tried.nll is None or tried.nll > lowest:
            break
        lowest = tried.nll
    return None


def _farther(first: Any, value: Any, times: int) -> Any:
    """A move this many times as far; a text is what it is."""
    if isinstance(value, float) and first:
        return float(first * (value / first) ** times)
    return first + (value - first) * times if isinstance(value, int) and first else value


def _from_best(space: Space, trials: list[Trial], seed: int) -> Settings:
    """The settings of the best trial, a few of them chosen again by Optuna's TPE."""
    told = [trial for trial in trials if trial.nll is not None]
    best = min(told, key=lambda trial: trial.nll or 0.0).settings if told else space.first()
    sampler = TPESampler(
        n_startup_trials=1, seed=seed % 2**32, constant_liar=True, multivariate=False
    )
    study, random = _quiet_study(sampler), Random(seed)
    for trial in trials:
        study.add_trial(_told(space, trial))
    for _ in range(TRIES):
        anew = random.sample(sorted(best), min(random.choice(TOGETHER), len(best)))
        found = space.walk(partial(_chosen_anew, study.ask(), best, anew))
        if all(found != trial.settings for trial in trials):
            break
    return found


def _chosen_anew(
    asked: optuna.Trial, best: Settings, anew: list[str], name: str, distribution: BaseDistribution
) -> Any:
    """The best trial's value of an option, or one near it where it is chosen again."""
    if name in best and name not in anew:
        return nearest(distribution, best[name])
    if isinstance(distribution, CategoricalDistribution):
        return asked.suggest_categorical(name, distribution.choices)
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high = distribution.low, distribution.high
    if distribution.log and name in best:
        low, high = max(low, best[name] / REACH), min(high, best[name] * REACH)
    if isinstance(distribution, IntDistribution):
        return asked.suggest_int(name, round(low), round(high), log=distribution.log)
    return asked.suggest_float(name, low, high, log=distribution.log)


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
