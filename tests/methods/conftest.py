"""Experts that all tests of divergences share."""

import pytest

from small_world import NET, make_store


@pytest.fixture(scope="session")
def other_store(data, tmp_path_factory):
    """Of another network."""
    return make_store(tmp_path_factory.mktemp("other"), data, f"{NET},norm=none")


@pytest.fixture(scope="session")
def batch_norm_stores(data, tmp_path_factory):
    """By how BatchNorm's statistics are treated."""
    return {
        stats: make_store(
            tmp_path_factory.mktemp(f"experts-{stats}"), data, f"{NET},norm=batch,stats={stats}"
        )
        for stats in ("batch", "kept")
    }
