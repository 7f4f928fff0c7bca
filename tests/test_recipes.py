"""The shipped recipes against the paper's table, copied as it is printed."""

import re

import pytest
import torch

from pseudocoreset import FBPC, UserError
from pseudocoreset.data import load_data
from pseudocoreset.distillation import DistillOptions, resolve
from pseudocoreset.forms import parse_form
from pseudocoreset.methods import METHODS
from pseudocoreset.recipes import FALLBACKS, _shipped, recipe_for, recipe_sizes

TABLE = r"""
\multirow{3}{*}{CIFAR10}       & 1   & 1   & 0.01     & 0.05          & 0.01          & 1000 & 100      & 10   \\
                               & 10  & 2   & 0.1      & 0.05          & 0.01          & 1000 & 1000     & 100  \\
                               & 50  & 10  & 0.2      & 0.05          & 0.01          & 1000 & 1000     & 500  \\ \midrule
\multirow{3}{*}{CIFAR100}      & 1   & 2   & 0.1      & 0.1           & 0.1           & 5000 & 1000     & 100  \\
                               & 10  & 40  & 0.1      & 0.1           & 0.1           & 5000 & 1000     & 1000 \\
                               & 50  & 20  & 0.2      & 0.01          & 0.01          & 300  & 1000     & 5000 \\ \midrule
\multirow{3}{*}{Tiny-ImageNet} & 1   & 2   & 0.1      & 0.1           & 3             & 5000 & 1000     & 100  \\
                               & 10  & 40  & 1        & 0.1           & 3             & 500  & 1000     & 100  \\
                               & 50  & 40  & 1        & 0.1           & 3             & 500  & 1000     & 100  \\ \bottomrule
"""  # noqa: E501
NAMES = {"CIFAR10": "cifar10", "CIFAR100": "cifar100", "Tiny-ImageNet": "tiny-imagenet"}


def printed():
    """(data, ipc): T, γ, λ_x, λ_u, N, α, B."""
    rows, data = {}, ""
    for line in TABLE.strip().splitlines():
        head, *cells = line.split(r"\\")[0].split("&")
        named = re.search(r"\{([^{}]*)\}\s*$", head)
        data = NAMES[named[1]] if named else data
        ipc, *values = (float(cell) for cell in cells)
        rows[data, int(ipc)] = tuple(values)
    return rows


COLUMNS = ("from_epoch", "gamma", "lr_x", "lr_u", "steps", "lr_images", "batch")


def complete(data, ipc, method="fbpc", recipe="paper", **more):
    """All options of a recipe, with the defaults of the fields where it says nothing."""
    found = recipe_for(data, ipc, method, recipe, **more).values
    return {**DistillOptions().as_dict(), **METHODS[method]().as_dict(), **found}


def test_recipes_are_the_papers_table():
    rows = printed()
    assert len(rows) == 9
    for (data, ipc), row in rows.items():
        found = complete(data, ipc)
        assert tuple(found[name] for name in COLUMNS) == row
        assert recipe_for(data, ipc, "fbpc", "paper").section == "paper"


@pytest.mark.parametrize(
    ("data", "ipc", "kind", "found"),
    [
        ("cifar10", 10, "images", ("cifar10", 10)),
        ("cifar100", 50, "images", ("cifar100", 50)),
        ("cifar10", 3, "images", ("cifar10", 1)),  # nearer in ratio: 3 against 3.3
        ("cifar10", 4, "images", ("cifar10", 10)),
        ("cifar10", 20, "images", ("cifar10", 10)),
        ("cifar10", 30, "images", ("cifar10", 50)),
        ("cifar10", 1000, "images", ("cifar10", 50)),
        ("digits", 50, "images", ("digits", 10)),
        ("somebody's own", 10, "images", ("cifar10", 10)),
        ("somebody's own", 10, "table", ("breast-cancer", 10)),
        ("somebody's own", 99, "regression", ("diabetes", 10)),
    ],
)
def test_recipe_is_of_the_nearest_size_of_the_data_or_of_those_like_them(data, ipc, kind, found):
    section = "paper" if kind == "images" else "tuned"
    recipe = recipe_for(data, ipc, "fbpc", section, kind=kind)
    assert (recipe.data, recipe.ipc) == found
    assert recipe.values == _shipped()[found][section]["fbpc"]


def test_sizes_and_fallbacks_are_shipped():
    assert recipe_sizes("cifar10") == [1, 10, 50]
    assert recipe_sizes("nobody's") == []
    assert all(recipe_sizes(data) for data in FALLBACKS.values())


OURS = ("vbpc", "unrolled", "bpc-cd")
"""Methods that the paper has not."""


def test_every_method_of_the_papers_has_a_recipe_for_images():
    updating = [name for name, kind in METHODS.items() if kind.makes_updates and name not in OURS]
    for data, ipc in _shipped():
        if data not in ("breast-cancer", "diabetes"):
            for method in updating:
                assert recipe_for(data, ipc, method, "paper").values


@pytest.mark.parametrize("method", OURS)
def test_methods_of_ours_have_rates_for_all_data(method):
    """A data set without values of its own takes those of the one like it, `paper` or not."""
    for data, ipc in [*_shipped(), ("somebody's own", 10)]:
        for recipe in ("paper", "tuned", "best"):
            found = recipe_for(data, ipc, method, recipe)
            assert found.section == "tuned"
            most = 1000 if (method, found.data) == ("bpc-cd", "cifar10") else 10
            assert found.values["lr_images"] <= (0.1 if "optimizer" in found.values else most)
    assert recipe_for("cifar100", 10, method).data == "cifar10"
    assert recipe_for("cifar100", 10, "fbpc").data == "cifar100"


EARLY, LATE = (2, 50, 0.01), (20, 30, 0.03)


@pytest.mark.parametrize(
    ("method", "ipc", "students", "rest"),
    [
        ("bpc-fkl", 1, EARLY, {}),
        ("bpc-fkl", 3, EARLY, {}),
        ("bpc-fkl", 4, LATE, {}),
        ("bpc-fkl", 50, LATE, {}),
        ("bpc-rkl", 1, EARLY, {"samples": 10, "momentum": 0.0}),
        ("bpc-rkl", 10, LATE, {"momentum": 0.0}),
        ("bpc-w", 1, EARLY, {"lr_lr": 1e-7, "expert_epochs": 2}),
        ("bpc-w", 50, LATE, {}),
    ],
)
def test_weight_space_methods_have_their_own(method, ipc, students, rest):
    """Kim et al.'s (2022): students by size, 5000 updates at 1000, and what differs."""
    found = complete("cifar10", ipc, method)
    assert (
        tuple(found[name] for name in ("start_epochs", "student_steps", "lr_student")) == students
    )
    usual = {
        "steps": 5000,
        "lr_images": 1000.0,
        "samples": 30,
        "momentum": 0.5,
        "noise": 0.01,
        "likelihood_batch": 1000,
        "lr_lr": 1e-5,
        "expert_epochs": 1,
        "weight_x": 1.0,
        "weight_u": 1.0,
    }
    expected = {name: value for name, value in (usual | rest).items() if name in found}
    assert {name: found[name] for name in expected} == expected


def test_weight_space_methods_on_digits_keep_its_updates():
    for method, lr in (("bpc-fkl", 3.0), ("bpc-rkl", 1000.0)):
        found = complete("digits", 1, method)
        assert (found["steps"], found["lr_images"], found["student_steps"]) == (30, lr, 50)


def test_sections_fall_back_to_the_one_before(monkeypatch):
    """A recipe never changes the method: each falls back for itself."""
    made = {
        "paper": {"fbpc": {"gamma": 0.1}, "bpc-w": {"steps": 1}, "bpc-fkl": {"steps": 5}},
        "tuned": {"fbpc": {"gamma": 0.2}, "bpc-w": {"steps": 2}, "vbpc": {"steps": 3}},
        "best": {"fbpc": {"gamma": 0.3}},
    }
    monkeypatch.setattr("pseudocoreset.recipes._shipped", lambda: {("mine", 10): made})
    for method, recipe, section, values in [
        ("fbpc", "best", "best", {"gamma": 0.3}),
        ("fbpc", "tuned", "tuned", {"gamma": 0.2}),
        ("fbpc", "paper", "paper", {"gamma": 0.1}),
        ("bpc-w", "best", "tuned", {"steps": 2}),
        ("bpc-w", "paper", "paper", {"steps": 1}),
        ("bpc-fkl", "best", "paper", {"steps": 5}),
        ("vbpc", "paper", "tuned", {"steps": 3}),
        ("toy_methods:Quadratic", "best", "paper", {}),
    ]:
        found = recipe_for("mine", 10, method, recipe)
        assert (found.section, found.values) == (section, values)


def test_tuned_differs_from_the_paper_where_it_was_tuned():
    for method in ("fbpc", "fbpc-isotropic"):
        paper, tuned = (complete("cifar10", 10, method, name) for name in ("paper", "tuned"))
        assert (paper["from_epoch"], paper["draws"]) == (2, 1)
        assert tuned != paper
        assert tuned.keys() == paper.keys()
    for data, ipc, method in [("cifar10", 10, "bpc-w"), ("tiny-imagenet", 10, "fbpc")]:
        assert complete(data, ipc, method, "tuned") == complete(data, ipc, method)


def test_best_is_the_default_and_is_known_for_every_method():
    assert recipe_for("cifar10", 10, "fbpc") == recipe_for("cifar10", 10, "fbpc", "best")
    assert recipe_for("cifar10", 10, "fbpc").section in ("tuned", "best")


# A recipe of a person's own.

OWN = """
paper:
  fbpc: {gamma: 0.4, steps: 3}
best:
  fbpc: {gamma: 0.7, lr_images: 1e2, labels: learned, to_epoch: null}
"""


def refused(path, data, method="fbpc"):
    """The parameter that is named where this file is refused."""
    with pytest.raises(UserError) as error:
        resolve(data, [], method, DistillOptions(ipc=2), str(path))
    return error.value.parameter


def test_file_is_a_recipe_and_what_is_given_counts_more(tmp_path, data):
    path = tmp_path / "mine.yaml"
    path.write_text(OWN)
    job = resolve(data, [], FBPC(samples=4), DistillOptions(ipc=2, momentum=0.25), str(path))
    assert (job.method.gamma, job.method.samples, job.method.to_epoch) == (0.7, 4, None)
    assert (job.options.lr_images, job.options.momentum, job.options.steps) == (100.0, 0.25, 1000)
    assert job.options.labels == "learned"  # a recipe may learn labels
    fixed = resolve(data, [], "fbpc", DistillOptions(ipc=2, labels="hard"), str(path))
    assert fixed.options.labels == "hard"
    assert (job.recipe.section, job.recipe.data) == ("best", str(path))
    assert refused(path, data, "bpc-w") == "recipe"  # it has no settings for it


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("best: {fbpc: {speed: 3}}", "recipe"),
        ("best: {fbpc: {lr_student: 0.1}}", "recipe"),  # of another method
        ("best: {fbpc: {1: 0.1}}", "recipe"),
        ("best: {fbpc: {gamma: fast}}", "gamma"),
        ("best: {fbpc: {gamma: null}}", "gamma"),
        ("best: {fbpc: {gamma: [1]}}", "gamma"),
        ("best: {fbpc: {gamma: -1}}", "gamma"),
        ("best: {fbpc: {steps: 1.5}}", "steps"),
        ("best: {fbpc: {steps: true}}", "steps"),
        ("best: {fbpc: {form: mosaic:3}}", "form"),
        ("best: {fbpc: 3}", "recipe"),
        ("best: [fbpc]", "recipe"),
        ("good: {fbpc: {gamma: 1}}", "recipe"),
        ("{1: {fbpc: {gamma: 1}}}", "recipe"),
        ("gamma: 1", "recipe"),
        ("", "recipe"),
        ("best: {", "recipe"),
        ("!!python/object/apply:os.getcwd []", "recipe"),
        ("[" * 3000, "recipe"),
        ("\0", "recipe"),
    ],
)
def test_file_that_is_no_recipe_is_refused(tmp_path, data, text, parameter):
    (tmp_path / "mine.yaml").write_text(text)
    assert refused(tmp_path / "mine.yaml", data) == parameter


def test_name_that_is_neither_recipe_nor_file_is_refused(tmp_path, data):
    (tmp_path / "latin.yaml").write_bytes(b"best: {fbpc: {form: \xff}}")
    for name in ("good", tmp_path, tmp_path / "nowhere.yaml", tmp_path / "latin.yaml"):
        assert refused(name, data) == "recipe"


SIDES = {"cifar10": 32, "cifar100": 32, "tiny-imagenet": 64}


@pytest.mark.parametrize("data", SIDES)
@pytest.mark.parametrize("ipc", [1, 10, 50])
def test_best_settings_are_complete_and_fit_the_images(data, ipc):
    found = recipe_for(data, ipc, "fbpc-isotropic", "best")
    assert found.section == "best"
    method = METHODS["fbpc-isotropic"]().resolved(found.values)
    options = DistillOptions(ipc=ipc).resolved(found.values)
    assert {**method.as_dict(), **options.as_dict()}.items() >= found.values.items()
    stored = torch.zeros(2, 3, SIDES[data], SIDES[data])
    form = parse_form(options.form)
    assert form.decode(stored).shape == (2 * form.seen, *stored.shape[1:])


@pytest.mark.parametrize("kind", ["table", "regression"])
def test_best_settings_of_tables_take_steps_of_one_scale(kind):
    found = recipe_for("somebody's own", 10, "fbpc", "best", kind=kind)
    assert (found.section, found.values["optimizer"]) == ("best", "adam")
    method, options = FBPC().resolved(found.values), DistillOptions(ipc=10).resolved(found.values)
    assert {**method.as_dict(), **options.as_dict()}.items() >= found.values.items()


def test_other_optimizer_takes_the_rates_of_the_section_that_has_it():
    data = load_data("breast-cancer")
    rates = {
        optimizer: resolve(data, [], "fbpc", DistillOptions(optimizer=optimizer)).options.lr_images
        for optimizer in ("adam", "sgd")
    }
    assert rates == {"adam": 0.03, "sgd": 1.0}
