"""Kill commands at random moments and run them again: nothing is lost, and the end is the same.

    OMP_NUM_THREADS=1 python tests/faults/kills.py     (into results/kills.json)

Two hundred times SIGKILL: each command 20 times alone, and those with tasks 16 times under Ray.
Each command is run to its end once to compare with; then killed up to four times in a row, with
every file looked at after each, and run to its end. Rows that the file has for the same code are
not measured again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from jobs import Job, differences, left, lost, make_jobs

from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.versions import versions

OUT = Path(__file__).parents[2] / "results" / "kills.json"
COMMAND = Path(__file__).with_name("command.py")
JOBS = ("experts", "distill", "sample", "evaluate", "tune", "reproduce")
ELSEWHERE = tuple(name for name in JOBS if name != "distill")
"""What has tasks that may run elsewhere."""
ALONE, ON_A_CLUSTER = 20, 16
"""Kills of a command."""
IN_A_ROW = 4
"""Kills of one run before it may end."""


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


@contextmanager
def cluster() -> Iterator[str]:
    """A Ray cluster of two nodes, whose workers find what makes `reproduce` small."""
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(COMMAND.parent), before]))
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()


def main() -> None:
    """Run what the file has no row for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    code = versions()
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    rows = [row for row in rows if row["versions"] == code]
    plan = [("alone", name, ALONE, 1) for name in JOBS]
    plan += [("ray", name, ON_A_CLUSTER, 2) for name in ELSEWHERE]
    known = [(row["where"], row["command"]) for row in rows]
    with tempfile.TemporaryDirectory() as folder, cluster() as address:
        jobs = make_jobs(Path(folder, "made"), "digits", larger=4)
        for where, name, kills, seed in plan:
            if (where, name) in known:
                continue
            words = ["--ray", address] if where == "ray" else []
            place, begun = Path(folder, where, name), time.perf_counter()
            row = {"where": where, "command": name, "seed": seed, "versions": code}
            try:
                row["kills"] = campaign(jobs[name], place, kills, seed, *words)
            except AssertionError as error:
                row["failed"] = str(error)
            rows.append({**row, "seconds": round(time.perf_counter() - begun)})
            print(rows[-1], flush=True)
            write_json(out, {"kills": sum(row.get("kills", 0) for row in rows), "rows": rows})


if __name__ == "__main__":
    main()
