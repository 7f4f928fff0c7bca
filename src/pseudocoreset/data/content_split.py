"""A test split by the content of points, so that adding points does not move others."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pseudocoreset.errors import UserError

BYTES = 16
TEST_BELOW = (1 << 8 * BYTES) // 5
"""A digest below a fifth of all numbers is for testing."""


def number_of(digest: bytes) -> int:
    """A digest of 16 bytes as a whole number."""
    return int.from_bytes(digest, "big")


def digest_of(content: bytes | memoryview) -> int:
    """The blake2b digest of some bytes, as a whole number."""
    return number_of(hashlib.blake2b(content, digest_size=BYTES).digest())


def choose_test(
    source: object,
    digests: Sequence[int],
    labels: Sequence[int],
    class_names: Sequence[str],
    what: str,
    advice: str,
) -> npt.NDArray[np.bool_]:
    """Which points are for testing: those whose digest is low, about a fifth.

    Equal points have equal digests and stay together. A class without a test point gives its lowest
    digest, and one without a training point keeps its highest for training.

    Args:
        source: where the points come from, for the message that refuses a class of one point
        digests: of each point's content
        labels: the class of each point; all 0 if there are no classes
        class_names: a name for each class; empty if there are no classes
        what: "image" or "row"
        advice: what else could be done about a class of one point
    """
    numbers, groups = np.array(digests, dtype=object), np.asarray(labels)
    tested = np.array([digest < TEST_BELOW for digest in digests], dtype=bool)
    for label in np.unique(groups):
        members = np.flatnonzero(groups == label)
        lowest, highest = min(numbers[members]), max(numbers[members])
        if lowest == highest:
            which = f"class {class_names[label]!r} has" if class_names else "it has"
            raise UserError(
                f"{source}: {which} only 1 {what} (or copies of one); at least 2 different ones "
                f"are needed, one of them for testing. Add some{advice}."
            )
        if not tested[members].any():
            tested[members] = numbers[members] == lowest
        elif tested[members].all():
            tested[members] = numbers[members] != highest
    return tested
