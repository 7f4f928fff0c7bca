"""The loop: descent, going on after a crash, and what it refuses."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import toy_methods
from pseudocoreset import DistillSettings, distill, run_folder
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.divergences import FBPC
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.run_folder import read_config, read_metrics
from small_world import CLASSES, NET, make_data, make_store

FAST = {
    "ipc": 2,
    "method": "fbpc-isotropic",
    "steps": 7,
    "lr_images": 1.0,
    "from_epoch": 1,
    "gamma": 1.5,
    "batch": 4,
    "samples": 3,
    "max_map_steps": 60,
    "checkpoint_every": 3,
}


def toy(name, **changes):
    return DistillSettings(**{**FAST, "method": f"toy_methods:{name}", "lr_images": 0.1, **changes})


def fbpc(**changes):
    return DistillSettings(**{**FAST, **changes})


def run(data, store, settings, out=None, seed=5):
    return distill(data, store, settings, out=out, seed=seed, device="cpu")


def outcome(folder):
    """The coreset's tensors and the text of the metrics."""
    tensors = load_file(folder / "coreset.safetensors")
    return tensors, (folder / "metrics.jsonl").read_text(encoding="utf-8")


def assert_same_outcome(one, other):
    (tensors, metrics), (other_tensors, other_metrics) = outcome(one), outcome(other)
    assert tensors.keys() == other_tensors.keys()
    assert all(torch.equal(tensors[name], other_tensors[name]) for name in tensors)
    assert metrics == other_metrics


class Interruption(Exception):  # noqa: N818 - it is none
    pass


def interrupt_in_call(monkeypatch, number):
    """Let the `number`-th gradient raise, once."""
    calls, gradient = [0], FBPC.gradient

    def counted(self, coreset, state, rng):
        calls[0] += 1
        if calls[0] == number:
            raise Interruption
        return gradient(self, coreset, state, rng)

    monkeypatch.setattr(FBPC, "gradient", counted)


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (1, {}),
        (3, {}),
        (4, {"method": "fbpc", "steps": 5}),
        (5, {"learn_labels": True}),
        (7, {"draws": 2}),
        (6, {"average": 0.4}),
    ],
)
def test_interrupted_run_goes_on_to_the_same_coreset(
    data, store, tmp_path, monkeypatch, call, changes
):
    settings = fbpc(**changes)
    run(data, store, settings, tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupt_in_call(patch, call)
        with pytest.raises(Interruption):
            run(data, store, settings, tmp_path / "cut")
    assert not (tmp_path / "cut/coreset.safetensors").exists()
    run(data, store, settings, tmp_path / "cut")
    assert_same_outcome(tmp_path / "whole", tmp_path / "cut")
    assert len(read_metrics(tmp_path / "cut")) == settings.steps


def test_crash_between_metrics_and_checkpoint(data, store, tmp_path, monkeypatch):
    """Lines of updates that are done again are not there twice; a line cut short is dropped."""
    settings = toy("Quadratic")
    run(data, store, settings, tmp_path / "whole")
    run(data, store, replace(settings, steps=5), tmp_path / "cut")
    with (tmp_path / "cut/metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"update": 6, "count": 6.0}\n{"update": 7, "cou')
    run(data, store, replace(settings, checkpoint_every=7), tmp_path / "cut")
    assert_same_outcome(tmp_path / "whole", tmp_path / "cut")


def test_a_line_of_metrics_that_names_no_update_ends_them(data, store, tmp_path):
    run(data, store, toy("Quadratic", steps=5), tmp_path / "run")
    path = tmp_path / "run/metrics.jsonl"
    path.write_text(path.read_text().replace('"update": 4', '"date": 4'))
    run(data, store, toy("Quadratic", steps=7), tmp_path / "run")
    assert [row["update"] for row in read_metrics(tmp_path / "run")] == [1, 2, 3, 6, 7]


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_distill import make_data, run, toy
from pseudocoreset.experts import ExpertStore
run(make_data(), ExpertStore.open(sys.argv[2]), toy(sys.argv[3]), Path(sys.argv[4]))
"""


def test_killed_process_goes_on_to_the_same_coreset(data, store, tmp_path):
    """SIGKILL, for real, in the seventh update; two starts of one command, as a person would."""
    here = str(Path(__file__).parent)
    environment = {**os.environ, "TOY_MARKER": str(tmp_path / "marker")}
    arguments = [here, str(store.path), "KilledAtSeven", str(tmp_path / "cut")]
    codes = [
        subprocess.run([sys.executable, "-c", SCRIPT, *arguments], env=environment).returncode
        for _ in range(2)
    ]
    assert codes == [-9, 0]
    run(data, store, toy("Quadratic"), tmp_path / "whole")
    assert_same_outcome(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("average", [0.0, 0.3])
def test_more_steps_equal_a_longer_run_at_once(data, store, tmp_path, average):
    run(data, store, fbpc(steps=4, average=average), tmp_path / "extended")
    run(data, store, fbpc(steps=7, average=average), tmp_path / "extended")
    run(data, store, fbpc(steps=7, average=average), tmp_path / "whole")
    assert_same_outcome(tmp_path / "whole", tmp_path / "extended")
    assert read_config(tmp_path / "extended")["steps"] == 7


def test_fewer_steps_than_were_made_are_refused(data, store, tmp_path):
    """The coreset would be one of 5 updates that says it had 3."""
    run(data, store, toy("Quadratic", steps=5), tmp_path / "run")
    with pytest.raises(UserError, match="--steps 5 or more"):
        run(data, store, toy("Quadratic", steps=3), tmp_path / "run")
    assert read_config(tmp_path / "run")["steps"] == 5


def test_finished_run_is_left_as_it_is(data, store, tmp_path):
    first = run(data, store, toy("Quadratic"), tmp_path / "run")
    before = outcome(tmp_path / "run")[1]
    second = run(data, store, toy("Quadratic"), tmp_path / "run")
    assert torch.equal(first.images, second.images)
    assert outcome(tmp_path / "run")[1] == before


@pytest.mark.parametrize(
    ("changes", "seed", "name"),
    [
        ({"lr_images": 0.3}, 5, "lr_images"),
        ({"ipc": 3}, 5, "ipc"),
        ({"method": "fbpc-isotropic"}, 5, "method"),
        ({"learn_labels": True}, 5, "learn_labels"),
        ({"dsa": "crop"}, 5, "dsa"),
        ({}, 6, "seed"),
    ],
)
def test_folder_of_other_settings_is_refused_by_name(data, store, tmp_path, changes, seed, name):
    run(data, store, toy("Quadratic", steps=1), tmp_path / "run")
    before = (tmp_path / "run/config.yaml").read_bytes()
    with pytest.raises(UserError, match=rf"holds a run with {name} .*another --out"):
        run(data, store, replace(toy("Quadratic", steps=1), **changes), tmp_path / "run", seed)
    assert (tmp_path / "run/config.yaml").read_bytes() == before


def test_folder_of_other_experts_or_data_is_refused(data, store, tmp_path):
    out, settings = tmp_path / "run", fbpc(steps=1)
    run(data, store, settings, out)
    shutil.copytree(store.path, tmp_path / "more")
    first = ExpertStore.open(tmp_path / "more").trajectories[0]
    shutil.copy(first, first.with_name("trajectory-0007.safetensors"))
    with pytest.raises(UserError, match=r"holds a run with other experts: .*another --out"):
        run(data, ExpertStore.open(tmp_path / "more"), settings, out)
    others = make_data(seed=1)
    with pytest.raises(UserError, match="holds a run with data_fingerprint"):
        run(others, make_store(tmp_path / "others", others), settings, out)
    held = data.hold_out(CLASSES)
    with pytest.raises(UserError, match=r"holds a run with (holdout|data_fingerprint)"):
        run(held, make_store(tmp_path / "held", held), settings, out)
    other_net = make_store(tmp_path / "net", data, net="convnet:width=4,depth=1")
    with pytest.raises(UserError, match="holds a run with nets"):
        run(data, other_net, settings, out)


@pytest.mark.parametrize("changes", [{"noise": 0.02}, {"average": 0.5}, {"student_steps": 3}])
def test_folder_of_another_figure_of_the_method_is_refused(data, store, tmp_path, changes):
    settings = DistillSettings("bpc-rkl", ipc=2, steps=1, samples=2, student_steps=2)
    run(data, store, settings, tmp_path / "run")
    with pytest.raises(UserError, match=f"holds a run with {next(iter(changes))} "):
        run(data, store, replace(settings, **changes), tmp_path / "run")


def test_a_run_goes_on_with_another_group(data, store, tmp_path):
    settings = DistillSettings("bpc-rkl", ipc=2, steps=1, samples=2, student_steps=2)
    run(data, store, settings, tmp_path / "run")
    run(data, store, replace(settings, steps=2, group=2), tmp_path / "run")
    assert [row["update"] for row in read_metrics(tmp_path / "run")] == [1, 2]


def test_one_process_at_a_time_in_a_folder(data, store, tmp_path):
    settings = fbpc(steps=1)
    run(data, store, settings, tmp_path / "run")
    code = """if True:
        import sys, time
        from pathlib import Path
        from pseudocoreset.run_folder import RunFolder, read_config
        path = Path(sys.argv[1])
        with RunFolder(path, read_config(path)).alone():
            print("in", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"in\n"
    with pytest.raises(UserError, match=r"another process is at work in .*run: wait for it to end"):
        run(data, store, replace(settings, steps=2), tmp_path / "run")
    assert read_config(tmp_path / "run")["steps"] == 1  # the other one's
    other.communicate()
    run(data, store, replace(settings, steps=2), tmp_path / "run")
    assert len(read_metrics(tmp_path / "run")) == 2


def test_an_update_that_an_interrupt_wrote_twice_counts_once(data, store, tmp_path, monkeypatch):
    write = run_folder.write_tensors
    fails = iter([True])

    def interrupted(path, *given):
        if path.name == "checkpoint.safetensors" and next(fails, False):
            with (tmp_path / "run" / "metrics.jsonl").open("a") as file:  # as if it were amid it
                file.write((tmp_path / "run" / "metrics.jsonl").read_text())
            raise KeyboardInterrupt
        write(path, *given)

    monkeypatch.setattr(run_folder, "write_tensors", interrupted)
    settings = toy("Quadratic", checkpoint_every=2, steps=4)
    with pytest.raises(KeyboardInterrupt):
        run(data, store, settings, tmp_path / "run")
    assert [row["update"] for row in read_metrics(tmp_path / "run")] == [1, 2]
    run(data, store, settings, tmp_path / "run")
    assert [row["update"] for row in read_metrics(tmp_path / "run")] == [1, 2, 3, 4]


def test_settings_that_were_resolved_the_same_go_on(data, store, tmp_path):
    """Numbers that a YAML file writes in its own way are not other numbers."""
    settings = toy("Quadratic", lr_images=1e-5, learn_labels=True, lr_labels=1e6)
    run(data, store, replace(settings, steps=2), tmp_path / "run")
    run(data, store, settings, tmp_path / "run")


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a folder"])
def test_gradient_that_is_not_finite_stops_the_run(data, store, tmp_path, monkeypatch, kept):
    out = tmp_path / "run" if kept else None
    settings = toy("NotFinite")
    with pytest.raises(UserError, match=r"update 3 .*--lr-images \(0.1\)"):
        run(data, store, settings, out)
    if not kept:
        return
    assert [row["update"] for row in read_metrics(out)] == [1, 2]
    good = run(data, store, replace(settings, steps=2), tmp_path / "two")
    assert torch.equal(load_file(out / "checkpoint.safetensors")["images"], good.images)
    monkeypatch.setattr(toy_methods.NotFinite, "broken", False)
    run(data, store, settings, out)
    run(data, store, settings, tmp_path / "whole")
    assert_same_outcome(out, tmp_path / "whole")


def test_gamma_out_of_reach_is_warned_of(data, store):
    with pytest.warns(RuntimeWarning, match=r"^2 of 2 updates .*γ = 1e-09 within 10 steps"):
        run(data, store, fbpc(steps=2, gamma=1e-9, max_map_steps=10))


def test_updates_that_missed_gamma_are_counted_over_all_of_a_run(data, store, tmp_path):
    """Those before the run was cut too; and an update of two networks is one update."""
    with pytest.warns(RuntimeWarning, match="^2 of 4 updates"):
        run(data, store, toy("Missing", steps=4), tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="^3 of 7 updates"):
        run(data, store, toy("Missing", steps=7), tmp_path / "run")


def test_momentum_is_that_of_torch(data, store):
    found = run(data, store, toy("Quadratic", steps=6, learn_labels=True, lr_labels=2.0))
    start = run(data, store, toy("Quadratic", steps=0, learn_labels=True))
    images, logits = start.images.clone(), start.labels.log()
    parameters = [image.requires_grad_() for image in (images, logits)]
    optimiser = torch.optim.SGD(
        [{"params": [images], "lr": 0.1}, {"params": [logits], "lr": 2.0}], momentum=0.5
    )
    rng, target = Rng(torch.device("cpu"), 0), torch.eye(CLASSES)[0]
    for update in range(1, 7):
        rng.reseed(5, "update", update)
        noise = torch.randn(images.shape, generator=rng.device)
        loss = (images - 0.5 + noise).square().sum() / 2
        loss = loss + (logits.softmax(1) - target).square().sum() / 2
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimiser.step()
    torch.testing.assert_close(found.images, images.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.labels, logits.softmax(1).detach(), rtol=1e-5, atol=1e-5)


def test_average_weighs_the_late_updates(data, store):
    """With a share of ½, η = 1: update t counts as t does."""
    found = run(data, store, toy("Quadratic", steps=4, average=0.5, learn_labels=True))
    singly = [run(data, store, toy("Quadratic", steps=n, learn_labels=True)) for n in range(1, 5)]
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0]) / 10
    images = sum(w * one.images for w, one in zip(weights, singly, strict=True))
    logits = sum(w * one.labels.log() for w, one in zip(weights, singly, strict=True))
    torch.testing.assert_close(found.images, images, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.labels, logits.softmax(1), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found.images, singly[-1].images, atol=1e-2)


def test_images_without_gradient_stay_put_in_spite_of_their_momentum(data, store):
    one, two, three = (run(data, store, toy("EveryOther", steps=n)).images for n in (1, 2, 3))
    even, odd = slice(0, None, 2), slice(1, None, 2)
    assert torch.equal(one[even], two[even])
    assert not torch.equal(one[odd], two[odd])
    assert torch.equal(two[odd], three[odd])
    assert not torch.equal(two[even], three[even])


def test_learned_labels_are_probabilities_that_move(data, store):
    start, end = (run(data, store, fbpc(steps=n, learn_labels=True)) for n in (0, 3))
    torch.testing.assert_close(start.labels.sum(1), torch.ones(2 * CLASSES))
    torch.testing.assert_close(end.labels.sum(1), torch.ones(2 * CLASSES))
    assert torch.equal(start.classes, torch.tensor([0, 0, 1, 1, 2, 2]))
    own = start.labels.gather(1, start.classes[:, None]).squeeze(1)
    torch.testing.assert_close(own, torch.full((6,), 0.9 + 0.1 / 3))
    assert (end.labels - start.labels).abs().max() > 1e-4
    assert end.labels.min() > 0


def test_fixed_labels_stay(data, store):
    coreset = run(data, store, fbpc(steps=2))
    assert torch.equal(coreset.labels, torch.tensor([0, 0, 1, 1, 2, 2]))


def test_start_is_real_images_of_the_right_class(data, store):
    coreset = run(data, store, fbpc(steps=0))
    real = data.normalisation.apply(data.train.images)
    for image, label in zip(coreset.images, coreset.labels, strict=True):
        at = (real == image).flatten(1).all(1).nonzero().squeeze(1)
        assert len(at) == 1
        assert data.train.labels[at] == label
    assert len({image.numpy().tobytes() for image in coreset.images}) == len(coreset)
    other = run(data, store, fbpc(steps=0), seed=6)
    assert not torch.equal(coreset.images, other.images)


def test_start_from_noise(data, store):
    coreset = run(data, store, fbpc(steps=0, init="noise", ipc=50))
    assert coreset.images.shape == (150, 1, 8, 8)
    assert float(coreset.images.mean()) == pytest.approx(0, abs=0.05)
    assert float(coreset.images.std()) == pytest.approx(1, abs=0.05)


def test_random_needs_no_experts_and_makes_no_update(data, store, tmp_path):
    coreset = distill(
        data, (), DistillSettings("random", ipc=2), net=NET, out=tmp_path, seed=5, device="cpu"
    )
    assert torch.equal(coreset.images, run(data, store, fbpc(steps=0)).images)
    assert coreset.provenance.net == f"{NET},norm=instance"
    assert Pseudocoreset.load(tmp_path / "coreset.safetensors").provenance.method == "random"
    with pytest.raises(UserError, match="--init noise has no use in random"):
        distill(data, (), DistillSettings("random", ipc=2, init="noise"), net=NET, device="cpu")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"ipc": 21}, "class 'class 0' of bands has 20 training images, fewer than --ipc 21"),
        ({"ipc": 0}, "--ipc 0"),
        ({"method": "fbcp"}, "no method is called 'fbcp'"),
        ({"samples": 0}, "--samples 0"),
        ({"max_map_steps": 0}, "--max-map-steps 0"),
        ({"init": "zeros"}, "--init zeros"),
        ({"dsa": "warp"}, "'warp' is no kind"),
        ({"from_epoch": 9}, "--from-epoch"),
        ({"to_epoch": 9}, "--to-epoch"),
        ({"from_epoch": 2, "to_epoch": 1}, "--to-epoch 1 is before --from-epoch 2"),
    ],
)
def test_refusals(data, store, changes, match):
    with pytest.raises(UserError, match=match):
        run(data, store, replace(fbpc(), **changes))


def test_experts_of_other_data_are_refused(data, store, tmp_path):
    with pytest.raises(UserError, match=r"holds experts of bands.*other data \(stripes"):
        run(make_data("stripes", seed=9), store, fbpc())
    with pytest.raises(UserError, match="--holdout 6"):
        run(data.hold_out(6), store, fbpc())
    with pytest.raises(UserError, match="--experts"):
        distill(data, (), fbpc(), device="cpu")


def test_several_networks(data, store, tmp_path):
    other = make_store(tmp_path / "other", data, f"{NET},norm=none")
    coreset = distill(data, [store, other], fbpc(steps=2), out=tmp_path / "run", device="cpu")
    assert coreset.provenance.config["nets"] == [store.identity.net, other.identity.net]
    assert coreset.provenance.experts == [store.fingerprint, other.fingerprint]
    assert {"loss_x/0", "loss_u/1"} <= read_metrics(tmp_path / "run")[0].keys()


def test_what_a_run_says_of_itself(data, store, tmp_path):
    coreset = run(data, store, fbpc(steps=2), tmp_path)
    config = read_config(tmp_path)
    assert config["data_fingerprint"] == data.fingerprint
    assert config["steps"] == 2
    assert config["dsa"] == "color,crop"  # the experts' own
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == [1, 2]
    assert {"loss_x", "loss_u", "map_loss", "map_steps", "map_missed"} <= rows[0].keys()
    told = coreset.provenance
    assert (told.method, told.seed, told.data, told.net) == (
        "fbpc-isotropic",
        5,
        "bands",
        store.identity.net,
    )
    assert told.experts == [store.fingerprint]
    assert told.config["lr_images"] == 1.0


def test_recipe_fills_in_what_is_not_given(data, store):
    config = DistillSettings(ipc=10, gamma=0.7).resolved(replace(data, name="cifar10"), [store])
    assert (config["gamma"], config["from_epoch"], config["lr_images"]) == (0.7, 2, 1000.0)
    assert (config["lr_x"], config["lr_u"], config["steps"]) == (0.05, 0.01, 1000)


def test_store_may_be_opened_again(data, store):
    opened = ExpertStore.open(store.path)
    assert torch.equal(run(data, store, fbpc()).images, run(data, opened, fbpc()).images)


def test_a_method_that_gives_no_estimate_is_told_so(data, store):
    with pytest.raises(UserError, match="gradient gave dict: let it give an Estimate"):
        run(data, store, toy("NoEstimate"))
