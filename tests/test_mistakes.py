"""Mistakes of methods, networks and places that are a person's own, and interrupts."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import toy_methods
from pseudocoreset import (
    DistillSettings,
    ExpertSettings,
    UserError,
    commands,
    distill,
    train_experts,
)
from pseudocoreset.augment import Augmentation
from pseudocoreset.cli import main
from pseudocoreset.engine import files
from pseudocoreset.engine.files import write_json
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import make_net
from pseudocoreset.posterior import Posterior, Protocol, sample_posterior
from pseudocoreset.run_folder import read_metrics
from pseudocoreset.training import SGD, Training, coreset_images
from small_world import NET, make_data

DATA = make_data()


def toy(name, **changes):
    changes = {"ipc": 1, "steps": 5, "lr_images": 0.1, "checkpoint_every": 100, **changes}
    return DistillSettings(method=f"toy_methods:{name}", **changes)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (toy("takes_nothing"), "called with a Context, failed with TypeError"),
        (toy("gives_nothing"), r"returned a NoneType: let it return an object with"),
        (toy("WithoutLabels", learn_labels=True), "none as the gradient of labels"),
        (toy("TellsTensors"), "the method tells a Tensor, loss: let it be a number"),
        (toy("KeepsNumbers"), "the method keeps a float, count: let it be a tensor"),
        (toy("StartsWithNumbers"), "the method keeps a int, count: let it be a tensor"),
        (toy("LossNotFinite"), "update 1 gave a loss or a gradient that is not finite"),
        (toy("Quadratic", steps=-5), "--steps -5"),
        (toy("Quadratic", lr_images=-1.0), "--lr-images -1.0"),
        (toy("Quadratic", lr_images=float("nan")), "--lr-images nan"),
    ],
)
def test_a_method_of_ones_own_is_told_what_is_wrong(settings, says, tmp_path):
    with pytest.raises(UserError, match=says):
        distill(DATA, (), settings, net=NET, out=tmp_path / "run", device="cpu")


def test_a_method_of_ones_own_needs_no_experts_and_may_have_several_networks():
    nets = [NET, "convnet:width=4"]
    coreset = distill(DATA, (), toy("Quadratic", steps=1), net=nets, device="cpu")
    assert len(coreset.provenance.config["nets"]) == 2


def test_a_method_of_ones_own_may_keep_one_tensor_under_two_names(tmp_path):
    distill(DATA, (), toy("KeepsTwice"), net=NET, out=tmp_path / "run", device="cpu")
    kept = load_file(tmp_path / "run" / "checkpoint.safetensors")
    assert kept["method/same"] == kept["method/count"] == 5


def test_an_interrupt_keeps_the_last_whole_update(tmp_path, monkeypatch):
    settings = toy("Interrupted")
    with pytest.raises(KeyboardInterrupt):
        distill(DATA, (), settings, net=NET, out=tmp_path / "cut", device="cpu")
    assert int(load_file(tmp_path / "cut" / "checkpoint.safetensors")["method/count"]) == 3
    monkeypatch.setattr(toy_methods.Interrupted, "pressed", False)
    for name in ("cut", "whole"):
        distill(DATA, (), settings, net=NET, out=tmp_path / name, device="cpu")
    one, other = (tmp_path / name / "coreset.safetensors" for name in ("cut", "whole"))
    assert torch.equal(load_file(one)["images"], load_file(other)["images"])
    metrics = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("cut", "whole")]
    assert metrics[0] == metrics[1]


def with_dropout(channels: int, image_size: int, classes: int) -> nn.Module:
    size = channels * image_size**2
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(size, classes))


def test_dropout_follows_the_seed_and_leaves_the_persons_own_generator_alone(tmp_path):
    sys.modules["dropout_net"] = sys.modules[__name__]
    found = []
    for name in ("one", "two"):
        torch.manual_seed(len(found))
        before = torch.get_rng_state()
        settings = ExpertSettings(num=2, epochs=2, batch=8)
        store = train_experts(
            DATA, "dropout_net:with_dropout", tmp_path / name, settings, device="cpu"
        )
        assert torch.equal(torch.get_rng_state(), before)
        paths = store.trajectories
        found.append([store.snapshot(path, 2, torch.device("cpu")).params for path in paths])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
    assert not torch.equal(found[0][0], found[0][1])


def test_trainings_that_share_a_generator_have_other_dropout():
    sys.modules["dropout_net"] = sys.modules[__name__]
    net = make_net("dropout_net:with_dropout", **DATA.shape)
    generator = torch.Generator().manual_seed(0)
    weights = net.init(torch.Generator().manual_seed(1))
    images = torch.randn(8, DATA.channels, DATA.image_size, DATA.image_size)
    points = {"images": images, "labels": torch.arange(8) % DATA.classes}
    found = []
    for _ in range(2):
        off = Augmentation.parse("off", mirror=False)
        training = Training(net, SGD(0.1), coreset_images, off, generator)
        training.start(weights, points)
        training.run(1)
        found.append(training.weights.params.clone())
    assert not torch.equal(*found)


def test_bpc_w_refuses_networks_that_draw(tmp_path):
    sys.modules["dropout_net"] = sys.modules[__name__]
    settings = ExpertSettings(num=1, epochs=2, batch=8)
    store = train_experts(DATA, "dropout_net:with_dropout", tmp_path, settings, device="cpu")
    with pytest.raises(UserError, match=r"with_dropout draws random numbers .*another --method"):
        distill(DATA, store, DistillSettings("bpc-w", ipc=1, steps=1), device="cpu")


def of_width(width: int) -> Callable[[int, int, int], nn.Module]:
    def build(channels: int, image_size: int, classes: int) -> nn.Module:
        size = channels * image_size**2
        return nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.Linear(width, classes))

    return build


def test_weights_of_a_network_that_was_changed_since_are_refused(tmp_path, monkeypatch):
    module = ModuleType("some_net")
    module.build = of_width(4)
    monkeypatch.setitem(sys.modules, "some_net", module)
    settings, name = ExpertSettings(num=1, epochs=2, batch=8), "some_net:build"
    store = train_experts(DATA, name, tmp_path / "experts", settings, device="cpu")
    coreset = distill(DATA, store, toy("Quadratic"), device="cpu")
    protocol = Protocol(epochs=2, every=1)
    posterior = sample_posterior(coreset, protocol=protocol, device="cpu")
    posterior.save(tmp_path / "posterior.safetensors")
    module.build = of_width(5)
    refusal = r"parameters and 0 buffers a network, and some_net:build has .* changed since"
    for attempt in (
        lambda: distill(DATA, ExpertStore.open(store.path), toy("Quadratic"), device="cpu"),
        lambda: train_experts(DATA, name, store.path, settings, device="cpu"),
        lambda: Posterior.load(tmp_path / "posterior.safetensors").make_net(),
    ):
        with pytest.raises(UserError, match=refusal):
            attempt()


def test_a_file_of_options_that_is_no_utf8_is_one_sentence(tmp_path, capsys):
    (tmp_path / "options.yaml").write_text("ipc: 1\n", encoding="utf-16")
    options = ["--config", str(tmp_path / "options.yaml"), "--out", str(tmp_path / "run")]
    assert main(["distill", "--data", "digits", *options]) == 2
    assert capsys.readouterr().err.count("options.yaml is no text in UTF-8: save it as such") == 1


def test_a_run_whose_scores_could_not_be_stored_is_not_scored(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    distill(DATA, (), DistillSettings("random", ipc=1), net=NET, out=run, device="cpu")
    monkeypatch.setattr(commands, "evaluate_coreset", lambda *_, **__: pytest.fail("was scored"))
    monkeypatch.setattr(files.os, "access", lambda path, _: Path(path) != run)
    assert main(["evaluate", str(run / "coreset.safetensors"), "--data", "digits"]) == 2
    assert "run can't be written to" in capsys.readouterr().err


def test_metrics_end_before_bytes_that_are_no_text(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"update": 1}\n\x95\xff\n{"update": 3}\n')
    assert read_metrics(tmp_path) == [{"update": 1}]


def test_places_that_cannot_be_written_are_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "x.json", tmp_path):
        with pytest.raises(UserError, match=r"can't be written .*: give another place"):
            write_json(place, {})


def test_stores_without_a_network_and_networks_twice_are_refused(tmp_path, capsys):
    experts = ["experts", "--data", "digits", "--epochs", "1", "--num", "1", "--quiet"]
    for name in ("one", "two"):
        assert main([*experts, "--net", "convnet:width=4", "--out", str(tmp_path / name)]) == 0
    both = [f"--experts={tmp_path / name}" for name in ("one", "two")]
    distill_it = ["distill", "--data", "digits", "--out", str(tmp_path / "run"), *both]
    assert main([*distill_it, "--net", "convnet:width=4"]) == 2
    assert "no --net is left for the experts in" in capsys.readouterr().err
    assert main([*distill_it, "--from-epoch", "1"]) == 2
    assert "are not all different" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_decoding_many_files_shows_how_far_it_is(tmp_path, capsys):
    from PIL import Image

    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(3):
                Image.new("L", (8, 8), 40 * number).save(tmp_path / part / name / f"{number}.png")
    experts = ["experts", "--data", f"folder:{tmp_path}", "--net", "convnet:width=4"]
    assert main([*experts, "--epochs", "1", "--num", "1", "--out", str(tmp_path / "ex")]) == 0
    assert "decoding training images" in capsys.readouterr().err
