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
from pseudocoreset import FBPC, Method, Mosaic, Pseudocoreset, UserError, distill, run_folder
from pseudocoreset.augment import Augmentation
from pseudocoreset.data import Scaling
from pseudocoreset.distillation import FARTHEST, DistillOptions, resolve
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertStore
from pseudocoreset.experts.targets import expert_targets
from pseudocoreset.forms import Pixels
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.methods import METHODS, method_class
from pseudocoreset.methods import fbpc as fbpc_module
from pseudocoreset.posterior import SGHMC, sample
from pseudocoreset.run_folder import read_config, read_metrics
from pseudocoreset.training import FixedPoints
from small_world import CLASSES, NET, make_data, make_method, make_rng, make_store, make_table

LOOP = {"ipc": 2, "steps": 7, "lr_images": 1.0, "batch": 4, "checkpoint_every": 3}
LOOP["recipe"] = "paper"
FAST = {**LOOP, "from_epoch": 1, "gamma": 1.5, "samples": 3, "max_map_steps": 60}
BPC = {"method": "bpc-rkl", "ipc": 2, "steps": 1, "samples": 2, "student_steps": 2}
BPC["recipe"] = "paper"


def toy(name, **changes):
    return {**LOOP, "method": f"toy_methods:{name}", "lr_images": 0.1, **changes}


def fbpc(**changes):
    return {**FAST, "method": "fbpc-isotropic", **changes}


def method_of(wanted):
    """The method with its own options, and what is left for the loop."""
    kind, rest = method_class(wanted["method"]), dict(wanted)
    del rest["method"]
    return kind(**{name: rest.pop(name) for name in kind().as_dict() if name in rest}), rest


def run(data, store, wanted, out=None, seed=5, **more):
    method, rest = method_of(wanted)
    return distill(
        data, store, method, **rest, **more, out=out, seed=seed, device="cpu", progress=False
    )


def refused(data, store, wanted, out=None, **more):
    """The parameter that is named where this is refused."""
    with pytest.raises(UserError) as error:
        run(data, store, wanted, out, **more)
    return error.value.parameter


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
    kind = fbpc_module._FBPCDivergence
    calls, gradient = [0], kind.gradient

    def counted(self, coreset, state, rng):
        calls[0] += 1
        if calls[0] == number:
            raise Interruption
        return gradient(self, coreset, state, rng)

    monkeypatch.setattr(kind, "gradient", counted)


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (1, {}),
        (3, {}),
        (4, {"method": "fbpc", "steps": 5, "covariance_steps": 3, "real_batch": 16}),
        (5, {"labels": "learned"}),
        (7, {"draws": 2}),
        (6, {"average": 0.4}),
        (5, {"labels": "learned", "optimizer": "adam", "label_start": "experts"}),
        (6, {"reuse": 3, "reuse_steps": 2}),
        (5, {"reuse": 3, "draws": 2, "experts_each": 2}),
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
    assert len(read_metrics(tmp_path / "cut")) == settings["steps"]


def test_crash_between_metrics_and_checkpoint(data, store, tmp_path, monkeypatch):
    """Lines of updates that are done again are not there twice; a line cut short is dropped."""
    settings = toy("Quadratic")
    run(data, store, settings, tmp_path / "whole")
    run(data, store, {**settings, "steps": 5}, tmp_path / "cut")
    with (tmp_path / "cut/metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"update": 6, "count": 6.0}\n{"update": 7, "cou')
    run(data, store, {**settings, "checkpoint_every": 7}, tmp_path / "cut")
    assert_same_outcome(tmp_path / "whole", tmp_path / "cut")


def test_line_of_metrics_that_names_no_update_ends_them(data, store, tmp_path):
    run(data, store, toy("Quadratic", steps=5), tmp_path / "run")
    path = tmp_path / "run/metrics.jsonl"
    path.write_text(path.read_text().replace('"update": 4', '"date": 4'))
    run(data, store, toy("Quadratic", steps=7), tmp_path / "run")
    assert [row["update"] for row in read_metrics(tmp_path / "run")] == [1, 2, 3, 6, 7]


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_distillation import make_data, run, toy
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
    assert refused(data, store, toy("Quadratic", steps=3), tmp_path / "run") == "out"
    assert read_config(tmp_path / "run")["steps"] == 5


def test_finished_run_is_left_as_it_is(data, store, tmp_path):
    first = run(data, store, toy("Quadratic"), tmp_path / "run")
    before = outcome(tmp_path / "run")[1]
    second = run(data, store, toy("Quadratic"), tmp_path / "run")
    assert torch.equal(first.inputs, second.inputs)
    assert outcome(tmp_path / "run")[1] == before


@pytest.mark.parametrize(
    ("changes", "seed", "name"),
    [
        ({"lr_images": 0.3}, 5, "lr_images"),
        ({"ipc": 3}, 5, "ipc"),
        ({"method": "toy_methods:EveryOther"}, 5, "method"),
        ({"labels": "learned"}, 5, "labels"),
        ({"form": "mosaic:2"}, 5, "form"),
        ({"centre": 0.7}, 5, "centre"),
        ({"dsa": "crop"}, 5, "dsa"),
        ({}, 6, "seed"),
    ],
)
def test_folder_of_other_settings_is_refused_by_name(data, store, tmp_path, changes, seed, name):
    run(data, store, toy("Quadratic", steps=1), tmp_path / "run")
    before = (tmp_path / "run/config.yaml").read_bytes()
    changed = toy("Quadratic", steps=1) | changes
    with pytest.raises(run_folder.OtherRunError) as error:
        run(data, store, changed, tmp_path / "run", seed)
    assert error.value.parameter == "out"
    assert f"with {name} " in error.value.found
    assert (tmp_path / "run/config.yaml").read_bytes() == before


def test_folder_of_other_experts_or_data_is_refused(data, store, tmp_path):
    out, settings = tmp_path / "run", fbpc(steps=1)
    run(data, store, settings, out)
    shutil.copytree(store.path, tmp_path / "more")
    first = ExpertStore.open(tmp_path / "more").trajectories[0]
    shutil.copy(first, first.with_name("trajectory-0007.safetensors"))
    others, kept = make_data(seed=1), data.hold_out(CLASSES)
    for of, experts, what in [
        (data, ExpertStore.open(tmp_path / "more"), "other experts"),
        (others, make_store(tmp_path / "others", others), "data_fingerprint"),
        (kept, make_store(tmp_path / "held", kept), "data_fingerprint"),
        (data, make_store(tmp_path / "net", data, net="convnet:width=4,depth=1"), "nets"),
    ]:
        with pytest.raises(run_folder.OtherRunError) as error:
            run(of, experts, settings, out)
        assert error.value.parameter == "out"
        assert f"with {what}" in error.value.found


@pytest.mark.parametrize("changes", [{"noise": 0.02}, {"average": 0.5}, {"student_steps": 3}])
def test_folder_of_another_option_of_the_method_is_refused(data, store, tmp_path, changes):
    run(data, store, BPC, tmp_path / "run")
    assert refused(data, store, BPC | changes, tmp_path / "run") == "out"


def test_run_goes_on_with_another_group(data, store, tmp_path):
    """An option that no update depends on: the method's field says so."""
    run(data, store, BPC, tmp_path / "run")
    run(data, store, BPC | {"steps": 2, "group": 2}, tmp_path / "run")
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
    with pytest.raises(UserError, match="another process"):
        run(data, store, {**settings, "steps": 2}, tmp_path / "run")
    assert read_config(tmp_path / "run")["steps"] == 1  # the other one's
    other.communicate()
    run(data, store, {**settings, "steps": 2}, tmp_path / "run")
    assert len(read_metrics(tmp_path / "run")) == 2


def test_update_that_an_interrupt_wrote_twice_counts_once(data, store, tmp_path, monkeypatch):
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
    settings = toy("Quadratic", lr_images=1e-5, labels="learned", lr_labels=1e6)
    run(data, store, {**settings, "steps": 2}, tmp_path / "run")
    run(data, store, settings, tmp_path / "run")


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a folder"])
def test_gradient_that_is_not_finite_stops_the_run(data, store, tmp_path, monkeypatch, kept):
    out = tmp_path / "run" if kept else None
    settings = toy("NotFinite")
    assert refused(data, store, settings, out) == "lr_images"
    if not kept:
        return
    assert [row["update"] for row in read_metrics(out)] == [1, 2]
    good = run(data, store, {**settings, "steps": 2}, tmp_path / "two")
    assert torch.equal(load_file(out / "checkpoint.safetensors")["images"], good.inputs)
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
    found = run(data, store, toy("Quadratic", steps=6, labels="learned", lr_labels=2.0))
    start = run(data, store, toy("Quadratic", steps=0, labels="learned"))
    images, logits = start.inputs.clone(), start.targets.log()
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
    torch.testing.assert_close(found.inputs, images.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.targets, logits.softmax(1).detach(), rtol=1e-5, atol=1e-5)


def test_adam_is_that_of_torch_with_momentum_as_its_first_beta(data, store):
    settings = toy("Quadratic", steps=6, optimizer="adam", momentum=0.8, lr_images=0.02)
    found = run(data, store, settings)
    images = run(data, store, toy("Quadratic", steps=0)).inputs.clone().requires_grad_()
    optimiser = torch.optim.Adam([images], lr=0.02, betas=(0.8, 0.999))
    rng = Rng(torch.device("cpu"), 0)
    for update in range(1, 7):
        rng.reseed(5, "update", update)
        noise = torch.randn(images.shape, generator=rng.device)
        images.grad = (images.detach() - 0.5) + noise
        optimiser.step()
    torch.testing.assert_close(found.inputs, images.detach(), rtol=1e-5, atol=1e-5)


def test_adams_step_is_of_the_learning_rates_size_whatever_the_loss_is_measured_in(tmp_path):
    """The noise of a regression scales steps along gradients, and Adam's are not along them."""
    table = make_table()
    settings = {"method": "toy_methods:Quadratic", "ipc": 4, "target_noise": 0.1}
    settings |= {"optimizer": "adam", "lr_images": 0.02}
    start, moved = (run(table, (), {**settings, "steps": n}, net="mlp").inputs for n in (0, 1))
    torch.testing.assert_close((moved - start).abs(), torch.full_like(start, 0.02))


def test_rates_of_a_recipe_are_for_its_own_rule(data):
    """Adam's steps have the size of its rate: a recipe's for SGD would be thousands of times it."""
    for method in ("fbpc", "bpc-rkl"):
        adam = resolve(data, [], method, DistillOptions(ipc=2, optimizer="adam")).options
        assert (adam.lr_images, adam.lr_labels) == (0.01, 0.05)
        sgd = resolve(data, [], method, DistillOptions(ipc=2)).options
        assert sgd.lr_images >= 100
    vbpc = resolve(data, [], "vbpc", DistillOptions(ipc=2)).options
    assert (vbpc.optimizer, vbpc.lr_images) == ("adam", 0.01)
    given = DistillOptions(ipc=2, optimizer="sgd", labels="learned", lr_labels=3.0)
    plain = resolve(data, [], "vbpc", given).options
    assert (plain.lr_images, plain.lr_labels) == (DistillOptions().lr_images, 3.0)


def test_configuration_has_what_differs_from_the_recipe_by_being_the_default(data, tmp_path):
    """Else a configuration that is used again would take it from the recipe."""
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("best: {fbpc: {optimizer: adam, lr_images: 0.1, reuse: 4}}")
    options = DistillOptions(ipc=2, optimizer="sgd", lr_images=3.0)
    config = resolve(data, [], FBPC(reuse=1), options, str(recipe)).config()
    assert (config["optimizer"], config["reuse"]) == ("sgd", 1)
    config = resolve(data, [], FBPC(), DistillOptions(ipc=2), "paper").config()
    assert not {"optimizer", "reuse", "label_start"} & config.keys()


def test_adam_counts_the_steps_of_each_image(data, store):
    """An image's first step is of the learning rate's size, whenever it comes."""
    settings = {"optimizer": "adam", "lr_images": 0.02}
    one, two = (run(data, store, toy("EveryOther", steps=n, **settings)).inputs for n in (1, 2))
    start = run(data, store, toy("EveryOther", steps=0)).inputs
    even, odd = slice(0, None, 2), slice(1, None, 2)
    for moved in ((one - start)[even], (two - one)[odd]):
        torch.testing.assert_close(moved.abs(), torch.full_like(moved, 0.02))
    assert torch.equal(one[odd], start[odd])
    assert torch.equal(two[even], one[even])


def test_run_starts_from_a_coreset(data, store, tmp_path):
    """A finished run, or the object, in the place of real points."""
    first = run(data, store, fbpc(steps=3, labels="learned"), tmp_path / "first")
    more = fbpc(steps=0, labels="learned")
    for start in (first, tmp_path / "first", str(tmp_path / "first/coreset.safetensors")):
        again = run(data, store, {**more, "init": start}, seed=9)
        assert torch.equal(again.inputs, first.inputs)
        torch.testing.assert_close(again.targets, first.targets)
        assert again.provenance.config["init"] == "coreset"
        assert again.provenance.config["init_coreset"] == first.fingerprint
    fixed = run(data, store, fbpc(steps=2, init=first))
    assert torch.equal(fixed.targets, first.targets)
    assert not torch.equal(fixed.inputs, first.inputs)


def test_run_that_started_from_a_coreset_goes_on(data, store, tmp_path):
    first = run(data, store, fbpc(steps=2), tmp_path / "first")
    whole = run(data, store, fbpc(steps=4, init=first), tmp_path / "whole")
    run(data, store, fbpc(steps=2, init=tmp_path / "first"), tmp_path / "cut")
    run(data, store, fbpc(steps=4, init=tmp_path / "first"), tmp_path / "cut")
    assert_same_outcome(tmp_path / "whole", tmp_path / "cut")
    assert refused(data, store, fbpc(steps=4, init=whole), tmp_path / "cut") == "out"


def test_coreset_that_does_not_fit_is_no_start(data, store):
    first = run(data, store, fbpc(steps=1))
    other = make_data("stripes", seed=9)
    random = {"method": "random", "ipc": 2}
    tiles = run(data, (), {**random, "form": "mosaic:2"}, net=NET)
    assert refused(data, store, fbpc(ipc=3, init=first)) == "init"
    assert refused(data, store, fbpc(init=tiles)) == "init"
    assert refused(data, store, fbpc(init="coreset")) == "init"
    scaled = replace(first, scaling=Scaling((0.5,), (0.5,)))
    assert refused(data, store, fbpc(init=scaled)) == "init"
    swapped = replace(data, train=data.test, test=data.train)  # else its test points would leak
    leaking = run(swapped, (), random, net=NET)
    assert refused(data, (), {**toy("Quadratic"), "init": leaking}, net=NET) == "init"
    held_out = run(data.hold_out(6), (), random, net=NET)
    run(data, (), {**toy("Quadratic", steps=0), "init": held_out}, net=NET)
    held = run(other.hold_out(6), (), random, net=NET)
    assert refused(data.hold_out(6), (), {**toy("Quadratic"), "init": held}, net=NET) == "init"
    assert refused(data.hold_out(6), (), {**toy("Quadratic"), "init": first}, net=NET) == "init"


def test_learned_labels_start_from_the_experts(data, store):
    learned = fbpc(steps=0, labels="learned", label_start="experts", dsa="off")
    expected = run(data, store, fbpc(steps=0, labels="experts", dsa="off"))
    found = run(data, store, learned)
    torch.testing.assert_close(found.targets, expected.targets, atol=1e-3, rtol=0)
    toy_learned = toy("Quadratic", labels="learned", label_start="experts")
    assert refused(data, (), toy_learned, net=NET) == "label_start"
    assert refused(data, store, fbpc(label_start="experts")) == "label_start"


def test_soft_labels_are_made_sharper_at_the_end(data, store):
    for labels in ("learned", "experts"):
        plain = run(data, store, fbpc(steps=2, labels=labels))
        sharp = run(data, store, fbpc(steps=2, labels=labels, label_temperature=0.5))
        assert torch.equal(sharp.inputs, plain.inputs)
        expected = plain.targets**2 / (plain.targets**2).sum(1, keepdim=True)
        torch.testing.assert_close(sharp.targets, expected)
    assert refused(data, store, fbpc(label_temperature=0.5)) == "label_temperature"


def test_best_falls_back_to_tuned_where_its_form_does_not_fit(data, store):
    """`data` take CIFAR-10's recipes, whose best form at 1 per class has 16 images in one."""
    method = method_class("fbpc-isotropic")()
    fits = resolve(data, [store], method, DistillOptions(ipc=1), "best")
    assert (fits.recipe.section, str(fits.form)) == ("best", "mosaic:4")
    few = resolve(data, [store], method, DistillOptions(ipc=2), "best")  # 32 of 20
    assert (few.recipe.section, str(few.form)) == ("tuned", "pixels")
    assert few.options.labels == "hard"
    odd = replace(data, train=replace(data.train, inputs=data.train.inputs[..., :7, :7]))
    assert resolve(odd, [], method, DistillOptions(ipc=1), "best").recipe.section == "tuned"
    given = resolve(data, [store], method, DistillOptions(ipc=2, form="mosaic:2"), "best")
    assert given.recipe.section == "best"


def test_average_weighs_the_late_updates(data, store):
    """With a share of ½, η = 1: update t counts as t does."""
    found = run(data, store, toy("Quadratic", steps=4, average=0.5, labels="learned"))
    singly = [run(data, store, toy("Quadratic", steps=n, labels="learned")) for n in range(1, 5)]
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0]) / 10
    images = sum(w * one.inputs for w, one in zip(weights, singly, strict=True))
    logits = sum(w * one.targets.log() for w, one in zip(weights, singly, strict=True))
    torch.testing.assert_close(found.inputs, images, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.targets, logits.softmax(1), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found.inputs, singly[-1].inputs, atol=1e-2)


def test_images_without_gradient_stay_put_in_spite_of_their_momentum(data, store):
    one, two, three = (run(data, store, toy("EveryOther", steps=n)).inputs for n in (1, 2, 3))
    even, odd = slice(0, None, 2), slice(1, None, 2)
    assert torch.equal(one[even], two[even])
    assert not torch.equal(one[odd], two[odd])
    assert torch.equal(two[odd], three[odd])
    assert not torch.equal(two[even], three[even])


def test_learned_labels_are_probabilities_that_move(data, store):
    start, end = (run(data, store, fbpc(steps=n, labels="learned")) for n in (0, 3))
    torch.testing.assert_close(start.targets.sum(1), torch.ones(2 * CLASSES))
    torch.testing.assert_close(end.targets.sum(1), torch.ones(2 * CLASSES))
    assert torch.equal(start.classes, torch.tensor([0, 0, 1, 1, 2, 2]))
    own = start.targets.gather(1, start.classes[:, None]).squeeze(1)
    torch.testing.assert_close(own, torch.full((6,), 0.9 + 0.1 / 3))
    assert (end.targets - start.targets).abs().max() > 1e-4
    assert end.targets.min() > 0


def test_fixed_labels_stay(data, store):
    coreset = run(data, store, fbpc(steps=2))
    assert torch.equal(coreset.targets, torch.tensor([0, 0, 1, 1, 2, 2]))


def test_start_is_real_images_of_the_right_class(data, store):
    coreset = run(data, store, fbpc(steps=0))
    real = data.scaling.apply(data.train.inputs)
    for image, label in zip(coreset.inputs, coreset.targets, strict=True):
        at = (real == image).flatten(1).all(1).nonzero().squeeze(1)
        assert len(at) == 1
        assert data.train.targets[at] == label
    assert len({image.numpy().tobytes() for image in coreset.inputs}) == len(coreset)
    other = run(data, store, fbpc(steps=0), seed=6)
    assert not torch.equal(coreset.inputs, other.inputs)


def test_start_from_noise(data, store):
    coreset = run(data, store, fbpc(steps=0, init="noise", ipc=50))
    assert coreset.inputs.shape == (150, 1, 8, 8)
    assert float(coreset.inputs.mean()) == pytest.approx(0, abs=0.05)
    assert float(coreset.inputs.std()) == pytest.approx(1, abs=0.05)


def test_random_needs_no_experts_and_makes_no_update(data, store, tmp_path):
    plain = {"method": "random", "ipc": 2}
    coreset = run(data, (), plain, tmp_path, net=NET)
    assert torch.equal(coreset.inputs, run(data, store, fbpc(steps=0)).inputs)
    assert coreset.provenance.net == f"{NET},norm=instance"
    assert Pseudocoreset.load(tmp_path / "coreset.safetensors").provenance.method == "random"
    for name, value in [("init", "noise"), ("steps", 7), ("average", 0.5), ("labels", "learned")]:
        assert refused(data, (), plain | {name: value}, net=NET) == name


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"ipc": 21}, "ipc"),
        ({"ipc": 6, "form": "mosaic:2"}, "ipc"),  # 24 of 20
        ({"ipc": 0}, "ipc"),
        ({"samples": 0}, "samples"),
        ({"max_map_steps": 0}, "max_map_steps"),
        ({"init": "zeros"}, "init"),
        ({"labels": "soft"}, "labels"),
        ({"dsa": "warp"}, "dsa"),
        ({"average": 1.5}, "average"),
        ({"momentum": 1.0}, "momentum"),
        ({"from_epoch": 9}, "experts"),
        ({"to_epoch": 9}, "experts"),
        ({"from_epoch": 2, "to_epoch": 1}, "to_epoch"),
        ({"lr_labels": 1.0}, "lr_labels"),
        ({"form": "mosaic:3"}, "form"),
        ({"recipe": "good"}, "recipe"),
    ],
)
def test_values_that_do_not_fit_are_refused(data, store, changes, parameter):
    assert refused(data, store, fbpc(**changes)) == parameter


def test_names_and_types_that_are_no_method_are_refused(data, store):
    for method in ("fbcp", FBPC, None, 3):
        with pytest.raises((UserError, TypeError)) as error:
            distill(data, store, method, progress=False)
        assert getattr(error.value, "parameter", "method") == "method"


def test_experts_of_other_data_are_refused(data, store):
    for of in (make_data("stripes", seed=9), data.hold_out(6)):
        assert refused(of, store, fbpc()) == "experts"
    assert refused(data, (), fbpc()) == "experts"
    assert refused(data, (), fbpc(labels="experts")) == "experts"
    assert refused(data, (), toy("Quadratic", labels="experts")) == "labels"
    assert refused(data, store, fbpc(), net=NET) == "net"
    assert refused(data, [store, store], fbpc()) == "net"


def test_several_networks(data, store, tmp_path):
    other = make_store(tmp_path / "other", data, f"{NET},norm=none")
    coreset = run(data, [store, other], fbpc(steps=2), tmp_path / "run")
    assert coreset.provenance.config["nets"] == [store.identity.net, other.identity.net]
    assert coreset.provenance.experts == [store.fingerprint, other.fingerprint]
    assert {"loss_x/0", "loss_u/1"} <= read_metrics(tmp_path / "run")[0].keys()


def test_run_says_what_it_is_of(data, store, tmp_path):
    coreset = run(data, store, fbpc(steps=2), tmp_path)
    config = read_config(tmp_path)
    assert config["data_fingerprint"] == data.fingerprint
    assert config["steps"] == 2
    assert config["dsa"] == "color,crop"  # the experts' own
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == [1, 2]
    assert {"loss_x", "loss_u", "map_loss", "map_steps", "map_missed"} <= rows[0].keys()
    made = coreset.provenance
    assert (made.method, made.seed, made.data, made.net) == (
        "fbpc-isotropic",
        5,
        "bands",
        store.identity.net,
    )
    assert made.experts == [store.fingerprint]
    assert made.config["lr_images"] == 1.0
    digests = data.train_digest, data.test_digest, data.num_train
    assert (made.train_digest, made.test_digest, made.num_train) == digests
    assert made.class_counts == data.train.targets.bincount().tolist()


def test_store_may_be_opened_again(data, store):
    opened = ExpertStore.open(store.path)
    assert torch.equal(run(data, store, fbpc()).inputs, run(data, opened, fbpc()).inputs)


@pytest.mark.parametrize(
    "name",
    [
        "NoEstimate",
        "WithoutLabels",
        "TellsTensors",
        "KeepsNumbers",
        "StartsWithNumbers",
        "FailsToPrepare",
        "PreparesNothing",
    ],
)
def test_own_method_that_breaks_the_protocol_is_refused(data, store, name):
    assert refused(data, store, toy(name, labels="learned")) == "method"


def test_own_method_follows_its_own_options(data, tmp_path):
    """Its fields are options like any: in the run's configuration, and in what it does."""
    near, far = (
        run(data, (), toy("Noiseless", centre=centre, steps=1), tmp_path / str(centre), net=NET)
        for centre in (0.0, 5.0)
    )
    torch.testing.assert_close(far.inputs - near.inputs, torch.full_like(far.inputs, 0.1 * 5.0))
    assert read_config(tmp_path / "5.0")["centre"] == 5.0
    assert refused(data, (), toy("Noiseless", centre=11.0), net=NET) == "centre"


# What is left out is the recipe's.


def resolved(data, stores, wanted, recipe="paper"):
    method, rest = method_of(wanted)
    rest.pop("recipe", None)
    return resolve(data, stores, method, DistillOptions(**rest), recipe)


def test_recipe_fills_in_what_is_not_given(data, store):
    named = replace(data, name="cifar10")
    job = resolved(named, [store], {"method": "fbpc", "ipc": 10, "gamma": 0.7}, "paper")
    found = job.config()
    assert (found["gamma"], found["from_epoch"], found["lr_images"]) == (0.7, 2, 1000.0)
    assert (found["lr_x"], found["lr_u"], found["steps"]) == (0.05, 0.01, 1000)
    assert (job.recipe.section, job.recipe.data, job.recipe.ipc) == ("paper", "cifar10", 10)


def test_rate_for_a_sum_is_brought_to_the_mean(data):
    def lr_of(method="bpc-rkl", **given):
        wanted = {"method": method, "ipc": 4, **given}
        return resolved(data, [], wanted, "paper").options.lr_images

    assert lr_of() == 1000 * 4 * data.classes
    assert lr_of(batch=6) == 1000 * 6
    assert lr_of(form="mosaic:2") == 1000 * 16 * data.classes  # as many are seen
    assert lr_of(lr_images=7.0) == 7.0
    assert lr_of(method="bpc-fkl") == 1000


def test_students_start_where_the_experts_allow(data, store, tmp_path):
    """Three epochs, of which one or two must be left after the start."""
    short = make_store(tmp_path, data, f"{NET},norm=none", epochs=1)
    for method, ipc, stores, expected in [
        ("bpc-fkl", 10, [store], 3),
        ("bpc-fkl", 1, [store], 2),  # as Kim et al. have it
        ("bpc-w", 1, [store], 2),
        ("bpc-fkl", 10, [store, short], 1),
        ("bpc-fkl", 10, [], 20),
        ("bpc-rkl", 10, [store], 4),  # which follows no expert: every epoch will do
    ]:
        found = resolved(data, stores, {"method": method, "ipc": ipc}).method.start_epochs
        assert found == expected, (method, ipc)
    assert resolved(data, [store], BPC | {"start_epochs": 9}).method.start_epochs == 9
    assert refused(data, short, {"method": "bpc-w", "ipc": 1}) == "experts"


def test_run_keeps_the_options_it_used(data, store, tmp_path):
    wanted = {"method": "bpc-rkl", "ipc": 1, "steps": 1, "student_steps": 2, "recipe": "tuned"}
    coreset = run(data, store, wanted, tmp_path)
    config = read_config(tmp_path)
    assert config["recipe"] == "tuned"
    assert (config["samples"], config["student_steps"], config["noise"]) == (10, 2, 0.01)
    assert not {"gamma", "lr_x", "draws", "lr_lr", "lr_labels"} & config.keys()
    assert coreset.provenance.config.items() <= config.items()
    assert refused(data, store, wanted | {"recipe": "paper"}, tmp_path) == "out"


def test_experts_of_different_augmentation_need_a_word(store, data):
    stores = [store, ExpertStore(store.path, replace(store.identity, dsa="off"))]
    wanted = {"method": "fbpc", "ipc": 2}
    assert str(resolved(data, [store, store], wanted).augmentation) == "color,crop"
    with pytest.raises(UserError) as error:
        resolved(data, stores, wanted)
    assert error.value.parameter == "dsa"
    assert str(resolved(data, stores, wanted | {"dsa": "crop"}).augmentation) == "crop"


# Forms, and targets of other kinds.


def test_mosaic_moves_along_the_transpose_of_its_decoding(data):
    """z ← z − α decodeᵀ(decode(z) − c), against autograd through the decoding."""
    start, end = (
        run(data, (), toy("Noiseless", steps=n, form="mosaic:2"), net=NET) for n in (0, 1)
    )
    assert start.inputs.shape == (2 * CLASSES, 1, 8, 8)
    assert start.seen_inputs.shape == (8 * CLASSES, 1, 8, 8)
    stored = start.inputs.clone().requires_grad_()
    loss = (Mosaic(2).decode(stored) - 0.5).square().sum() / 2
    (gradient,) = torch.autograd.grad(loss, stored)
    assert gradient.abs().max() > 1
    torch.testing.assert_close(end.inputs, (stored - 0.1 * gradient).detach())


def test_mosaic_starts_as_small_real_images_of_the_right_class(data):
    coreset = run(data, (), toy("Noiseless", steps=0, form=Mosaic(2)), net=NET)
    small = torch.nn.functional.avg_pool2d(data.scaling.apply(data.train.inputs), 2)
    for image, label in zip(coreset.inputs, coreset.targets, strict=True):
        tiles = [image[:, i : i + 4, j : j + 4] for i in (0, 4) for j in (0, 4)]
        for tile in tiles:
            away = (small - tile).flatten(1).abs().amax(1)
            assert away.min() < 1e-5
            assert data.train.targets[away.argmin()] == label


@pytest.mark.parametrize("labels", ["hard", "learned"])
def test_interrupted_mosaic_goes_on_to_the_same_coreset(data, tmp_path, labels, monkeypatch):
    settings = toy("Interrupted", form="mosaic:2", labels=labels)
    with pytest.raises(KeyboardInterrupt):
        run(data, (), settings, tmp_path / "cut", net=NET)
    monkeypatch.setattr(toy_methods.Interrupted, "pressed", False)
    for folder in ("cut", "whole"):
        run(data, (), settings, tmp_path / folder, net=NET)
    assert_same_outcome(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("labels", ["hard", "learned"])
def test_mosaic_is_decoded_wherever_it_is_read(data, tmp_path, labels, monkeypatch):
    made = run(data, (), toy("Quadratic", form="mosaic:2", labels=labels), tmp_path, net=NET)
    loaded = Pseudocoreset.load(tmp_path / "coreset.safetensors")
    assert loaded == made
    assert (len(loaded), loaded.num_seen, loaded.form) == (2 * CLASSES, 8 * CLASSES, Mosaic(2))
    decoded = Mosaic(2).decode(load_file(tmp_path / "coreset.safetensors")["images"])
    inputs, targets = loaded.as_dataset().tensors
    assert torch.equal(inputs, decoded)
    assert len(targets) == 8 * CLASSES
    if labels == "hard":
        assert torch.equal(targets, torch.arange(CLASSES).repeat_interleave(8))
    seen, take = [], FixedPoints.__call__
    monkeypatch.setattr(
        FixedPoints, "__call__", lambda s, *given: seen.append(take(s, *given)) or seen[-1]
    )
    sample(loaded, SGHMC(epochs=1, every=1), chains=1, device="cpu", progress=False)
    assert torch.equal(seen[0][0], decoded)
    assert torch.equal(seen[0][1], targets)


def test_experts_label_the_points_with_their_mean_prediction(data, store):
    coreset = run(data, store, fbpc(steps=1, labels="experts", dsa="off"))
    hard = run(data, store, fbpc(steps=1, dsa="off"))
    assert torch.equal(coreset.inputs, hard.inputs)
    net, total, count = store.make_net(), 0, 0
    for trajectory in store.trajectories:
        for epoch in (2, 3):  # the last third of three
            weights = store.snapshot(trajectory, epoch, torch.device("cpu"))
            total = total + net.apply(weights, hard.inputs).softmax(1)
            count += 1
    torch.testing.assert_close(coreset.targets, total / count)


def test_experts_answer_under_augmentations_of_their_own(data, store):
    """Against a loop that draws in the same order: snapshots, then an augmentation for each."""
    job = resolved(data, [store], fbpc())
    points = data.scaling.apply(data.train.inputs[:5])
    found = expert_targets([store], points, job.augmentation, job.likelihood, make_rng())
    rng, device = make_rng(), torch.device("cpu")
    pairs = [(path, epoch) for path in store.trajectories for epoch in (2, 3)]
    rows = []
    for place in torch.randperm(4, generator=rng.host).tolist():
        weights = store.snapshot(*pairs[place], device)
        rows.append(store.make_net().apply(weights, job.augmentation(points, rng.device)))
    torch.testing.assert_close(found, torch.stack(rows).softmax(2).mean(0))
    plain = resolved(data, [store], fbpc(dsa="off"))
    still = expert_targets([store], points, plain.augmentation, job.likelihood, make_rng())
    assert not torch.allclose(found, still, atol=1e-3)


def test_stores_count_equally_with_their_last_third_of_epochs(data, store, tmp_path):
    longer = make_store(tmp_path / "longer", data, epochs=6)
    points = data.scaling.apply(data.train.inputs[:5])
    plain = Augmentation.parse("off", mirror=False)
    found = expert_targets([store, longer], points, plain, Categorical(data.classes), make_rng())
    means = []
    for each, epochs in ((store, (2, 3)), (longer, (4, 5, 6))):
        weights = [
            each.snapshot(path, epoch, torch.device("cpu"))
            for path in each.trajectories
            for epoch in epochs
        ]
        rows = [each.make_net().apply(one, points).softmax(1) for one in weights]
        means.append(torch.stack(rows).mean(0))
    torch.testing.assert_close(found, (means[0] + means[1]) / 2)


# Regression.


def test_regression_points_are_real_rows_with_scaled_targets(table, table_store):
    coreset = run(table, table_store, fbpc(steps=0, ipc=5))
    assert coreset.inputs.shape == (5, 3)
    real = torch.cat(
        [table.scaling.apply(table.train.inputs), table.target_scaling.apply(table.train.targets)],
        1,
    )
    points = torch.cat([coreset.inputs, coreset.targets], 1)
    assert (points[:, None] == real).all(2).any(1).all()
    assert len(points.unique(dim=0)) == 5
    assert coreset.likelihood.noise == pytest.approx(table_store.noise)
    assert coreset.target_scaling == table.target_scaling
    assert coreset.form == Pixels()


def test_regression_targets_move_only_where_they_are_learned(table, table_store):
    start, fixed, learned = (
        run(
            table,
            table_store,
            fbpc(steps=steps, labels=labels, ipc=5, lr_images=0.1, max_map_steps=1000),
        )
        for steps, labels in ((0, "hard"), (2, "hard"), (2, "learned"))
    )
    assert torch.equal(start.targets, fixed.targets)
    assert not torch.equal(start.inputs, fixed.inputs)
    assert (learned.targets - start.targets).abs().max() > 1e-5


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if kind.makes_updates])
def test_every_method_makes_coresets_of_tables(table, table_store, name):
    """Its own options small, the loop's from a recipe for another kind of data."""
    rate = 1.0 if name == "bpc-rkl" else 1e-3  # whose gradients are small
    loop = {"ipc": 5, "lr_images": rate, "labels": "learned", "seed": 5, "device": "cpu"}
    start, end = (
        distill(
            table,
            table_store,
            make_method(name, **{"expert_epochs": 1} if name == "bpc-w" else {}),
            steps=steps,
            **loop,
            progress=False,
        )
        for steps in (0, 2)
    )
    for part in ("inputs", "targets"):
        before, after = getattr(start, part), getattr(end, part)
        assert after.isfinite().all()
        assert (after != before).any(1).all()


@pytest.mark.parametrize("noise", [2.0, 1.0, 0.5])
def test_learned_regression_targets_descend_by_the_noise(table, noise):
    """No softmax between what is stored and what networks see: y ← y − α min(1, σ²) g."""
    start, end = (
        run(
            table,
            (),
            toy("Quadratic", steps=n, labels="learned", lr_labels=0.1, target_noise=noise),
            net="mlp",
        )
        for n in (0, 1)
    )
    away = start.targets - torch.tensor([1.0, 0.0])
    torch.testing.assert_close(end.targets, start.targets - 0.1 * min(1, noise**2) * away)


def test_experts_give_numbers_for_regression(table, table_store):
    coreset = run(table, table_store, fbpc(steps=0, ipc=5, labels="experts"))
    net, device = table_store.make_net(), torch.device("cpu")
    said = [
        net.apply(table_store.snapshot(path, epoch, device), coreset.inputs)
        for path in table_store.trajectories
        for epoch in (2, 3)
    ]
    torch.testing.assert_close(coreset.targets, torch.stack(said).mean(0))


def test_tables_take_neither_mosaics_nor_augmentations(table, table_store):
    assert refused(table, table_store, fbpc(form="mosaic:2")) == "form"
    assert refused(table, table_store, fbpc(dsa="on")) == "dsa"
    assert refused(table, table_store, fbpc(ipc=61)) == "ipc"


def test_methods_are_values():
    assert FBPC(gamma=0.2) == FBPC(gamma=0.2) != FBPC(gamma=0.3)
    assert isinstance(FBPC(), Method)
    assert hash(FBPC()) == hash(FBPC())


def test_number_of_a_table_moves_a_bounded_way(table):
    start, end = (
        run(table, (), toy("Quadratic", steps=n, lr_images=1e6, target_noise=1.0), net="mlp")
        for n in (0, 1)
    )
    assert (end.inputs - start.inputs).abs().max() == pytest.approx(FARTHEST, abs=1e-5)
