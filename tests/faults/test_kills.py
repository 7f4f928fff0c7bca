"""SIGKILL at random moments: the same command, again, ends as if nothing had happened."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jobs import Job, differences, left, lost, make_jobs

COMMAND = Path(__file__).with_name("command.py")
JOBS = ("experts", "distill", "sample", "evaluate", "tune", "reproduce")
IN_A_ROW = 4
"""Kills of one job before it may end."""


ELSEWHERE = tuple(name for name in JOBS if name != "distill")
"""What has tasks that may run elsewhere."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return make_jobs(tmp_path_factory.mktemp("kills") / "made", "digits", larger=4)


@pytest.fixture(scope="module")
def address():
    """Of a cluster of two nodes, whose workers find what makes `reproduce` small."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(COMMAND.parent))
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


def with_words(job: Job, *words: str) -> Job:
    """The same command with more words."""
    return replace(job, words=lambda place: [*job.words(place), *words])


def begin(job: Job, place: Path) -> subprocess.Popen[str]:
    """Start a command and wait until all is imported."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, COMMAND, *job.words(place)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def finish(job: Job, place: Path) -> float:
    """Run a command to its end; the seconds it took once all was imported."""
    process, began = begin(job, place), time.perf_counter()
    told, _ = process.communicate()
    assert process.returncode == 0, told
    return time.perf_counter() - began


def killed(job: Job, place: Path, after: float) -> bool:
    """Kill a command so many seconds after it began; false if it was done before."""
    process = begin(job, place)
    try:
        told, _ = process.communicate(timeout=after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    assert process.returncode == 0, told
    return False


def whole_of(job: Job, place: Path) -> tuple[float, dict[str, Any]]:
    """The seconds that a job takes when nothing happens, and what it leaves."""
    place.mkdir(parents=True)
    job.prepare(place)
    return finish(job, place), left(place)


def campaign(job: Job, folder: Path, kills: int, seed: int, *words: str) -> int:
    """Kill a job so often, several times in a row; how often it was at work when it was killed.

    Args:
        job: the job
        folder: where it is run
        kills: how often
        seed: of the moments
        words: say where its tasks run; what it leaves is compared with a run here
    """
    random, struck, number = Random(seed), 0, 0
    seconds, whole = whole_of(job, folder / "whole")
    if words:
        job = with_words(job, *words)
        seconds, there = whole_of(job, folder / "there")
        assert not differences(there, whole), differences(there, whole)
    while struck < kills:
        number += 1
        place = folder / str(number)
        place.mkdir()
        job.prepare(place)
        there = left(place)
        for _ in range(min(IN_A_ROW, kills - struck)):
            if not killed(job, place, random.uniform(0, seconds)):
                seconds *= 0.8  # the machine has less to do than it had
                break
            struck += 1
            now = left(place)  # every file is whole
            assert not lost(there, now), lost(there, now)
            there = now
        finish(job, place)
        assert not differences(left(place), whole), differences(left(place), whole)
    return struck


def test_killed_command_ends_as_if_nothing_had_happened(jobs, tmp_path):
    assert campaign(jobs["distill"], tmp_path, 2, seed=0) == 2


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
    assert campaign(jobs[name], tmp_path, 20, seed=1) == 20


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
@pytest.mark.parametrize("name", ELSEWHERE)
def test_kills_on_a_cluster(jobs, address, tmp_path, name):
    assert campaign(jobs[name], tmp_path, 16, 2, "--ray", address) == 16
