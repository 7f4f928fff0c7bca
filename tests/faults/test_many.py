"""Many inputs, and many processes at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import differences, lasting, left, make_jobs
from kills import COMMAND, finish
from make_data import make_tiny_imagenet, smooth

import pseudocoreset as pc
from pseudocoreset.cli import main
from pseudocoreset.posterior.inputs import BLOCK

PEAK = """
import resource, sys
from pseudocoreset.cli import main
assert main(sys.argv[1:]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.fixture(scope="module")
def posterior(tmp_path_factory):
    """A posterior for digits."""
    coreset = pc.distill(
        pc.load_data("digits"), (), "random", ipc=1, net="convnet:width=4", progress=False
    )
    path = tmp_path_factory.mktemp("load") / "posterior.safetensors"
    pc.sample(coreset, pc.SGHMC(epochs=2, every=1), chains=1, progress=False).save(path)
    return path


def make_images(folder, number):
    """Image files in a folder: links to a few."""
    (folder / "images").mkdir(parents=True)
    for place in range(10):
        smooth(8, seed=place, channels=1).save(folder / f"{place}.png")
    for place in range(number):
        (folder / "images" / f"{place:06}.png").hardlink_to(folder / f"{place % 10}.png")
    return folder / "images"


def test_images_are_read_when_they_are_predicted(posterior, tmp_path, capsys):
    """After a whole block comes a file that is no image: the block was predicted before."""
    images = make_images(tmp_path, BLOCK)
    (images / "z.png").write_text("not an image")
    out = [tmp_path / "out.json", tmp_path / "out.csv"]
    words = ["predict", posterior, images, "--json", out[0], "--csv", out[1]]
    assert main(list(map(str, words))) == 2
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == BLOCK
    assert "z.png" in told.err
    assert not any(path.exists() for path in out)


def test_blocks_do_not_change_what_is_predicted(posterior, tmp_path):
    images = make_images(tmp_path, BLOCK + 7)
    rows = {}
    for name, paths in {"together": [images], "apart": sorted(images.iterdir())}.items():
        out = tmp_path / f"{name}.json"
        assert (
            main(["predict", str(posterior), *map(str, paths), "--json", str(out), "--quiet"]) == 0
        )
        rows[name] = json.loads(out.read_text())
    assert rows["together"] == rows["apart"]
    assert [row["image"] for row in rows["together"]] == [str(p) for p in sorted(images.iterdir())]
    again = [{**row, "image": ""} for row in rows["together"]]
    assert again[0] == again[10]
    assert again[: BLOCK + 7 - 10] == again[10:]  # ten images, again and again


@pytest.mark.slow
def test_memory_hardly_grows_with_the_images(posterior, tmp_path):
    peaks = []
    for number in (1_000, 100_000):
        images = make_images(tmp_path / str(number), number)
        out = [
            "--json",
            tmp_path / f"{number}.json",
            "--csv",
            tmp_path / f"{number}.csv",
            "--quiet",
        ]
        words = [sys.executable, "-c", PEAK, "predict", posterior, images, *out]
        ended = subprocess.run(words, capture_output=True, text=True, check=True)
        peaks.append(int(ended.stdout) << 10)
    assert peaks[1] - peaks[0] < 100_000 * 1000  # a name takes 100 bytes, a path a few more


def test_processes_share_one_cache(tmp_path):
    evaluate_side_by_side(tmp_path, 4)


@pytest.mark.slow
def test_fifty_processes_share_one_cache(tmp_path):
    evaluate_side_by_side(tmp_path, 50)


def evaluate_side_by_side(folder: Path, number: int) -> None:
    """Score one coreset in many processes that all decode, cache and read the same images."""
    make_tiny_imagenet(folder / "data")
    spec, out = f"tiny-imagenet:{folder / 'data'}", folder / "out"
    data = pc.load_data(spec, image_size=8)
    net = "convnet:depth=1,width=4"
    coreset = pc.distill(data, (), "random", ipc=1, net=net, progress=False)
    coreset.save(folder / "coreset.safetensors")
    (cache,) = (folder / "data").glob("pseudocoreset-*")
    cache.unlink()
    words = ["evaluate", str(folder / "coreset.safetensors"), "--data", spec, "--image-size", "8"]
    words += ["--seeds", "1", "--epochs", "2", "--every", "1", "--quiet", "--json"]
    command = [sys.executable, "-m", "pseudocoreset", *words]
    processes = [
        subprocess.Popen(
            [*command, str(out / f"{place}.json")],
            stderr=subprocess.PIPE,
            text=True,
        )
        for place in range(number)
    ]
    told = [process.communicate()[1] for process in processes]
    assert {process.returncode for process in processes} == {0}, told
    found = [lasting(json.loads(path.read_text())) for path in out.iterdir()]
    assert len(found) == number
    assert all(scores == found[0] for scores in found)
    assert [path.name for path in (folder / "data").glob("*pseudocoreset-*")] == [cache.name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experts", "distill", "evaluate", "reproduce"])
def test_two_processes_at_one_job(tmp_path, name):
    """Both end, one perhaps since the other is at work; what they leave is as from one."""
    job = make_jobs(tmp_path / "made", "digits", larger=4)[name]
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
        job.prepare(place)
    finish(job, places[0])
    words = [sys.executable, COMMAND, *job.words(places[1])]
    several = [
        subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
        )
        for _ in range(2)
    ]
    for process in several:
        told, _ = process.communicate()
        assert process.returncode == 0 or "another process is using" in told, told
    finish(job, places[1])
    assert not differences(left(places[1]), left(places[0]))
