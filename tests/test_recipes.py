"""The shipped recipes against the paper's table, copied as it is printed."""

import re
from dataclasses import fields, replace
from operator import attrgetter

import pytest

from pseudocoreset.divergences import METHODS
from pseudocoreset.errors import UserError
from pseudocoreset.recipes import OWN, PAPER, TUNED, Recipe, recipe_for

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


def test_recipes_are_the_papers_table():
    rows = printed()
    assert len(rows) == 9
    columns = attrgetter("from_epoch", "gamma", "lr_x", "lr_u", "steps", "lr_images", "batch")
    assert {key: columns(recipe) for key, recipe in PAPER.items()} == rows


@pytest.mark.parametrize(
    ("data", "ipc", "key"),
    [
        ("cifar10", 10, ("cifar10", 10)),
        ("cifar100", 50, ("cifar100", 50)),
        ("cifar10", 3, ("cifar10", 1)),  # nearer in ratio: 3 against 3.3
        ("cifar10", 4, ("cifar10", 10)),
        ("cifar10", 20, ("cifar10", 10)),
        ("cifar10", 30, ("cifar10", 50)),
        ("cifar10", 1000, ("cifar10", 50)),
        ("somebody's own", 10, ("cifar10", 10)),
        ("digits", 50, ("digits", 10)),
    ],
)
def test_recipe_for(data, ipc, key):
    assert recipe_for(data, ipc) == (PAPER | OWN)[key]


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
def test_the_weight_space_methods_have_their_own(method, ipc, students, rest):
    """Kim et al.'s (2022): students by size, 5000 updates at 1000, and what differs."""
    recipe = recipe_for("cifar10", ipc, method)
    assert (recipe.start_epochs, recipe.student_steps, recipe.lr_student) == students
    usual = {
        "steps": 5000,
        "lr_images": 1000.0,
        "samples": 30,
        "momentum": 0.5,
        "noise": 0.01,
        "likelihood_batch": 1000,
    }
    usual |= {"lr_lr": 1e-5, "expert_epochs": 1, "weight_x": 1.0, "weight_u": 1.0}
    assert {name: getattr(recipe, name) for name in usual} == usual | rest


def test_weight_space_methods_on_digits_keep_its_updates():
    for method, lr in (("bpc-fkl", 3.0), ("bpc-rkl", 1000.0)):
        recipe = recipe_for("digits", 1, method)
        assert (recipe.steps, recipe.lr_images, recipe.student_steps) == (30, lr, 50)


def test_tuned_changes_what_it_names_and_is_the_papers_elsewhere():
    for method in ("fbpc", "fbpc-isotropic"):
        paper, tuned = (recipe_for("cifar10", 10, method, name) for name in ("paper", "tuned"))
        assert (paper.from_epoch, paper.draws) == (2, 1)
        assert tuned == replace(paper, **TUNED["cifar10", 10, method])
        assert tuned != paper
    for data, ipc, method in [("cifar10", 10, "bpc-w"), ("cifar100", 10, "fbpc")]:
        assert recipe_for(data, ipc, method, "tuned") == recipe_for(data, ipc, method)


def test_tuned_speaks_of_what_there_is():
    names = {field.name for field in fields(Recipe)}
    for (data, ipc, method), changes in TUNED.items():
        assert (data, ipc) in PAPER | OWN
        assert method in METHODS
        assert changes.keys() <= names


def test_an_unknown_recipe_is_refused():
    with pytest.raises(UserError, match="no recipe is called 'best': give --recipe paper or tuned"):
        recipe_for("cifar10", 10, "fbpc", "best")
