"""The check that all tests run under finds wrong types and shapes."""

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from pseudocoreset.engine.bars import clock
from pseudocoreset.reproduce.cells import Scope
from pseudocoreset.reproduce.covariance.measure import compared
from typechecker import check, checked


@checked(typechecker=check)
def number() -> int:
    return "one"


@checked(typechecker=check)
def doubled(row: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    return torch.cat([row, row])


def test_right_types_and_shapes_are_taken():
    assert clock(60) == clock(60.0)
    assert Scope("digits").label == "digits"
    assert compared(torch.ones(2, 3), torch.ones(2, 3))["ratio"] == 1


@pytest.mark.parametrize(
    "wrong",
    [lambda: clock("a minute"), lambda: Scope(1), number],
    ids=["argument", "field", "result"],
)
def test_wrong_type_is_found(wrong):
    with pytest.raises(TypeCheckError):
        wrong()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: compared(torch.ones(6), torch.ones(6)),
        lambda: compared(torch.ones(2, 3), torch.ones(3, 2)),
        lambda: compared([[1.0]], [[1.0]]),
        lambda: doubled(torch.ones(2)),
    ],
    ids=["dimensions", "sizes", "no array", "result"],
)
def test_wrong_shape_is_found(wrong):
    with pytest.raises(TypeCheckError):
        wrong()
