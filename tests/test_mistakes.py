"""Mistakes of methods, networks and places that are a person's own, and interrupts."""

import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import toy_methods
from pseudocoreset import DistillSettings, ExpertSettings, UserError, distill, train_experts
from pseudocoreset.cli import main
from pseudocoreset.engine.files import write_json
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
        (toy("LossNotFinite"), "update 1 gave a loss or a gradient that is not finite"),
        (toy("Quadratic", steps=-5), "--steps -5"),
        (toy("Quadratic", lr_images=-1.0), "--lr-images -1.0"),
        (toy("Quadratic", lr_images=float("nan")), "--lr-images nan"),
    ],
)
def test_a_method_of_ones_own_is_told_what_is_wrong(settings, says):
    with pytest.raises(UserError, match=says):
        distill(DATA, (), settings, net=NET, device="cpu")


def test_a_method_of_ones_own_needs_no_experts_and_may_have_several_networks():
    nets = [NET, "convnet:width=4"]
    coreset = distill(DATA, (), toy("Quadratic", steps=1), net=nets, device="cpu")
    assert len(coreset.provenance.config["nets"]) == 2


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
