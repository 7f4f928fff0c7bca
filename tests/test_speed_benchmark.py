"""The benchmark runs small on a CPU: its rows, what it keeps, and what becomes of a failure."""

import json
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

import speed
import speed_row
from pseudocoreset.engine.versions import versions
from script import exit_with
from speed_row import Row, measure

PROMISED = ("what", "net", "ipc", "plain_s", "fast_s", "ratio", "peak_gb", "device")


@pytest.fixture
def run_small(monkeypatch, capsys):
    """Run the small benchmark into a file, in this process: its rows and what it printed."""

    def in_this_process(_, *words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # γ that random images do not reach
            return measure(Row(**json.loads(words[words.index("--one") + 1])))

    def run(out: Path, *more: str) -> tuple[list[dict], str]:
        argv = ["speed.py", "--small", "--device", "cpu", "--out", str(out), *more]
        monkeypatch.setattr(sys, "argv", argv)
        assert speed.main() == 0
        return json.loads(out.read_text()), capsys.readouterr().out

    monkeypatch.setattr(speed, "run_script", in_this_process)
    monkeypatch.setattr(speed, "AT_ONCE", 1)
    return run


def test_speed_runs_small_and_keeps_the_rows_that_are_there(run_small, tmp_path):
    out = tmp_path / "rows.json"
    begun = time.perf_counter()
    (row,), printed = run_small(out, "--rows", "fbpc")
    whole = time.perf_counter() - begun
    assert set(PROMISED) <= row.keys()
    assert row["what"] == "fbpc update"
    assert row["device"] == "cpu"
    assert row["ratio"] == pytest.approx(row["plain_s"] / row["fast_s"])
    assert 0 < row["fast_s"] < whole
    assert 0 < row["plain_s"] < whole
    assert row["map_steps"] >= 10
    assert set(row["versions"]) >= {"torch", "pseudocoreset"}
    assert printed.splitlines()[-2].startswith("ratio")

    rows, printed = run_small(out, "--resume")
    assert "fbpc update, convnet:width=8, ipc 1: done" not in printed
    assert rows[0] == row
    others = ["fbpc-isotropic update", "bpc-fkl update", "expert epoch", "sghmc 5 seeds"]
    assert [other["what"] for other in rows[1:]] == others
    assert all(other["fast_s"] > 0 for other in rows)
    assert "fbpc update" in printed  # in the table, all the same


def test_speed_scaling_grows_one_thing_at_a_time(run_small, tmp_path):
    rows, _ = run_small(tmp_path / "rows.json", "--scaling")
    assert [(row["row"]["grows"], row["ipc"], row["map_steps"]) for row in rows] == [
        ("ipc", 1, 10),
        ("ipc", 2, 10),
    ]
    assert all(row["fast_s"] > 0 for row in rows)


def test_speed_memory_has_no_times(run_small, tmp_path):
    rows, _ = run_small(tmp_path / "rows.json", "--memory", "--rows", "bpc-w,fbpc-isotropic")
    assert [row["what"] for row in rows] == ["bpc-w update", "fbpc-isotropic update"]
    for row in rows:
        assert "peak_gb" in row
        assert not {"fast_s", "plain_s", "ratio"} & row.keys()


@pytest.mark.parametrize("what", ["bpc-w update", "sghmc 5 seeds"])
def test_row_has_the_ratio_of_its_times(what):
    row = measure(Row(what, "convnet:width=4", 1, "digits", "cpu", repeats=1, small=True))
    json.dumps(row, allow_nan=False)
    assert row["ratio"] == pytest.approx(row["plain_s"] / row["fast_s"])
    assert row["precision"] == "float32"
    assert row["compiled"] is False


def test_row_that_failed_says_why():
    row = Row("fbpc update", "lenet", 1, "digits", "cpu", small=True)
    (found,) = speed.measured_rows([row], side_by_side=False)
    assert "8×8" in found["failed"]
    assert found["row"] == row.as_json()
    assert all(found[name] is None for name in ("plain_s", "fast_s", "ratio", "peak_gb"))
    assert not speed.is_done(found, row)
    assert "8×8" in speed.table([found])


def test_row_of_other_code_or_another_device_is_not_done():
    row = Row("expert epoch", "convnet", None, device="cpu")
    old = {"row": row.as_json(), "versions": versions(), "device": "cpu"}
    assert speed.is_done(old, row)
    assert not speed.is_done(old | {"device": "NVIDIA H200"}, row)
    assert not speed.is_done(old | {"versions": {**versions(), "code": "another"}}, row)


def test_row_does_not_store_the_place_of_its_data():
    here, there = (Row("fbpc update", "convnet", 1, f"cifar10:{place}") for place in "ab")
    assert here.as_json() == there.as_json()
    assert here.as_json()["data"] == "cifar10:DIR"
    assert Row("fbpc update", "convnet", 1).as_json()["data"] == "stand-in"


def test_default_rows_cover_the_papers_tables_and_every_network_and_size(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["speed.py", "--out", "rows.json"])
    rows = speed.wanted_rows(speed.parse())
    cells = {(row.method, row.net, row.ipc) for row in rows}
    assert speed.PAPER.keys() <= cells
    methods = ("fbpc", "fbpc-isotropic", "bpc-fkl")
    assert {*product(methods, ("convnet", "lenet", "resnet18"), (1, 10, 50))} <= cells
    assert {"expert epoch", "sghmc 5 seeds"} <= {row.what for row in rows}


def test_gpu_rows_are_compiled_first_and_state_the_real_batch_apart(monkeypatch):
    done = []

    turns = []

    def child(row, turn=None):
        done.append(row)
        turns.append(turn)
        return {"whole_peak_gb": 0.5 if row.real_batch is None else 0.125, "fast_s": 1.0}

    monkeypatch.setattr(speed, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(speed, "child", child)
    rows = [Row("fbpc update", "convnet", 1), Row("bpc-fkl update", "convnet", 1)]
    fbpc, fkl = speed.measured_rows(rows, side_by_side=False)
    assert set(done[-2:]) == set(rows)  # last of all, and one after the other
    assert turns[-1] is not None
    assert turns == [None] * 4 + turns[-1:] * 2
    short = {replace(row, with_plain=False, repeats=1) for row in rows}
    alone = replace(rows[0], with_plain=False, repeats=1, real_batch=1)
    assert set(done[:3]) == {*short, alone}
    assert done[3:-2] == [alone]
    assert (fbpc["peak_gb"], fbpc["real_batch_gb"]) == (0.125, 0.375)
    assert "real_batch_gb" not in fkl

    done.clear()
    list(speed.measured_rows(rows, side_by_side=False, filled=True))
    assert set(done[-2:]) == set(rows)
    assert done[:-2] == [alone]  # nothing is run to compile it


OTHER_PROCESS = """
import fcntl, sys, time
from pathlib import Path
turn, passed = map(Path, sys.argv[1:])
with turn.open("ab") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    time.sleep(0.5)
    passed.touch()
"""


def test_row_waits_for_its_turn(tmp_path, monkeypatch):
    turn, passed = tmp_path / "turn", tmp_path / "passed"
    row = Row("fbpc update", "convnet:width=8", 1, "digits", "cpu", small=True)
    monkeypatch.setattr(
        speed_row, "measure_update", lambda *_: {"fast_s": 1.0, "whole_peak_gb": 1.0}
    )
    command = [sys.executable, "-c", OTHER_PROCESS, str(turn), str(passed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"locked\n"
        assert measure(row)["fast_s"] == 1
        assert not passed.exists()
        assert measure(row, turn)["fast_s"] == 1
        assert passed.exists()


def test_new_row_replaces_the_one_of_the_same_place():
    def row(ipc, device, repeats=5, **more):
        stored = Row("fbpc update", "convnet", ipc, repeats=repeats).as_json()
        return {"row": stored, "device": device, **more}

    found = [row(1, "H200"), row(10, "H200"), row(50, "H200")]
    again = row(10, "H200", repeats=3, fast_s=1.0)
    assert speed.with_row(found, again) == [found[0], again, found[2]]
    elsewhere = row(10, "cpu")
    assert speed.with_row(found, elsewhere) == [*found, elsewhere]
    failed = row(10, "H200", failed="no memory")
    assert speed.with_row(found, failed) == found
    assert speed.with_row([found[0], failed], again) == [found[0], again]
    assert speed.with_row(found[:1], failed) == [found[0], failed]


def test_small_run_takes_networks_and_sizes(monkeypatch):
    words = ["speed.py", "--small", "--nets", "lenet,convnet", "--ipcs", "2", "--rows", "fbpc"]
    monkeypatch.setattr(sys, "argv", words)
    rows = speed.wanted_rows(speed.parse())
    assert [(row.net, row.ipc) for row in rows] == [("lenet", 2), ("convnet", 2)]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("--device gpu", "gpu"),
        ("--ipcs ten", "--ipcs"),
        ("--ipcs 0", "--ipcs"),
        ("--repeats 0", "--repeats"),
        ("--rows all", "--rows all"),
        ("--nets nosuch", "nosuch"),
        ("--nets lenet --data digits", "8×8"),
        ("--data nosuch", "nosuch"),
        ("--data cifar10:/nowhere", "/nowhere"),
        ("--memory --scaling", "--scaling"),
    ],
)
def test_speed_refuses_a_mistake_in_one_sentence(wrong, says, tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["speed.py", *wrong.split(), "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        exit_with(speed.main)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert not out.exists()


@pytest.mark.parametrize("content", ["no JSON", "[1, 2]", '{"rows": []}', '[{"row": {}}]'])
def test_speed_leaves_a_file_of_something_else_alone(content, tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.json"
    out.write_text(content)
    argv = ["speed.py", "--small", "--rows", "fbpc", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as ended:
        exit_with(speed.main)
    assert ended.value.code == 2
    assert "is no list of this script's rows" in capsys.readouterr().err
    assert out.read_text() == content


def test_times_of_a_cpu_are_not_written_to_the_results(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["speed.py", "--device", "cpu"])
    with pytest.raises(SystemExit, match="2"):
        speed.main()
    assert "give --out" in capsys.readouterr().err
