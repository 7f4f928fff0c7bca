"""SIGKILL at random moments: the same command, again, ends as if nothing had happened."""

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from jobs import Job, differences, left, lost, make_jobs

COMMAND = Path(__file__).with_name("command.py")
JOBS = ("experts", "distill", "sample", "evaluate", "reproduce")
IN_A_ROW = 4
"""Kills of one job before it may end."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return make_jobs(tmp_path_factory.mktemp("kills") / "made", "digits", larger=4)


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


def campaign(job: Job, folder: Path, kills: int, seed: int) -> int:
    """Kill a job so often, several times in a row; how often it was at work when it was killed."""
    random, struck, number = Random(seed), 0, 0
    (folder / "whole").mkdir(parents=True)
    job.prepare(folder / "whole")
    seconds, whole = finish(job, folder / "whole"), left(folder / "whole")
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


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_two_hundred_kills(jobs, tmp_path, name):
    assert campaign(jobs[name], tmp_path, 40, seed=1) == 40
