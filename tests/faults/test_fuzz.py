"""Damaged files of every kind through the commands; see `fuzz`."""

import pytest
from fuzz import KINDS, fuzz


def told(failed):
    return "\n\n".join(
        f"{case['kind']} {case['number']} {case['seed']}, {case['file']}: {case['words']}\n"
        f"{case['wrong']}"
        for case in failed
    )


def test_damaged_files_end_in_a_sentence():
    failed = fuzz("all", 5, 0)
    assert not failed, told(failed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_damaged_files_end_in_a_sentence(kind):
    failed = fuzz(kind, 460, 1)
    assert not failed, told(failed)
