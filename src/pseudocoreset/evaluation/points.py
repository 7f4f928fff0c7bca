"""Check that data fit a coreset and that it was not made from the points to be scored."""

import warnings

from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import Data, Split
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.posterior import Posterior


def points_to_score(
    what: Pseudocoreset | Posterior, data: Data, split: str, *, other_data: bool = False
) -> Split:
    """The points of the `split`, once they are found to fit and to be those that are meant.

    Args:
        what: a posterior or a coreset
        data: the data set
        split: `test` or `holdout`
        other_data: accept data that the coreset was not made of
    """
    points = _split(data, split)
    _check_shape(what, data)
    if not other_data:
        _check_provenance(what, data, split)
    return points


def _split(data: Data, name: str) -> Split:
    if name == "test":
        return data.test
    if name != "holdout":
        raise UserError(f"`split` {name} is not known: give test or holdout.", "split")
    if data.holdout is None:
        raise UserError("`split` holdout needs points that were held out: give `holdout`.", "split")
    return data.holdout


def _check_shape(what: Pseudocoreset | Posterior, data: Data) -> None:
    here = (data.task, data.input_shape, data.class_names)
    made_for = (what.task, what.input_shape, what.class_names)
    names = ("task", "input shape", "classes")
    for name, ours, theirs in zip(names, here, made_for, strict=True):
        if ours != theirs:
            raise UserError(
                f"the data {data.name} have {name} {_short(ours)} and the coreset was made for "
                f"{_short(theirs)}.",
                "data",
            )


def _check_provenance(what: Pseudocoreset | Posterior, data: Data, split: str) -> None:
    """Refuse other data than the coreset was made of, and held-out points that it was made of."""
    made = provenance_of(what)
    if made is None or not (made.train_digest or made.data_fingerprint):
        warnings.warn(
            "the file does not say which data the coreset was made from: if these points were "
            "used, the scores are not valid.",
            RuntimeWarning,
            stacklevel=4,
        )
        return
    holdout = 0 if data.holdout is None else len(data.holdout)
    if made.train_digest:
        parts = [("training", made.train_digest, data.train_digest)]
        parts.append(("test", made.test_digest, data.test_digest))
        other = [name for name, theirs, ours in parts if theirs != ours]
    else:  # a file of version 0.1, which has one digest of all
        same = made.data_fingerprint == data.fingerprint
        if not same and made.holdout != holdout:
            warnings.warn(
                "the file is of version 0.1 and the coreset was made with `holdout` "
                f"{made.holdout}, so it is unknown whether it was made from these data.",
                RuntimeWarning,
                stacklevel=4,
            )
            same = split == "test"
        other = [] if same else ["training or test"]
    if other:
        raise UserError(
            f"the {' and '.join(other)} points of {data.name} are not those that the coreset was "
            f"made with ({printable(made.data)}): give the same data, or `other_data` if this is "
            "intended.",
            "data",
        )
    if split == "holdout" and made.holdout != holdout:
        raise UserError(
            f"the coreset was made with `holdout` {made.holdout}, so it may have used points "
            "that are held out here: give the same `holdout`.",
            "holdout",
        )
    if split == "holdout" and made.data_fingerprint != data.fingerprint:
        raise UserError(  # which are held out follows from their order
            f"the held-out points of {data.name} are not those of the time when the coreset was "
            "made: give the data in the same order, with the same file names.",
            "holdout",
        )


def same_data(what: Pseudocoreset | Posterior, data: Data, split: str = "test") -> bool:
    """Whether the data are known to be those that a coreset was made of.

    Args:
        what: a posterior or a coreset
        data: the data set
        split: `holdout` where the same points must be held out, too
    """
    made = provenance_of(what)
    if made is None:
        return False
    if made.train_digest and split == "test":
        return (made.train_digest, made.test_digest) == (data.train_digest, data.test_digest)
    return made.data_fingerprint == data.fingerprint


def provenance_of(what: Pseudocoreset | Posterior) -> Provenance | None:
    """Where a coreset, or a posterior's coreset, comes from; None where a file does not say.

    Args:
        what: a posterior or a coreset
    """
    if isinstance(what, Pseudocoreset):
        return what.provenance
    stored = what.details.get("coreset_provenance")
    return None if stored is None else Provenance.from_json(stored)


def _short(value: object) -> str:
    text = printable("×".join(map(str, value)) if isinstance(value, tuple) else value)
    return text if len(text) < 60 else text[:57] + "..."
