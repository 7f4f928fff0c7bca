"""The settings that may be tried come from the fields of the options."""

from dataclasses import dataclass, replace
from math import log
from statistics import fmean

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import pseudocoreset as pc
from pseudocoreset.distillation import DistillOptions, resolve
from pseudocoreset.tuning.sampler import ALONE, REACH, TOGETHER, next_settings
from pseudocoreset.tuning.space import Space
from pseudocoreset.tuning.trials import FINISHED, RUNNING, Trial
from toy_methods import Quadratic

EPOCHS = (0, 3)


def make_space(data, store, method=None, epochs=EPOCHS, **given):
    method = method or pc.FBPC()
    options = DistillOptions(ipc=1, **given)
    job = resolve(data, [store] if store else [], method, options)
    return Space(job, method, options, data, epochs)


def seen(space, **chosen):
    """The distributions of a trial in which these are chosen, and the recipe's otherwise."""
    found, first = {}, space.first()

    def choose(name, distribution):
        found[name] = distribution
        return chosen.get(name, first.get(name, getattr(distribution, "low", None)))

    space.walk(choose)
    return found


def test_values_are_about_the_recipes(data, store):
    space = make_space(data, store, pc.FBPC(lr_map=0.01))
    base = resolve(data, [store], "fbpc", DistillOptions(ipc=1)).recipe.values
    found = seen(space)
    assert found["lr_images"] == FloatDistribution(
        base["lr_images"] / 32, base["lr_images"] * 8, log=True
    )
    assert found["gamma"] == FloatDistribution(base["gamma"] / 2, base["gamma"] * 8, log=True)
    assert found["from_epoch"] == IntDistribution(1, 3)
    assert found["form"] == CategoricalDistribution(["pixels", "mosaic:2", "mosaic:4"])
    assert set(found) <= set(space.names)
    assert "samples" not in found  # whose field says nothing


def test_first_trial_is_what_distill_would_take(data, store):
    space = make_space(data, store)
    job = resolve(data, [store], "fbpc", DistillOptions(ipc=1))
    config = job.config()
    for name, value in space.first().items():
        expected = config[name] if name != "to_epoch" or config[name] is not None else 3
        assert value == expected, name
    assert space.has(space.first())


def test_what_is_given_is_not_searched(data, store):
    found = seen(make_space(data, store, pc.FBPC(gamma=0.3, to_epoch=2), form="pixels"))
    assert not {"gamma", "to_epoch", "form"} & set(found)
    assert found["from_epoch"] == IntDistribution(1, 2)
    found = seen(make_space(data, store, pc.FBPC(from_epoch=2)))
    assert found["to_epoch"] == IntDistribution(2, 3)


def test_last_epoch_is_not_before_the_first(data, store):
    space = make_space(data, store)
    assert seen(space, from_epoch=3)["to_epoch"] == IntDistribution(3, 3)
    assert not space.has({**space.first(), "from_epoch": 3, "to_epoch": 2})


def test_options_of_learned_labels_need_them(data, store):
    space = make_space(data, store)
    assert {"lr_labels", "label_start"} <= set(seen(space, labels="learned"))
    assert not {"lr_labels", "label_start"} & set(seen(space, labels="hard"))
    assert not space.has({**space.first(), "labels": "hard", "lr_labels": 10.0})


def test_forms_must_fit_the_data(data, table, store, table_store):
    one_class_of_20 = seen(make_space(data, store, form="pixels"))
    assert "form" not in one_class_of_20
    options = DistillOptions(ipc=5)
    job = resolve(data, [store], "fbpc", options)
    found = seen(Space(job, pc.FBPC(), options, data, EPOCHS))
    assert found["form"] == CategoricalDistribution(
        ["pixels", "mosaic:2"]
    )  # of 20 points per class
    assert "form" not in seen(make_space(table, table_store))


def test_methods_without_experts_search_nothing_of_theirs(data):
    found = seen(make_space(data, None, pc.VBPC(), None), labels="learned")
    assert {"head_precision", "lr_images"} <= set(found)
    assert "label_start" not in found


@dataclass(frozen=True)
class Own(Quadratic):
    rounds: int = pc.option(6, "how many", at_least=1, search=pc.Around(3))
    kind: str = pc.option("a", "which", choices=("a", "b", "c"), search=pc.Among(("b", "c")))
    reach: float = pc.option(2.0, "how far")


def test_fields_of_a_persons_own_method_are_searched(data):
    found = seen(make_space(data, None, Own(), None))
    assert found["rounds"] == IntDistribution(2, 18, log=True)
    assert found["kind"] == CategoricalDistribution(["b", "c", "a"])
    assert "reach" not in found


@pytest.mark.parametrize(
    "change",
    [{"rounds": 1}, {"rounds": 2.0}, {"kind": "d"}, {"kind": []}, {"more": 1}, {"rounds": None}],
)
def test_settings_that_could_not_have_been_chosen_are_told(data, change):
    space = make_space(data, None, Own(), None)
    assert space.has(space.first())
    assert not space.has({**space.first(), **change})


def test_next_settings_follow_from_the_trials_the_seed_and_the_number(data, store):
    space = make_space(data, store)
    trials = [Trial(n, next_settings(space, [], 0, n), FINISHED, nll=1.0 + n) for n in range(10)]
    assert trials[0].settings == space.first()
    asked = [next_settings(space, trials, 0, 10) for _ in range(2)]
    assert asked[0] == asked[1]
    assert asked[0] == next_settings(space, trials[::-1], 0, 10)
    others = [next_settings(space, trials, 1, 10), next_settings(space, trials, 0, 11)]
    others += [next_settings(space, [replace(trials[1], nll=0.1), *trials[2:], trials[0]], 0, 10)]
    assert asked[0] not in others
    assert all(space.has(found) for found in (*asked, *others))


def test_sampler_learns_what_is_better(data, store):
    """NLL falls with the learning rate: later trials go there."""
    space = make_space(data, store)
    low = seen(space)["lr_images"].low
    first, last = [], []
    for seed in range(5):
        trials = []
        for number in range(24):
            settings = next_settings(space, trials, seed, number)
            trials.append(Trial(number, settings, FINISHED, nll=low / settings["lr_images"]))
        rates = [log(trial.settings["lr_images"]) for trial in trials]
        first, last = [*first, *rates[:8]], [*last, *rates[-8:]]
    assert fmean(last) > fmean(first) + 0.4


def test_options_move_alone_then_together_then_farther_while_it_helps(data, store):
    space = make_space(data, store)
    first = space.first()
    trials = [Trial(0, first, FINISHED, nll=1.0)]
    changes = []
    for number in range(1, ALONE + 1):
        settings = next_settings(space, [], number, number)  # whatever seed and trials are
        moved = {name for name in first if settings.get(name) != first[name]}
        assert len(moved) == 1
        changes.append(moved.pop())
        nll = 0.9 if settings["lr_images"] < first["lr_images"] else 1.1
        nll = 0.8 if settings["gamma"] > first["gamma"] else nll
        trials.append(Trial(number, settings, FINISHED, nll=nll))
    assert set(changes) == set(first)
    assert trials[1].settings["lr_images"] == pytest.approx(first["lr_images"] / 32 ** (1 / 3))
    joined = next_settings(space, trials, 0, ALONE + 1)
    best = {trial.nll: trial.settings for trial in reversed(trials)}
    under_way = [*trials[:-1], replace(trials[-1], state=RUNNING, nll=None)]
    assert next_settings(space, under_way, 0, ALONE + 1) != joined
    helped = [*trials, Trial(ALONE + 1, joined, FINISHED, nll=0.7)]
    farther = next_settings(space, helped, 0, ALONE + 2)
    for name in ("lr_images", "gamma"):
        assert farther[name] / joined[name] == pytest.approx(joined[name] / first[name])
    assert {**farther, **joined} == joined
    worse = [*helped[:-1], replace(helped[-1], nll=0.85)]
    assert next_settings(space, worse, 0, ALONE + 2) not in (joined, farther)
    assert joined == {
        **first,
        "lr_images": best[0.9]["lr_images"],
        "gamma": best[0.8]["gamma"],
    }


def test_later_trials_are_near_the_best_and_new(data, store):
    space = make_space(data, store)
    trials = [Trial(0, space.first(), FINISHED, nll=1.0)]
    for number in range(1, 40):
        best = min(trials, key=lambda trial: trial.nll).settings
        settings = next_settings(space, trials, 0, number)
        assert space.has(settings)
        assert settings not in [trial.settings for trial in trials]
        if number > ALONE + 1:
            kept = [name for name in best if settings.get(name) == best[name]]
            assert len(kept) >= len(best) - max(TOGETHER) - 2  # what labels and epochs bring along
            ratio = settings["lr_images"] / best["lr_images"]
            assert 0.999 / REACH < ratio < 1.001 * REACH
        trials.append(Trial(number, settings, FINISHED, nll=1 + abs(number - 20) / 20))
