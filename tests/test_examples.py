"""The scripts under examples/ run, each on little."""

import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

import pseudocoreset as pc

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a script as `python examples/NAME` does, in an empty folder; what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def script(name: str, *words: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *words])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    yield script
    torch.set_num_threads(threads)


def test_plain_loop_learns_from_the_coreset(run):
    (accuracy,) = re.findall(r"accuracy (0\.\d+) on 500", run("plain_loop.py"))
    assert float(accuracy) > 0.85


def test_scikit_learn_takes_a_coreset_of_a_table(run):
    said = run("table_to_scikit_learn.py")
    scores = [float(text) for text in re.findall(r"synthetic rows (0\.\d+)", said)]
    assert len(scores) == 3
    assert min(scores) > 0.8


def test_photos_stand_with_the_least_sure_first(run, tmp_path):
    posterior = pc.sample(pc.load("digits", ipc=1), pc.SGHMC(epochs=60, every=20), chains=1)
    posterior.save(tmp_path / "posterior.safetensors")
    (tmp_path / "photos").mkdir()
    for place, pixels in enumerate(pc.load_data("digits").test.inputs[:10]):
        Image.fromarray(pixels[0].numpy()).save(tmp_path / "photos" / f"{place}.png")
    said = run("own_photos.py", "photos", "--posterior", "posterior.safetensors")
    rows = [line.split(", ") for line in said.splitlines()[1:-1]]
    entropies = [float(row[3]) for row in rows]
    assert sorted(row[0] for row in rows) == [f"{place}.png" for place in range(10)]
    assert entropies == sorted(entropies, reverse=True)
    assert (tmp_path / "photos.png").exists()


SMALL = "--steps 2 --orders 1 --experts 1 --expert-epochs 3 --updates 2 --learn 40 --curve"


def test_replay_scores_each_memory_after_each_step(run, tmp_path):
    said = run("replay.py", *SMALL.split(), "--out", "scores.json")
    scores = dict(re.findall(r"2 steps, 2 a class, (\w+): ([\d.]+) %", said))
    assert scores.keys() == {"random", "herding", "pseudocoreset"}
    assert min(map(float, scores.values())) > 40
    assert (tmp_path / "scores.json").exists()


@pytest.fixture(scope="module")
def replay():
    return runpy.run_path(str(EXAMPLES / "replay.py"), run_name="replay")


def test_memory_has_the_labels_of_the_whole_data(replay):
    data = pc.load_data("digits")
    groups = (torch.tensor([7, 2]), torch.tensor([9, 0, 1]))
    hard = soft = None
    for classes in groups:
        step = replay["of_classes"](data, classes)
        assert step.class_names == tuple(data.class_names[label] for label in classes)
        new = pc.distill(step, method="random", ipc=2, net="convnet:width=8", progress=False)
        for image, label in zip(new.inputs, classes[new.targets], strict=True):
            same = (data.scaling.apply(data.train.inputs) == image).flatten(1).all(1)
            assert data.train.targets[same].unique().tolist() == [int(label)]
        hard = replay["joined"](hard, new, classes, data)
        shares = torch.eye(len(classes))[new.targets]
        soft = replay["joined"](soft, replace(new, targets=shares), classes, data)
    assert hard.targets.tolist() == [7, 7, 2, 2, 9, 9, 0, 0, 1, 1]
    assert torch.equal(soft.targets.argmax(1), hard.targets)
    assert soft.targets.shape == (10, 10)
    assert hard.outputs == soft.outputs == 10


def test_herding_takes_the_images_nearest_to_the_mean(replay, tmp_path):
    """The first is nearest to its class's mean; each next keeps the mean of those chosen near."""
    data = replay["of_classes"](pc.load_data("digits"), torch.tensor([3, 5]))
    experts = pc.train_experts(data, "convnet:width=8", out=tmp_path, num=1, epochs=1, lr=0.1)
    start = pc.distill(data, method="random", ipc=3, net="convnet:width=8", progress=False)
    found = replay["herded"](data, experts, 3, start)
    net, cpu = experts.make_net(), torch.device("cpu")
    weights = experts.snapshot(experts.trajectories[0], experts.last_epoch, cpu)
    with torch.no_grad():
        everything, chosen = (
            torch.nn.functional.normalize(net.features(weights, inputs), dim=1)
            for inputs in (data.scaling.apply(data.train.inputs), found.inputs)
        )
    for label in range(2):
        mine = everything[data.train.targets == label]
        mean, own = mine.mean(0), chosen[found.targets == label]
        far = (mine - mean).norm(dim=1)
        assert torch.isclose((own[0] - mean).norm(), far.min())
        for count in (2, 3):
            tried = [(torch.cat([own[: count - 1], one[None]]).mean(0) - mean) for one in mine]
            nearest = min(float(each.norm()) for each in tried)  # none of these is chosen again
            assert float((own[:count].mean(0) - mean).norm()) == pytest.approx(nearest, rel=1e-4)
        assert len({tuple(image.flatten().tolist()) for image in found.inputs}) == 6
