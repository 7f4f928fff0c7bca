"""Mistakes of networks and places that are a person's own."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from pseudocoreset import SGHMC, UserError, distill, sample, train_experts
from pseudocoreset.augment import Augmentation
from pseudocoreset.cli import main, main_of_script
from pseudocoreset.engine import files
from pseudocoreset.engine.files import write_json
from pseudocoreset.experts import ExpertOptions, ExpertStore
from pseudocoreset.likelihoods import Categorical
from pseudocoreset.nets import make_net
from pseudocoreset.posterior import Posterior
from pseudocoreset.run_folder import read_metrics
from pseudocoreset.training import SGD, Training, coreset_points
from small_world import NET, make_data

DATA = make_data()


def with_dropout(channels: int, image_size: int, classes: int) -> nn.Module:
    size = channels * image_size**2
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(size, classes))


def test_dropout_follows_the_seed_and_leaves_the_global_generator_alone(tmp_path):
    sys.modules["dropout_net"] = sys.modules[__name__]
    found = []
    for name in ("one", "two"):
        torch.manual_seed(len(found))
        before = torch.get_rng_state()
        settings = ExpertOptions(num=2, epochs=2, batch=8)
        store = train_experts(
            DATA, "dropout_net:with_dropout", tmp_path / name, settings, device="cpu"
        )
        assert torch.equal(torch.get_rng_state(), before)
        paths = store.trajectories
        found.append([store.snapshot(path, 2, torch.device("cpu")).params for path in paths])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
    assert not torch.equal(found[0][0], found[0][1])


def test_dropout_differs_between_trainings():
    sys.modules["dropout_net"] = sys.modules[__name__]
    net = make_net("dropout_net:with_dropout", **DATA.shape)
    generator = torch.Generator().manual_seed(0)
    weights = net.init(torch.Generator().manual_seed(1))
    images = torch.randn(8, DATA.channels, DATA.image_size, DATA.image_size)
    points = {"inputs": images, "targets": torch.arange(8) % DATA.classes}
    found = []
    for _ in range(2):
        off = Augmentation.parse("off", mirror=False)
        training = Training(net, SGD(0.1), coreset_points, off, Categorical(3), generator)
        training.start(weights, points)
        training.run(1)
        found.append(training.weights.params.clone())
    assert not torch.equal(*found)


@pytest.mark.parametrize("method", ["bpc-w", "unrolled"])
def test_way_back_refuses_networks_that_draw(method, tmp_path):
    sys.modules["dropout_net"] = sys.modules[__name__]
    settings = ExpertOptions(num=1, epochs=2, batch=8)
    store = train_experts(DATA, "dropout_net:with_dropout", tmp_path, settings, device="cpu")
    with pytest.raises(UserError) as error:
        distill(DATA, store, method, ipc=1, steps=1, device="cpu")
    assert error.value.parameter == "method"


def of_width(width: int) -> Callable[[int, int, int], nn.Module]:
    def build(channels: int, image_size: int, classes: int) -> nn.Module:
        size = channels * image_size**2
        return nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.Linear(width, classes))

    return build


def test_weights_of_a_changed_network_are_refused(tmp_path, monkeypatch):
    module = ModuleType("some_net")
    module.build = of_width(4)
    monkeypatch.setitem(sys.modules, "some_net", module)
    settings, name = ExpertOptions(num=1, epochs=2, batch=8), "some_net:build"
    store = train_experts(DATA, name, tmp_path / "experts", settings, device="cpu")
    coreset = distill(DATA, store, "random", ipc=1, device="cpu")
    posterior = sample(coreset, SGHMC(epochs=2, every=1), chains=1, device="cpu")
    posterior.save(tmp_path / "posterior.safetensors")
    module.build = of_width(5)
    for attempt in (
        lambda: distill(DATA, ExpertStore.open(store.path), "random", ipc=1, device="cpu"),
        lambda: train_experts(DATA, name, store.path, settings, device="cpu"),
        lambda: Posterior.load(tmp_path / "posterior.safetensors").make_net(),
    ):
        with pytest.raises(UserError, match="parameters"):
            attempt()


def test_config_file_that_is_no_utf8_is_one_sentence(tmp_path, capsys):
    (tmp_path / "options.yaml").write_text("ipc: 1\n", encoding="utf-16")
    options = ["--config", str(tmp_path / "options.yaml"), "--out", str(tmp_path / "run")]
    assert main(["distill", "--data", "digits", *options]) == 2
    assert capsys.readouterr().err.count("options.yaml") == 1


@pytest.mark.parametrize("value", ["!!timestamp x", "!!bool x", "!!int ''", "1" * 400])
def test_config_and_recipe_that_yaml_cannot_tell_are_one_sentence(tmp_path, value, capsys):
    (tmp_path / "config.yaml").write_text(f"ipc: {value}\n")
    (tmp_path / "recipe.yaml").write_text(f"best: {{fbpc: {{batch: {value}}}}}\n")
    for name in ("config", "recipe"):
        path = str(tmp_path / f"{name}.yaml")
        words = ["--data", "digits", "--out", str(tmp_path / "run"), f"--{name}", path]
        assert main(["distill", *words]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_names_that_are_too_long_are_one_sentence(tmp_path, capsys):
    assert main(["info", "x" * 300]) == 2
    distill(DATA, method="random", ipc=1, out=tmp_path / "run", device="cpu", progress=False)
    for command in (["sample"], ["export", "--to", "png"]):
        assert main([*command, str(tmp_path / "run"), "--out", str(tmp_path / ("x" * 300))]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_sample_does_not_overwrite_the_run_it_reads(tmp_path):
    distill(DATA, method="random", ipc=1, out=tmp_path, device="cpu", progress=False)
    path = tmp_path / "coreset.safetensors"
    before = path.read_bytes()
    assert main(["sample", str(tmp_path), "--out", str(path)]) == 2
    assert path.read_bytes() == before


def test_evaluate_checks_that_scores_can_be_stored(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    distill(DATA, method="random", ipc=1, net=NET, out=run, device="cpu")
    monkeypatch.setattr("pseudocoreset.cli.evaluate.evaluate", pytest.fail)
    monkeypatch.setattr(files.os, "access", lambda path, _: Path(path) != run)
    assert main(["evaluate", str(run / "coreset.safetensors"), "--data", "digits"]) == 2
    assert "run can't be written" in capsys.readouterr().err


def test_metrics_end_before_damaged_bytes(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"update": 1}\n\x95\xff\n{"update": 3}\n')
    assert read_metrics(tmp_path) == [{"update": 1}]


def test_places_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "x.json", tmp_path):
        with pytest.raises(UserError, match=r"can't be written .*: give another path"):
            write_json(place, {})


def test_stores_and_networks_must_match(tmp_path, capsys):
    experts = ["experts", "--data", "digits", "--epochs", "1", "--num", "1", "--quiet"]
    for name in ("one", "two"):
        assert main([*experts, "--net", "convnet:width=4", "--out", str(tmp_path / name)]) == 0
    both = [f"--experts={tmp_path / name}" for name in ("one", "two")]
    distill_it = ["distill", "--data", "digits", "--out", str(tmp_path / "run"), *both]
    assert main([*distill_it, "--net", "convnet:width=4"]) == 2
    assert "--net" in capsys.readouterr().err
    assert main([*distill_it, "--from-epoch", "1"]) == 2
    assert "not all different" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_decoding_files_shows_progress(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("pseudocoreset.engine.bars.SECONDS_BETWEEN_LINES", 0.0)
    from PIL import Image

    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(3):
                Image.new("L", (8, 8), 40 * number).save(tmp_path / part / name / f"{number}.png")
    experts = ["experts", "--data", f"folder:{tmp_path}", "--net", "convnet:width=4"]
    assert main([*experts, "--epochs", "1", "--num", "1", "--out", str(tmp_path / "ex")]) == 0
    assert "decoding training images" in capsys.readouterr().err


def test_interrupt_before_a_command_began_prints_no_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("pseudocoreset.cli.main", interrupted)
    with pytest.raises(SystemExit) as caught:
        main_of_script()
    assert caught.value.code == 130
    assert "interrupted" in capsys.readouterr().err
