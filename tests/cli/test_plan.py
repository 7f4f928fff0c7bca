"""`plan` says beforehand what a command takes."""

import json
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

import plan_check
from pseudocoreset import FBPC, SGHMC, VBPC, Ensemble, Random, distill, load_data
from pseudocoreset.cli import main
from pseudocoreset.cli import plan as plan_command
from pseudocoreset.data import Split
from pseudocoreset.distillation import DistillOptions, resolve
from pseudocoreset.distillation import run as run_job
from pseudocoreset.engine.progress import SILENT
from pseudocoreset.experts import ExpertOptions
from pseudocoreset.nets import make_net
from pseudocoreset.plan import estimate as plan
from pseudocoreset.plan import measure
from pseudocoreset.plan.measure import Enough, Stopwatch, seconds_a_step

NET = ["--data", "digits", "--net", "convnet:width=8", "--device", "cpu"]
LEARNED = {"labels": "learned", "optimizer": "adam", "init": "noise"}
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "plan_check.py"


@pytest.fixture(scope="module")
def start_s():
    """What it takes to start the libraries, measured once."""
    return measure.seconds_to_start(torch.device("cpu"))


@pytest.fixture(autouse=True)
def hasty(monkeypatch, start_s):
    monkeypatch.setattr(plan, "BUDGET_S", 0.05)
    monkeypatch.setattr(plan_command, "seconds_to_start", lambda _: start_s)


def planned(tmp_path, *arguments, common=NET):
    file = tmp_path / "plan.json"
    assert main(["plan", *map(str, arguments), *common, "--json", str(file)]) == 0
    return json.loads(file.read_text())


def test_experts_plan_is_what_they_take(tmp_path, capsys):
    given = ["--num", 2, "--epochs", 3, "--batch", 64, "--from-epoch", 1]
    found = planned(tmp_path, "experts", *given)
    said = capsys.readouterr().out
    assert main([*map(str, ["experts", *given, "--out", tmp_path / "store"]), *NET, "--quiet"]) == 0
    files = list((tmp_path / "store").glob("*.safetensors"))
    weights = sum(path.stat().st_size for path in files)
    assert 0 <= weights - found["disk_bytes"] < 1500 * len(files)  # their descriptions
    assert list(found["parameters"].values()) == [1026]
    assert "1,026" in said
    assert found["steps"] == 6
    assert found["seconds"] == pytest.approx(found["once_s"] + 6 * found["step_s"])
    assert found["step_s"] > 0
    assert found["peak_bytes"] > 1e8
    half = planned(tmp_path, "experts", *given, "--half")
    assert half["disk_bytes"] == found["disk_bytes"] / 2


def test_experts_plan_counts_their_snapshots(tmp_path):
    given = ["experts", "--num", 1, "--batch", 64, "--from-epoch", 1]
    few, many = (planned(tmp_path, *given, "--epochs", n)["peak_bytes"] for n in (1, 100_001))
    assert 0.7 < (many - few) / (100_000 * 1026 * 4 * 2) < 1.3  # in a list, and to be written


def test_experts_plan_scores_as_many_images_at_once(monkeypatch):
    """They take more memory than a step."""
    monkeypatch.setattr(plan, "TEST_BATCH", 300)
    data, cpu = load_data("digits"), torch.device("cpu")
    net = make_net("convnet:width=8", **data.shape)
    short = plan._ShortTrainings(data, net, net.spec, ExpertOptions(batch=64), cpu)
    assert (len(short.part(2).train), len(short.part(2).test)) == (128, 300)


def test_plan_counts_the_start_of_the_libraries(tmp_path, monkeypatch, start_s):
    assert start_s > 0.2  # PyTorch alone takes as long
    monkeypatch.setattr(plan_command, "seconds_to_start", lambda _: 1000 + start_s)
    found = planned(tmp_path, "evaluate", "--epochs", 2, "--every", 1, "--seeds", 1)
    assert found["once_s"] > 1000


def test_plan_counts_the_page(tmp_path, monkeypatch):
    digits = load_data("digits")
    coreset = distill(digits, method="random", ipc=1, net="convnet", device="cpu")
    assert plan_command._seconds_of_a_page(coreset) > 0.01  # it is drawn
    drawn = []
    monkeypatch.setattr(
        plan_command, "_seconds_of_a_page", lambda coreset: drawn.append(len(coreset)) or 1000
    )

    def has_a_page(*given, **common):
        return planned(tmp_path, *given, **common)["once_s"] > 1000

    short = ["--epochs", 2, "--every", 1, "--seeds", 1]
    assert has_a_page("evaluate", *short)
    assert has_a_page("distill", "--method", "random", "--ipc", 1)
    assert not has_a_page("experts", "--num", 1, "--epochs", 1)
    run, alone = tmp_path / "run", tmp_path / "alone.safetensors"
    distill(digits, method="random", ipc=1, net="convnet:width=8", out=run, device="cpu")
    alone.write_bytes((run / "coreset.safetensors").read_bytes())
    assert not has_a_page("evaluate", alone, *short)
    made = run / "coreset.safetensors"
    assert has_a_page("evaluate", made, *short, common=["--data", "digits", "--device", "cpu"])
    assert not has_a_page("evaluate", made, *short)  # by a network that is named
    assert drawn == [100, 10, 10]  # what is evaluated, and what is to be made


@pytest.mark.parametrize(
    ("num", "epochs", "step", "between"),
    [(20, 30, 0.0006, 0.01), (100, 50, 0.0006, 0.01), (20, 30, 0.0001, 0.001), (3, 2, 0.05, 0.01)],
    ids=["CIFAR-10", "many", "fast", "slow"],
)
def test_experts_plan_on_a_gpu_is_for_two_at_a_time(monkeypatch, num, epochs, step, between):
    """By a clock that knows what is done once, for an expert, for an epoch and for a step."""
    compiling, capturing, storing = 20.0, 2.0, 0.3
    now, planned = [0.0], []
    monkeypatch.setattr(plan, "BUDGET_S", 5.0)

    def train(data, net, out, settings, *, device, progress=SILENT):
        now[0] += capturing if planned else compiling + capturing
        planned.append((settings.num, settings.epochs, len(data.train)))
        steps = len(data.train) // settings.batch
        with progress.task("experts", settings.num * settings.epochs) as task:
            for first in range(0, settings.num, 2):
                both = min(2, settings.num - first)
                for _ in range(settings.epochs * both):
                    now[0] += steps * step + between
                    task.advance()
                now[0] += storing * both

    monkeypatch.setattr(plan, "train_experts", train)
    monkeypatch.setattr(plan, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(plan, "device_name", str)
    monkeypatch.setattr(plan, "PeakMemory", lambda _: Mock(whole=lambda: 0))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(plan, "synchronize", lambda _: None)

    def would_wait(_):
        raise AssertionError("to wait for one is to wait for both")

    monkeypatch.setattr(measure, "synchronize", would_wait)
    images = load_data("digits").train
    many = Split(images.inputs.repeat(39, 1, 1, 1), images.targets.repeat(39))
    data = replace(load_data("digits"), train=many)
    settings = ExpertOptions(num, epochs)
    found = plan.plan_experts(data, "convnet:width=8", settings)
    spent = now[0]
    assert found.steps == num * epochs
    assert max(number for number, _, _ in planned) <= 4
    planned, now[0] = [], 0.0
    train(data, "", "", settings, device="cuda")
    scoring = num * len(data.test) / settings.batch * step / 3
    # Where four steps are an epoch's measure, so is what comes between epochs.
    near = 0.06 if step > 0.01 else 0.02
    assert found.seconds == pytest.approx(now[0] + scoring, rel=near)
    assert spent < 45 + 100 * step


def test_experts_plan_from_one_slow_epoch(monkeypatch):
    monkeypatch.setattr(measure, "SLOW_S", 0.0)
    settings = ExpertOptions(num=2, epochs=3, batch=64)
    found = plan.plan_experts(load_data("digits"), "convnet:width=8", settings, device="cpu")
    assert found.measured_steps == 1
    assert found.step_s > 0


def test_distill_plan_needs_no_experts(tmp_path, capsys):
    given = ["--ipc", 1, "--steps", 500, "--covariance-steps", 2, "--gamma", 1]
    found = planned(tmp_path, "distill", *given)
    assert found["steps"] == 500
    assert plan.LEAST_UPDATES <= found["measured_steps"] < 100
    assert "MAP" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_distill_plan_takes_an_own_network(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "net_of_small_images.py").write_text(
        "from torch import nn\n"
        "def make(channels, image_size, classes):\n"
        "    size = channels * image_size**2\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(size, classes))\n"
    )
    own = ["--data", "digits", "--image-size", "4", "--net", "net_of_small_images:make"]
    given = ["--method", "random", "--ipc", 1]
    assert planned(tmp_path, "distill", *given, common=[*own, "--device", "cpu"])["steps"] == 0


@pytest.mark.parametrize(
    "given",
    [
        ["--method", "bpc-fkl", "--samples", 1, "--start-epochs", 10],
        ["--method", "bpc-w", "--expert-epochs", 5],
    ],
)
def test_distill_plan_has_all_epochs_without_experts(tmp_path, given):
    found = planned(tmp_path, "distill", "--ipc", 1, "--steps", 9, *given)
    assert found["measured_steps"] >= plan.LEAST_UPDATES


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (FBPC(gamma=3.0, from_epoch=1), DistillOptions(ipc=20, steps=1)),
        (FBPC(gamma=3.0, from_epoch=1), DistillOptions(ipc=20, steps=1, average=0.5)),
        (Random(), DistillOptions(ipc=20)),
        (VBPC(real_batch=16), DistillOptions(ipc=20, steps=1)),
        (VBPC(real_batch=16), DistillOptions(ipc=60, steps=1, **LEARNED)),
    ],
    ids=["fbpc", "averaged", "random", "vbpc", "adam"],
)
def test_run_takes_the_disk_that_was_planned(data, store, tmp_path, method, options):
    stores = [store] if method.needs_experts else []
    nets = [] if stores else [store.identity.net]
    job = resolve(data, stores, method, options)
    found = plan.plan_distill(data, stores, job, nets=nets, device="cpu")
    run_job(job, data, stores, nets=nets, out=tmp_path, device="cpu")
    files = list(tmp_path.glob("*.safetensors"))
    taken = sum(path.stat().st_size for path in files)
    assert 0 <= taken - found.disk_bytes < 1000 + 2000 * len(files)  # descriptions


def test_distill_plan_of_random_has_no_updates(tmp_path):
    found = planned(tmp_path, "distill", "--method", "random", "--ipc", 1)
    assert found["steps"] == found["measured_steps"] == 0


def test_distill_plan_counts_the_warm_up_once(tmp_path):
    """It is not run, and takes as long as 100,000 updates of 2 steps."""
    given = ["--method", "bpc-cd", "--ipc", 1, "--chains", 1, "--chain-steps", 2]
    found = planned(tmp_path, "distill", *given, "--warm-up", 200_000, "--steps", 9)
    assert found["measured_steps"] >= plan.LEAST_UPDATES
    assert found["once_s"] == pytest.approx(100_000 * found["step_s"], rel=0.1)


def test_evaluate_plan_needs_no_coreset(tmp_path):
    given = ["--ipc", 1, "--epochs", 100, "--every", 50]
    found = planned(tmp_path, "evaluate", *given, "--seeds", 3)
    assert found["steps"] == 300
    assert found["step_s"] > 0
    ensemble = planned(tmp_path, "evaluate", *given, "--seeds", 3, "--sampler", "map")
    assert ensemble["steps"] == 600


def test_evaluate_plan_counts_random_points(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plan_command, "_seconds_of_a_page", lambda each: drawn.append(each) or 0.0)
    given = ["evaluate", "--ipc", 1, "--epochs", 100, "--every", 50, "--seeds", 3]
    assert planned(tmp_path, *given, "--random")["steps"] == 600
    assert len(drawn) == 1  # the page shows the coreset
    both = ["--data", "digits", "--net", "convnet:width=8", "--net", "convnet:width=16"]
    assert planned(tmp_path, *given, "--random", common=both)["steps"] == 1200
    assert len(drawn) == 1
    assert planned(tmp_path, *given, "--random", "gallery:digits-10")["steps"] == 600


@pytest.mark.parametrize("chosen", [SGHMC(), Ensemble()], ids=["sghmc", "map"])
def test_evaluate_plan_is_robust_to_jitter(monkeypatch, chosen):
    """By a clock that knows what is done once, for a network, an epoch and a prediction."""
    beginning, network, epoch, prediction, jitter = 2.0, 0.03, 0.002, 0.001, 0.02
    now, runs = [0.0], []

    def evaluate(coreset, data, protocol, *, seeds, **_):
        now[0] += [beginning, jitter, jitter, -jitter][len(runs)]
        samples = protocol.epochs // protocol.every
        networks = samples if chosen.ensemble else 1
        now[0] += seeds * networks * (network + protocol.epochs * epoch)
        now[0] += seeds * samples * len(data.test) * prediction
        runs.append(protocol)

    monkeypatch.setattr(plan, "BUDGET_S", 5.0)
    monkeypatch.setattr(plan, "evaluate", evaluate)
    monkeypatch.setattr(plan.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(plan, "TEST_BATCH", 50)
    data = load_data("digits")
    coreset = distill(data, method="random", ipc=1, net="convnet", device="cpu")
    found = plan.plan_evaluate(coreset, data, None, chosen, seeds=3, device="cpu")
    spent, now[0] = now[0], 0.0
    runs.clear()
    evaluate(coreset, data, chosen, seeds=3)
    assert found.seconds == pytest.approx(now[0], rel=0.1)
    assert spent < 20


def test_evaluate_plan_adds_networks(tmp_path, monkeypatch):
    plans = {}
    of_one = plan.plan_evaluate

    def noted(coreset, data, net, *rest, **options):
        plans[net] = of_one(coreset, data, net, *rest, **options)
        return plans[net]

    pages = []
    monkeypatch.setattr(plan_command, "plan_evaluate", noted)
    monkeypatch.setattr(plan_command, "_seconds_of_a_page", pages.append)
    monkeypatch.setattr(plan_command, "seconds_to_start", lambda _: 0.0)
    nets = ["convnet:width=8", "convnet:width=16"]
    both = ["--data", "digits", *(part for net in nets for part in ("--net", net))]
    given = ["--ipc", 1, "--epochs", 20, "--every", 10, "--device", "cpu"]
    found = planned(tmp_path, "evaluate", *given, common=both)
    assert list(plans) == nets
    one, other = plans.values()
    assert found["parameters"] == {**one.parameters, **other.parameters}
    assert found["peak_bytes"] == max(one.peak_bytes, other.peak_bytes)
    assert found["steps"] == one.steps + other.steps
    in_steps = one.steps * one.step_s + other.steps * other.step_s
    assert found["steps"] * found["step_s"] == pytest.approx(in_steps)
    assert found["once_s"] > one.once_s + other.once_s  # and the data that were loaded
    assert not pages  # a page shows the scores of a coreset's own network alone


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["evaluate", "--split", "holdout"], "--holdout"),
        (["evaluate", "--split", "train"], "--split"),
        (["evaluate", "--seeds", "0"], "--seeds"),
        (["experts", "--num", "0"], "--num"),
        (["experts", "--batch", "0"], "--batch"),
        (["experts", "--epochs", "2", "--from-epoch", "5"], "--from-epoch"),
        (["experts", "--from-replay", "somewhere"], "--from-replay"),
        (["distill", "--ipc", "many"], "--ipc"),
        (["distill", "--ipc", "0"], "--ipc"),
        (["distill", "--method", "best"], "--method"),
        (["evaluate", "nowhere"], "nowhere"),
        (["distill", "--experts", "nowhere"], "nowhere"),
    ],
)
def test_plan_refuses_what_the_command_would(arguments, named, capsys):
    assert main(["plan", *arguments, *NET]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert named in said


def test_stopwatch_stops_when_it_has_enough():
    watch = Stopwatch(torch.device("cpu"), least=2, seconds=0.0)
    with watch.task("work", 10) as task:
        task.advance(number=0)
        task.advance(number=1)
        with pytest.raises(Enough):
            task.advance(number=2)
    assert [figures["number"] for figures in watch.figures] == [0, 1, 2]
    assert len(watch.durations) == 3


@pytest.mark.parametrize(("device", "enough"), [("cpu", True), ("meta", False)])
def test_stopwatch_takes_one_slow_step_on_a_cpu(monkeypatch, device, enough):
    monkeypatch.setattr(measure, "SLOW_S", 0.0)
    stopped = pytest.raises(Enough) if enough else nullcontext()
    with Stopwatch(torch.device(device), least=2, seconds=9.0).task("work", 10) as task, stopped:
        task.advance()
    with Stopwatch(torch.device(device)).task("all of it", 10) as task:
        task.advance()


def test_seconds_a_step_leave_out_what_is_done_once():
    assert seconds_a_step((10, 3.0), (30, 5.0)) == pytest.approx(0.1)
    assert seconds_a_step((10, 3.0), (30, 2.0)) == pytest.approx(2 / 30)


@pytest.mark.parametrize(
    ("took", "code"),
    [((10.0, 100), 0), ((16.0, 100), 1), ((10.0, 160), 1), ((10.0, 60), 1)],
    ids=["as planned", "slower", "more memory", "less memory"],
)
def test_plan_check_compares_time_memory_and_disk(tmp_path, monkeypatch, took, code):
    planned = []

    def run(device, command, *arguments):
        given = [str(argument) for argument in arguments]
        if command == "plan":
            planned.append(given[0])
            cold = len(planned) == 1  # the first of all plans has to compile, and is made again
            seconds, notes = (99.0, [plan_command.COMPILED]) if cold else (10.0, [])
            figures = {"seconds": seconds, "peak_bytes": 100, "disk_bytes": 50, "notes": notes}
            Path(given[given.index("--json") + 1]).write_text(json.dumps(figures))
        elif command == "experts":
            store = Path(given[given.index("--out") + 1], "one")
            store.mkdir(parents=True)
            (store / "snapshots").write_bytes(bytes(40))
        return took

    monkeypatch.setattr(plan_check, "run", run)
    file = tmp_path / "plan.json"
    monkeypatch.setattr(sys, "argv", ["plan_check.py", "--out", str(file)])
    assert plan_check.main() == code
    rows = json.loads(file.read_text())["rows"]
    assert [row["command"] for row in rows] == ["experts", "distill", "evaluate"] * 3
    assert planned == ["experts", *["experts", "distill", "evaluate"] * 3]
    assert [row["disk_ratio"] for row in rows] == [1.25, None, None] * 3
    for row in rows:
        assert (row["ratio"], row["memory_ratio"]) == (10.0 / took[0], 100 / took[1])


def test_plan_says_that_it_had_to_compile(tmp_path, monkeypatch, capsys):
    given = ["evaluate", "--ipc", 1, "--epochs", 2, "--every", 2, "--seeds", 1]
    assert plan_command.COMPILED not in planned(tmp_path, *given)["notes"]
    dynamo = SimpleNamespace(counters={"inductor": Counter(fxgraph_cache_hit=3)})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", dynamo)
    assert plan_command.COMPILED not in planned(tmp_path, *given)["notes"]
    dynamo.counters["inductor"]["fxgraph_cache_miss"] = 1
    assert plan_command.COMPILED in planned(tmp_path, *given)["notes"]
    assert plan_command.COMPILED in capsys.readouterr().out


def test_plan_check_refuses_wrong_options(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plan_check.py", "--short", "--out", str(tmp_path / "p")])
    with pytest.raises(SystemExit, match="2"):
        plan_check.main()
    assert "--short is for other data" in capsys.readouterr().err


@pytest.mark.slow
def test_plan_is_within_a_factor_of_what_happens(tmp_path):
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path / "plan.json")]
    subprocess.run(command, check=True)


def test_plan_takes_a_command_with_its_out_and_writes_nothing_there(tmp_path):
    out = tmp_path / "out"
    planned(tmp_path, "experts", "--num", 1, "--epochs", 1, "--out", out)
    planned(tmp_path, "distill", "--ipc", 1, "--steps", 2, "--tensorboard", "--out", out)
    assert not out.exists()


def test_plan_names_options_as_flags(tmp_path, capsys):
    planned(tmp_path, "experts", "--num", 1, "--epochs", 1)
    said = capsys.readouterr().out
    assert "--half" in said
    assert "--from-epoch" in said
    assert "`" not in said
