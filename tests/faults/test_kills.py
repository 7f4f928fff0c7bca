"""SIGKILL at random moments: the same command, again, ends as if nothing had happened."""

import pytest
from jobs import make_jobs
from kills import ALONE, ELSEWHERE, JOBS, ON_A_CLUSTER, campaign, cluster


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return make_jobs(tmp_path_factory.mktemp("kills") / "made", "digits", larger=4)


@pytest.fixture(scope="module")
def address():
    pytest.importorskip("ray")
    with cluster() as found:
        yield found


def test_killed_command_ends_as_if_nothing_had_happened(jobs, tmp_path):
    assert campaign(jobs["distill"], tmp_path, 1, seed=0) == 1


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "reproduce" else pytest.mark.slow) for n in ELSEWHERE],
)
def test_processes_leave_the_same_bit_for_bit(jobs, tmp_path, name):
    assert campaign(jobs[name], tmp_path, 0, 0, "--workers", "2") == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_kills_alone(jobs, tmp_path, name):
    """With those on a cluster, two hundred."""
    assert campaign(jobs[name], tmp_path, ALONE, seed=1) == ALONE


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
@pytest.mark.parametrize("name", ELSEWHERE)
def test_kills_on_a_cluster(jobs, address, tmp_path, name):
    assert campaign(jobs[name], tmp_path, ON_A_CLUSTER, 2, "--ray", address) == ON_A_CLUSTER
