"""The benchmark runs small on a CPU: its rows, what it keeps, and what becomes of a failure."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

import pytest
import torch

import looks
import memory_profile
import speed
import speed_row
from pseudocoreset.coreset import versions
from pseudocoreset.divergences import map_solution
from pseudocoreset.training import Training
from script import exit_with
from speed_row import Row, measure

PROMISED = ("what", "net", "ipc", "plain_s", "fast_s", "ratio", "peak_gb", "device")


def run_small(out: Path, *more: str) -> str:
    command = [sys.executable, speed.__file__, "--small", "--out", str(out), *more]
    # One thread, as the tests have: on a busy machine two would wait for one another for seconds.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_it_runs_small_and_keeps_what_it_has(tmp_path):
    out = tmp_path / "rows.json"
    begun = time.perf_counter()
    printed = run_small(out, "--rows", "fbpc")
    whole = time.perf_counter() - begun
    (row,) = json.loads(out.read_text())
    assert set(PROMISED) <= row.keys()
    assert row["what"] == "fbpc update"
    assert row["device"] == "cpu"
    assert row["ratio"] == pytest.approx(row["plain_s"] / row["fast_s"])
    assert 0 < row["fast_s"] < whole
    assert 0 < row["plain_s"] < whole
    assert row["map_steps"] >= 10
    assert set(row["versions"]) >= {"torch", "pseudocoreset"}
    assert printed.splitlines()[-2].startswith("ratio")

    printed = run_small(out, "--resume")
    assert "fbpc update, convnet:width=8, ipc 1: done" not in printed
    rows = json.loads(out.read_text())
    assert rows[0] == row
    others = ["fbpc-isotropic update", "bpc-fkl update", "expert epoch", "sghmc 5 seeds"]
    assert [other["what"] for other in rows[1:]] == others
    assert all(other["fast_s"] > 0 for other in rows)
    assert "fbpc update" in printed  # in the table, all the same


def test_how_cost_grows_runs_small(tmp_path):
    out = tmp_path / "rows.json"
    run_small(out, "--scaling")
    rows = json.loads(out.read_text())
    assert [(row["row"]["grows"], row["ipc"], row["map_steps"]) for row in rows] == [
        ("ipc", 1, 10),
        ("ipc", 2, 10),
    ]
    assert all(row["fast_s"] > 0 for row in rows)


def test_memory_alone_has_no_times(tmp_path):
    out = tmp_path / "rows.json"
    run_small(out, "--memory", "--rows", "bpc-w,fbpc-isotropic")
    rows = json.loads(out.read_text())
    assert [row["what"] for row in rows] == ["bpc-w update", "fbpc-isotropic update"]
    for row in rows:
        assert row["peak_gb"] > 0
        assert not {"fast_s", "plain_s", "ratio"} & row.keys()


@pytest.mark.parametrize("what", ["bpc-fkl update", "bpc-w update", "sghmc 5 seeds"])
def test_other_rows(what):
    row = measure(Row(what, "convnet:width=4", 1, "digits", "cpu", repeats=1, small=True))
    json.dumps(row, allow_nan=False)
    assert row["ratio"] == pytest.approx(row["plain_s"] / row["fast_s"])
    assert row["precision"] == "float32"
    assert row["compiled"] is False


def test_a_failure_is_a_row():
    row = Row("fbpc update", "lenet", 1, "digits", "cpu", small=True)
    (found,) = speed.measured_rows([row], side_by_side=False)
    assert "8×8" in found["failed"]
    assert found["row"] == row.as_json()
    assert all(found[name] is None for name in ("plain_s", "fast_s", "ratio", "peak_gb"))
    assert not speed.is_done(found, row)
    assert "8×8" in speed.table([found])


def test_rows_of_other_code_or_another_device_are_measured_again():
    row = Row("expert epoch", "convnet", None, device="cpu")
    old = {"row": row.as_json(), "versions": versions(), "device": "cpu"}
    assert speed.is_done(old, row)
    assert not speed.is_done(old | {"device": "NVIDIA H200"}, row)
    assert not speed.is_done(old | {"versions": {**versions(), "code": "another"}}, row)


def test_a_row_is_the_same_wherever_the_data_are():
    here, there = (Row("fbpc update", "convnet", 1, f"cifar10:{place}") for place in "ab")
    assert here.as_json() == there.as_json()
    assert here.as_json()["data"] == "cifar10:DIR"
    assert Row("fbpc update", "convnet", 1).as_json()["data"] == "stand-in"


def test_the_default_rows_cover_the_papers_tables_and_every_network_and_size(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["speed.py", "--out", "rows.json"])
    rows = speed.wanted_rows(speed.parse())
    cells = {(row.method, row.net, row.ipc) for row in rows}
    assert speed.PAPER.keys() <= cells
    methods = ("fbpc", "fbpc-isotropic", "bpc-fkl")
    assert {*product(methods, ("convnet", "lenet", "resnet18"), (1, 10, 50))} <= cells
    assert {"expert epoch", "sghmc 5 seeds"} <= {row.what for row in rows}


def test_on_a_gpu_all_is_compiled_first_and_the_real_batch_is_stated_apart(monkeypatch):
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


HOLDER = """
import sys, time
from pathlib import Path
from pseudocoreset.engine.files import held
turn, passed = map(Path, sys.argv[1:])
with turn.open("ab") as file, held(file, 0, wait=False):
    print("mine", flush=True)
    time.sleep(1)
    passed.touch()
"""


def test_a_row_waits_for_its_turn(tmp_path, monkeypatch):
    turn, passed = tmp_path / "turn", tmp_path / "passed"
    row = Row("fbpc update", "convnet:width=8", 1, "digits", "cpu", small=True)
    monkeypatch.setattr(
        speed_row, "measure_update", lambda *_: {"fast_s": 1.0, "whole_peak_gb": 1.0}
    )
    command = [sys.executable, "-c", HOLDER, str(turn), str(passed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"mine\n"
        assert measure(row)["fast_s"] == 1
        assert not passed.exists()
        assert measure(row, turn)["fast_s"] == 1
        assert passed.exists()


def test_a_row_takes_the_place_of_the_one_that_it_measures_again():
    def row(ipc, device, repeats=5, **more):
        told = Row("fbpc update", "convnet", ipc, repeats=repeats).as_json()
        return {"row": told, "device": device, **more}

    found = [row(1, "H200"), row(10, "H200"), row(50, "H200")]
    again = row(10, "H200", repeats=3, fast_s=1.0)
    assert speed.with_row(found, again) == [found[0], again, found[2]]
    elsewhere = row(10, "cpu")
    assert speed.with_row(found, elsewhere) == [*found, elsewhere]
    failed = row(10, "H200", failed="no memory")
    assert speed.with_row(found, failed) == found
    assert speed.with_row([found[0], failed], again) == [found[0], again]
    assert speed.with_row(found[:1], failed) == [found[0], failed]


def test_networks_and_sizes_are_chosen_in_the_small_run_too(monkeypatch):
    given = ["speed.py", "--small", "--nets", "lenet,convnet", "--ipcs", "2", "--rows", "fbpc"]
    monkeypatch.setattr(sys, "argv", given)
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
def test_mistakes_are_one_sentence(wrong, says, tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["speed.py", *wrong.split(), "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        exit_with(speed.main)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert not out.exists()


@pytest.mark.parametrize("content", ["no JSON", "[1, 2]", '{"rows": []}', '[{"row": {}}]'])
def test_a_file_of_something_else_is_left_alone(content, tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.json"
    out.write_text(content)
    argv = ["speed.py", "--small", "--rows", "fbpc", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as ended:
        exit_with(speed.main)
    assert ended.value.code == 2
    assert "is no list of this script's rows" in capsys.readouterr().err
    assert out.read_text() == content


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_a_cpu_takes_is_not_written_among_the_results():
    command = [sys.executable, speed.__file__, "--rows", "fbpc"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "give --out" in done.stderr


def test_pieces_of_memory_are_those_held_at_the_peak():
    def event(action, addr, mib, *functions, stream=0):
        frames = [{"filename": str(file), "name": name} for file, name in functions]
        size = mib * 2**20
        return {"action": action, "addr": addr, "size": size, "stream": stream, "frames": frames}

    package = memory_profile.PACKAGE
    step = [("/x/torch/nn.py", "linear"), (package / "training.py", "_step")]
    step += [(package / "engine" / "loop.py", "run"), (package / "divergences" / "a.py", "solve")]
    step += [("/x/pseudocoreset/x.py", "main")]
    events = [
        event("segment_alloc", 1, 20, *step),
        event("alloc", 1, 500),  # out of a piece that is there
        event("segment_alloc", 2, 64),
        event("segment_free", 2, 64),
        event("segment_alloc", 3, 2),
        event("segment_alloc", 4, 20, *step),
        event("segment_alloc", 8, 3, *step, stream=77),
        event("segment_free", 5, 900),  # from before
        event("segment_alloc", 6, 50),
        event("segment_free", 1, 20),
        event("segment_alloc", 7, 10),
    ]
    first, second = {"stream": "stream 1"}, {"stream": "stream 2"}
    assert memory_profile.pieces_at_peak(events) == [
        first | {"mib": 52.0, "number": 2, "for": "libraries"},
        first | {"mib": 40.0, "number": 2, "for": "a.solve"},
        second | {"mib": 3.0, "number": 1, "for": "a.solve"},
    ]
    (largest, _) = memory_profile.pieces_at_peak(events[:4])
    assert largest == first | {"mib": 64.0, "number": 1, "for": "libraries"}


@pytest.mark.parametrize("failing", [None, "lenet"])
def test_a_failure_leaves_the_pieces_that_were_stored(tmp_path, monkeypatch, capsys, failing):
    def child(net, ipc, allocator, streams):
        found = {"failed": "no room"} if net == failing else {"peak_gb": 0.5, "pieces": []}
        return {"net": net, "ipc": ipc, "allocator": allocator, "streams": streams, **found}

    file = tmp_path / "profile.json"
    file.write_text("[]")
    monkeypatch.setattr(memory_profile, "child", child)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sys, "argv", ["memory_profile.py", "--out", str(file)])
    assert memory_profile.main() == (1 if failing else 0)
    rows = 2 * len(memory_profile.CASES) * len(memory_profile.ALLOCATORS)
    assert len(json.loads(file.read_text())) == (0 if failing else rows)
    assert ("no room" in capsys.readouterr().out) == bool(failing)


def test_pytorch_takes_the_settings_of_the_allocator():
    for allocator in memory_profile.ALLOCATORS[1:]:  # each for good: in a process of its own
        program = f"import torch; torch._C._accelerator_setAllocatorSettings({allocator!r})"
        subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_pieces_of_memory_without_a_gpu_are_refused():
    command = [sys.executable, memory_profile.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no GPU here" in done.stderr


def test_looks_at_the_loss_are_taken_as_often_as_it_says(tmp_path, monkeypatch, capsys):
    taken = []
    take = Training.take
    monkeypatch.setattr(Training, "take", lambda *given: taken.append(1) or take(*given))
    out = tmp_path / "looks.json"
    monkeypatch.setattr(sys, "argv", ["looks.py", "--small", "--device", "cpu", "--out", str(out)])
    usual = map_solution.BLOCK
    assert looks.main() == 0
    rows = json.loads(out.read_text())
    assert [row["method"] for row in rows] == ["fbpc", "fbpc-isotropic"]
    # Of each method a first update and one that counts, with six looks and then with one.
    assert len(taken) == 2 * 2 * (6 + 1)
    assert usual == map_solution.BLOCK
    for row in rows:
        assert median(row["each_s"]) == row["seconds"]
        assert median(row["each_with_one_s"]) == row["seconds_with_one"]
        gained = row["seconds"] - row["seconds_with_one"]
        assert row["look_s"] == pytest.approx(gained / 5)
    assert capsys.readouterr().out.count("a look") == 2
