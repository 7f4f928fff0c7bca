"""Faults at every write of a job: kills, a full disk, a loss of power; see `every_write`."""

import sys

import pytest
from every_write import can_mount, every_write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
JOBS = ("experts", "distill", "sample", "evaluate", "tune", "reproduce", "predict")


def test_job_goes_on_after_a_fault():
    assert every_write("kill,full-disk,power-loss", "distill", 13) > 15


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("fault", ["kill", "full-disk", "power-loss"])
def test_job_goes_on_after_a_fault_at_any_write(fault, job):
    assert every_write(fault, job) > 3


needs_mount = pytest.mark.skipif(not can_mount(), reason="no disk can be mounted here")


@needs_mount
def test_job_goes_on_when_a_full_disk_has_room_again():
    assert every_write("small-disk", "distill", 4) > 3


@pytest.mark.slow
@needs_mount
@pytest.mark.parametrize("job", JOBS)
def test_job_goes_on_from_a_disk_of_any_size(job):
    assert every_write("small-disk", job) > 0
