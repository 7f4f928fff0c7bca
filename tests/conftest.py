"""Every annotated shape and type of the package is checked while the tests run."""

import os
import signal

import pytest
import torch

import typechecker

typechecker.install()

# The tests run side by side; threads that wait for one another would only slow them down, in the
# programs that tests start as well.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# Begun in the background of a script, tests inherit that Ctrl-C does nothing; some send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

from small_world import make_data, make_store, make_table  # noqa: E402 - it imports what is to be checked


@pytest.fixture(scope="session")
def data():
    """A small data set of made-up images."""
    return make_data()


@pytest.fixture(scope="session")
def store(data, tmp_path_factory):
    """Experts of it."""
    return make_store(tmp_path_factory.mktemp("experts"), data)


@pytest.fixture(scope="session")
def table():
    """A small table with two targets that are numbers."""
    return make_table()


@pytest.fixture(scope="session")
def table_store(table, tmp_path_factory):
    """Experts of it."""
    return make_store(tmp_path_factory.mktemp("table-experts"), table, "mlp:depth=1,width=8")
