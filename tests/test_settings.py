"""Which settings a method takes, and what becomes of the others."""

from dataclasses import asdict, fields, replace

import pytest
import torch

from pseudocoreset import DistillSettings, UserError, distill, recipes
from pseudocoreset.divergences import METHODS, MethodSettings, make_divergence
from pseudocoreset.experts import ExpertStore
from pseudocoreset.recipes import Recipe
from pseudocoreset.run_folder import read_config
from pseudocoreset.settings import OF_UPDATES, USED_BY, used_settings
from small_world import NET, make_context, make_points, make_rng, make_store

OTHER = {
    "samples": 7,
    "from_epoch": 2,
    "to_epoch": 2,
    "gamma": 1.0,
    "lr_map": 0.003,
    "max_map_steps": 10,
    "draws": 2,
    "lr_x": 0.3,
    "lr_u": 0.3,
    "covariance_steps": 5,
    "real_batch": 8,
    "start_epochs": 1,
    "student_steps": 3,
    "lr_student": 0.2,
    "expert_epochs": 2,
    "noise": 0.1,
    "group": 5,
    "likelihood_batch": 9,
    "weight_x": 2.0,
    "weight_u": 2.0,
    "lr_lr": 0.1,
}
"""Another value of each setting, which a gradient is to follow."""

START = {"start_epochs": 2, "gamma": 0.3}


def some_updates(name, store, data, **changes):
    """The gradients of a few updates, of which each goes on with what the one before kept."""
    method = make_divergence(name, [make_context(store, data, **changes)])
    state, found = method.start(), []
    for seed in range(3):
        estimate = method.gradient(make_points(data), state, make_rng(seed))
        state = estimate.state
        found.append(estimate.gradients["images"])
    return torch.stack(found)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_follows_the_settings_it_is_said_to_use_and_no_other(name, store, data):
    usual = some_updates(name, store, data, **START)
    used = {option for option, methods in USED_BY.items() if name in methods}
    unused = {option: OTHER[option] for option in USED_BY.keys() - used}
    assert torch.equal(some_updates(name, store, data, **START | unused), usual)
    for option in used - {"group"}:  # which is a matter of memory alone
        changed = some_updates(name, store, data, **START | {option: OTHER[option]})
        assert not torch.allclose(changed, usual, rtol=1e-4), option


def test_every_setting_of_a_method_can_be_given():
    given = {field.name for field in fields(DistillSettings)}
    figures = {field.name for field in fields(Recipe)}
    assert {field.name for field in fields(MethodSettings)} <= figures <= given
    assert USED_BY.keys() == OTHER.keys() == figures - set(OF_UPDATES)
    nothing = asdict(DistillSettings())
    assert all(nothing[name] is None for name in figures)


@pytest.mark.parametrize("method", ["random", *METHODS])
def test_settings_of_another_method_are_refused(method, data, store):
    for name, methods in USED_BY.items():
        settings = DistillSettings(method, **{name: OTHER[name]})
        option = "--" + name.replace("_", "-")
        if method in methods:
            assert settings.resolved(data, [store])[name] == OTHER[name]
            continue
        with pytest.raises(UserError) as refused:
            settings.resolved(data, [store])
        says = f"{option} is an option of {', '.join(methods)} and has no use in {method}: leave"
        assert str(refused.value).startswith(says)


def test_a_method_of_ones_own_may_use_any(data):
    config = DistillSettings("toy_methods:Quadratic", **OTHER).resolved(data, [])
    assert used_settings(config).items() >= OTHER.items()


@pytest.mark.parametrize(
    ("method", "changes", "says"),
    [
        ("bpc-fkl", {"noise": 0.0}, "--noise 0.0 is not positive"),
        ("bpc-fkl", {"noise": float("nan")}, "--noise nan is not positive"),
        ("bpc-fkl", {"group": 0}, "--group 0 is too small: give 1 or more"),
        ("bpc-fkl", {"start_epochs": 0}, "--start-epochs 0 is too small"),
        ("bpc-fkl", {"start_epochs": 9}, "epochs 0 to 9 are needed: .* --start-epochs"),
        ("bpc-fkl", {"student_steps": 0}, "--student-steps 0 is too small"),
        ("bpc-fkl", {"lr_student": -1.0}, "--lr-student -1.0 is not positive"),
        ("bpc-fkl", {"expert_epochs": 0}, "--expert-epochs 0 is too small"),
        ("bpc-w", {"lr_lr": -1e-5}, "--lr-lr -1e-05 is out of range: give 0 or more"),
        ("bpc-w", {"lr_lr": float("inf")}, "--lr-lr inf is out of range"),
        ("bpc-rkl", {"likelihood_batch": 0}, "--likelihood-batch 0 is too small"),
        ("bpc-rkl", {"weight_x": 0.0}, "--weight-x 0.0 is not positive"),
        ("bpc-rkl", {"weight_u": float("inf")}, "--weight-u inf is not positive"),
        ("bpc-rkl", {"samples": 1}, "--samples 1 has no covariance"),
        ("fbpc", {"draws": 0}, "--draws 0 is too small"),
        ("fbpc", {"recipe": "best"}, "no recipe is called 'best'"),
        ("fbpc", {"average": 1.5}, r"--average 1.5 is not in \[0, 1\]"),
        ("fbpc", {"lr_labels": 1.0}, "--lr-labels has no use without --learn-labels"),
        ("random", {"steps": 7}, "--steps is an option of fbpc, .* and has no use in random"),
        ("random", {"average": 0.5}, "--average is an option of fbpc"),
        ("random", {"learn_labels": True}, "--learn-labels is an option of .* no use in random"),
    ],
)
def test_values_out_of_range_are_refused(method, changes, says, data, store):
    with pytest.raises(UserError, match=says):
        distill(data, store, DistillSettings(method, 1, **changes), device="cpu")


def test_a_learning_rate_for_a_sum_is_brought_to_the_mean(data):
    def lr_of(**given):
        return DistillSettings("bpc-rkl", **given).resolved(data, [])["lr_images"]

    assert lr_of(ipc=4) == 1000 * 4 * data.classes
    assert lr_of(ipc=4, batch=6) == 1000 * 6
    assert lr_of(ipc=4, lr_images=7.0) == 7.0
    assert DistillSettings("bpc-fkl", 4).resolved(data, [])["lr_images"] == 1000


def test_a_recipe_may_learn_labels_and_a_person_may_not(data, monkeypatch):
    learned = {("cifar10", 10, "fbpc"): {"learn_labels": True, "lr_labels": 2.0}}
    monkeypatch.setattr(recipes, "TUNED", learned)
    told = DistillSettings(recipe="tuned").resolved(data, [])
    assert (told["learn_labels"], told["lr_labels"]) == (True, 2.0)
    for fixed in (DistillSettings(recipe="tuned", learn_labels=False), DistillSettings()):
        assert not fixed.resolved(data, [])["learn_labels"]


def test_students_start_where_the_experts_allow(data, store, tmp_path):
    """Three epochs, of which one or two must be left after the start."""
    short = make_store(tmp_path, data, f"{NET},norm=none", epochs=1)
    for method, ipc, stores, expected in [
        ("bpc-fkl", 10, [store], 3),
        ("bpc-fkl", 1, [store], 2),  # as Kim et al. have it
        ("bpc-w", 1, [store], 2),
        ("bpc-fkl", 10, [store, short], 1),
        ("bpc-fkl", 10, [], 20),
        ("bpc-rkl", 10, [store], 4),  # which follows no expert: every epoch will do
    ]:
        config = DistillSettings(method, ipc).resolved(data, stores)
        assert config["start_epochs"] == expected, (method, ipc)
    with pytest.raises(UserError, match="holds epochs 0 to 1 and epochs 0 to 2 are needed"):
        distill(data, short, DistillSettings("bpc-w", 1), device="cpu")


def test_a_run_tells_the_settings_it_used(data, store, tmp_path):
    settings = DistillSettings("bpc-rkl", 1, "tuned", steps=1, student_steps=2)
    coreset = distill(data, store, settings, out=tmp_path, device="cpu")
    config = read_config(tmp_path)
    assert config["recipe"] == "tuned"
    assert (config["samples"], config["student_steps"], config["noise"]) == (10, 2, 0.01)
    assert not {"gamma", "lr_x", "draws", "lr_lr"} & config.keys()
    assert coreset.provenance.config.items() <= config.items()
    # Another recipe is another run.
    with pytest.raises(UserError, match="holds a run with recipe tuned, not paper"):
        distill(data, store, replace(settings, recipe="paper"), out=tmp_path, device="cpu")


def test_experts_of_different_augmentation_want_a_word(store, data):
    stores = [store, ExpertStore(store.path, replace(store.identity, dsa="off"))]
    assert DistillSettings(ipc=2).resolved(data, [store, store])["dsa"] == "color,crop"
    with pytest.raises(UserError, match=r"augmentation \(color,crop and off\): give --dsa"):
        DistillSettings(ipc=2).resolved(data, stores)
    assert DistillSettings(ipc=2, dsa="crop").resolved(data, stores)["dsa"] == "crop"
