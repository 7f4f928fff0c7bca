"""The shipped recipes against the paper's table, copied as it is printed."""

import re
from dataclasses import astuple

import pytest

from pseudocoreset.recipes import OWN, PAPER, recipe_for

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
    assert {key: astuple(recipe)[:7] for key, recipe in PAPER.items()} == rows


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


def test_the_weight_space_methods_have_their_own():
    for method in ("bpc-fkl", "bpc-rkl", "bpc-w"):
        recipe = recipe_for("cifar10", 1, method)
        assert (recipe.steps, recipe.lr_images) == (5000, 1000.0)
        assert recipe.momentum == (0.0 if method == "bpc-rkl" else 0.5)
