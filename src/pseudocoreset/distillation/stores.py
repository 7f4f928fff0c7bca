"""Checks that experts fit the data."""

from collections.abc import Sequence

from pseudocoreset.data import Data
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore


def times(shape: tuple[int, ...]) -> str:
    """A shape in words."""
    return "×".join(map(str, shape))


def refuse_other_data(stores: Sequence[ExpertStore], data: Data) -> None:
    """Raise an error if experts were trained on other data.

    Args:
        stores: the experts
        data: the data set
    """
    for store in stores:
        if store.identity.fingerprint != data.fingerprint:
            there, holdout = store.identity, 0 if data.holdout is None else len(data.holdout)
            raise UserError(
                f"{store.path} holds experts of other data: {printable(there.data)} with "
                f"`holdout` {there.holdout} and inputs of {times(there.input_shape)}, not "
                f"{data.name} with `holdout` {holdout} and inputs of {times(data.input_shape)}.",
                "experts",
            )


def check_stores(stores: Sequence[ExpertStore], data: Data) -> None:
    """Raise an error if experts are damaged or were trained on other data.

    Args:
        stores: the experts
        data: the data set
    """
    refuse_other_data(stores, data)
    for store in stores:
        store.refuse_damaged()
