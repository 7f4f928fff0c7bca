import io
import json
import re
import shlex
from base64 import b64decode
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy
import pytest
import torch
import yaml
from make_reports import (
    make_convergence,
    make_coreset,
    make_evaluation,
    make_examples,
    make_metrics,
    make_pooled,
    make_regression,
    make_run,
    make_table,
)
from PIL import Image

from pseudocoreset.errors import UserError
from pseudocoreset.forms import Mosaic
from pseudocoreset.report import RunReport, read_run, write_report
from pseudocoreset.report import downloads as downloads_module
from pseudocoreset.report import page as page_module
from pseudocoreset.report.points import tiles
from pseudocoreset.report.protocol_words import protocol_sentence
from pseudocoreset.report.scores import score_rows

LOADS = ("data:image/png;base64,", "data:application/", "data:text/csv;base64,", "#")
VOID = {"meta", "img", "br", "link", "source", "input"}


class Wellformed(HTMLParser):
    """Refuses a page whose tags do not match, and notes all that it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        named = dict(attrs)
        self.loads += [named[key] for key in ("src", "srcset", "href") if key in named]
        self.scripts += tag == "script"
        assert tag not in ("link", "iframe", "object")
        assert tag != "script" or not attrs
        assert tag != "img" or "alt" in named

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page_of(tmp_path: Path, *runs, title="A title") -> str:
    write_report(tmp_path / "report.html", title, runs)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    parser = Wellformed()
    parser.feed(page)
    assert parser.open == []
    assert all(load.startswith(LOADS) for load in parser.loads)
    assert parser.scripts == 1
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    assert not re.search(r"\b(nan|inf|None|Undefined)\b", _words(page))
    return page


def _words(page: str) -> str:
    return re.sub(r'"data:[^"]*"|<script>.*</script>', "", page, flags=re.DOTALL)


def test_page_shows_each_run_and_its_numbers(tmp_path):
    other = make_run("Random", evaluation=make_evaluation(accuracy=0.5, nll=1.5))
    page = page_of(tmp_path, make_run(), other, title="Pets")
    for text in ("<h1>Pets</h1>", "FBPC, 2 images per class", "Random", "0.701", "0.093", "0.287"):
        assert text in page
    assert "<strong>81.2</strong>" in page  # the better one of its size
    assert "<strong>50.0</strong>" not in page
    assert "± 0.013" in page or "± 0.012" in page
    assert "12.3%" in page  # disagreement of the samples
    assert "42 times warmer than set" in page
    assert "seeds 40, 41" in page
    assert "torch 2.11.0" in page


def test_page_writes_its_figures_beside_it(tmp_path):
    page_of(tmp_path, make_run("FBPC / 2"))
    found = sorted(path.name for path in (tmp_path / "figures").iterdir())
    kinds = ("images", "losses", "reliability", "sampler")
    assert found == [f"1-fbpc-2-{kind}.png" for kind in kinds]
    for path in (tmp_path / "figures").iterdir():
        with Image.open(path) as image:
            image.load()
            assert min(image.size) > 50


def test_page_folds_baselines_below_the_other_runs(tmp_path):
    everything = replace(make_run("All training data", coreset=None), config={})
    page = page_of(tmp_path, everything, make_run())
    heads = [
        page.index(f'-name">{name}</h2>')
        for name in ("FBPC, 2 images per class", "All training data")
    ]
    folded = page.index('<details class="whole">')
    assert heads[0] < heads[1] < folded
    assert '<details class="whole">' not in page_of(tmp_path, everything)


def test_scores_of_all_points_are_of_the_kind_of_their_data(tmp_path):
    signs = make_evaluation() | {"convergence": make_convergence(), "coreset": {"images": 343}}
    run = RunReport("All", None, [], {}, signs, of_images=False, of_classes=False)
    page = page_of(tmp_path, run)
    assert "343 points" in page
    assert "The predicted number along each chain" in page
    assert "343 images" in page_of(tmp_path, replace(run, of_images=True))


def test_page_shows_pooled_scores_and_what_classes_are_taken_for(tmp_path):
    without = page_of(tmp_path, make_run())
    assert "pooled" not in without
    assert "Confusion" not in without
    run = make_run(evaluation={**make_evaluation(), "pooled": make_pooled()})
    page = page_of(tmp_path, run)
    for text in (
        "pooled",
        "83.8",
        "0.611",
        "81.8%",
        "Confusion matrix",
        "--share: 0.818",
        ">9</td>",
    ):
        assert text in page


def test_page_shows_the_confusion_of_few_classes_only(tmp_path):
    names = tuple(f"class {place}" for place in range(21))
    run = make_run(
        coreset=make_coreset(names, ipc=1),
        evaluation={**make_evaluation(), "pooled": make_pooled(21)},
    )
    page = page_of(tmp_path, run)
    assert "Accuracy by class" in page
    assert "Confusion" not in page


def test_page_shows_accuracy_by_the_share_kept(tmp_path):
    title = "Accuracy of the most confident predictions"
    assert title not in page_of(tmp_path, make_run())
    curve = {"kept": [0.5, 1.0], "accuracy": [0.9, 0.8]}
    assert title in page_of(tmp_path, make_run(evaluation=make_evaluation() | {"selective": curve}))
    curve = {"kept": [0.5, "x"], "accuracy": [0.9, None]}
    page = page_of(tmp_path, make_run(evaluation=make_evaluation() | {"selective": curve}))
    assert title not in page


def test_page_says_whether_chains_agree(tmp_path):
    words = ("R̂", "Effective samples", "Do the chains agree?", "do not agree")
    page = page_of(tmp_path, make_run(evaluation=make_evaluation()))
    assert not [each for each in words if each in page]
    signs = make_convergence()
    page = page_of(tmp_path, make_run(evaluation=make_evaluation() | {"convergence": signs}))
    assert not [each for each in words if each not in page]
    assert "largest 2.50; above 1.1 for 60% of them, 10% by chance" in page
    signs["warning"] = ""
    page = page_of(tmp_path, make_run(evaluation=make_evaluation() | {"convergence": signs}))
    assert "do not agree" not in page


def test_page_shows_each_image_before_and_after(tmp_path):
    """Under today's class, though learned labels may have moved it to another."""
    soft = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    coreset = replace(make_coreset(("cat", "dog"), ipc=1), targets=soft)
    start = make_coreset(("cat", "dog"), ipc=1, seed=1)
    run = make_run(coreset=coreset, start=start)
    page_of(tmp_path, run)
    pairs = {group.name: group.pairs for group in tiles(run, coreset).classes}
    plain = {group.name: group.pairs for group in tiles(make_run(coreset=start), start).classes}
    assert pairs["cat"][0].before == plain["dog"][0].after
    assert pairs["dog"][0].before == plain["cat"][0].after
    assert pairs["cat"][0].before != pairs["cat"][0].after
    assert plain["cat"][0].before == ""


def test_page_compares_with_random_points_and_a_constant(tmp_path):
    evaluation = make_evaluation() | {"largest_class": 0.4, "random": make_evaluation(0.25)}
    page = page_of(tmp_path, make_run(evaluation=evaluation))
    for text in ("Always the largest class", "40.0", "Random images, 2 images per class", "25.0"):
        assert text in page
    evaluation = make_regression() | {"mean_rmse": 77.5}
    page = page_of(tmp_path, make_run(coreset=make_table(True), evaluation=evaluation))
    assert "Always the mean target" in page
    assert "77.500" in page


def test_page_shows_examples_with_their_probabilities(tmp_path):
    evaluation = make_evaluation() | {"examples": make_examples()}
    image = numpy.full((1, 8, 8), 77, dtype=numpy.uint8)
    page = page_of(tmp_path, make_run(evaluation=evaluation, images={1: image}))
    parts = page.split("Most confidently wrong")
    assert [part.count("cat (75%), fox (20%), dog (5%)<br>") for part in parts] == [2, 1]
    assert page.count('alt="test image') == 1
    shown = re.search(r'src="(\S+)" alt="test image 1"', page)
    assert shown
    with Image.open(io.BytesIO(b64decode(shown[1].partition(",")[2]))) as found:
        assert (numpy.asarray(found) == 77).all()


def test_page_offers_no_file_that_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads_module, "MOST_BYTES", 1000)
    page = page_of(tmp_path, make_run(coreset=make_coreset(("cat",), ipc=1)))
    assert "too large for this page" in page
    assert page.count(" download=") == 1  # the images are small


def test_page_has_commands_that_can_be_typed(tmp_path):
    folder = tmp_path / "it's mine"
    options = {"data": "folder:/my pets", "image_size": 32, "target": "--trust-code"}
    page = page_of(tmp_path, make_run(folder=folder, data_options=options))
    lines = [unescape(line) for line in re.findall(r"<pre><code>(.*?)</code>", page)]
    words = [shlex.split(line) for line in lines]
    assert {each[1] for each in words} == {"evaluate", "sample", "predict", "export", "report"}
    assert all(each[0] == "pseudocoreset" for each in words)
    evaluate = next(each for each in words if each[1] == "evaluate")
    data = ["--data", "folder:/my pets", "--image-size", "32", "--target=--trust-code"]
    assert evaluate[2:] == [str(folder), *data, "--random"]
    assert "pseudocoreset evaluate" not in page_of(tmp_path, make_run())  # no folder is known


def test_page_of_a_regression_has_its_scores_and_no_calibration(tmp_path):
    run = make_run("Diabetes", coreset=make_table(regression=True), evaluation=make_regression())
    page = page_of(tmp_path, run)
    for text in ("RMSE", "54.321", "± 0.500", "5.432", "91.2", "6 points", "synthetic points"):
        assert text in page
    for text in ("Calibration", "Accuracy", "images", "<b>size"):
        assert text not in _words(page)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {f"1-diabetes-{kind}.png" for kind in ("points", "losses", "sampler")}


def test_large_scores_are_shown_whole():
    scores = make_regression() | {"rmse": 20762.38, "rmse_std": 33.696}
    (row,) = score_rows([make_run(coreset=make_table(regression=True), evaluation=scores)])
    assert (row.cells[0].mean, row.cells[0].std) == ("20,762", "33.7")


def test_page_of_a_table_with_classes_has_calibration(tmp_path):
    page = page_of(tmp_path, make_run(coreset=make_table()))
    assert "Calibration" in page
    assert "The points" in page


def test_page_of_a_mosaic_says_what_is_stored_and_seen(tmp_path):
    page = page_of(tmp_path, make_run(coreset=make_coreset(form=Mosaic(2))))
    assert "6 images stored, 24 seen (mosaic:2)" in page
    assert "Stored 6, seen 24 (mosaic:2)." in page
    assert page.count("<img src=") - page.count("<figure>") == 24


def test_page_escapes_what_files_say(tmp_path):
    nasty = "<img src=x onerror=alert(1)>"
    coreset = make_coreset((nasty, "$a_{b", '"quoted" & more\u202e\x1b'))
    coreset = replace(coreset, provenance=replace(coreset.provenance, versions={nasty: nasty}))
    evaluation = {**make_evaluation(), "pooled": make_pooled()}
    evaluation["protocol"] = {**evaluation["protocol"], "net": nasty, "sampler": nasty}
    evaluation["protocol"]["versions"] = {nasty: nasty}
    metrics = [{"update": 1, nasty: 1.0}, {"update": 2, nasty: 2.0}]
    config = {"data": nasty, nasty: [nasty], "seed": 3}
    run = make_run(nasty, coreset=coreset, config=config, evaluation=evaluation, metrics=metrics)
    page = page_of(tmp_path, run, title=nasty)
    assert nasty not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert not {"\u202e", "\x1b"} & set(page)


def test_page_shows_class_names_in_any_script(tmp_path):
    page = page_of(tmp_path, make_run(coreset=make_coreset(("猫", "собака"))))
    assert "猫" in page


def test_page_of_a_run_of_which_little_is_known(tmp_path):
    bare = make_run("Bare", metrics=[], config={}, evaluation=None)
    page = page_of(tmp_path, bare)
    assert "Scores" not in page
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["1-bare-images.png"]


def test_page_of_the_full_data_needs_no_coreset(tmp_path):
    sparse = {"accuracy": 0.99, "nll": 0.03, "coreset": {"images": 1297}}
    full = make_run("Full data", coreset=None, metrics=[], config={}, evaluation=sparse)
    page = page_of(tmp_path, make_run(), full)
    assert "1,297" in page
    assert "99.0" in page
    assert "<strong>99.0" not in page


def test_page_draws_several_networks_and_other_methods_figures(tmp_path):
    several = make_run(
        "Two", metrics=make_metrics(150, networks=2), config={"nets": ["a", "b:c=1"]}
    )
    own = make_run("Own", metrics=[{"update": 1, "elbo": -3, "note": "x"}, {"elbo": float("nan")}])
    page_of(tmp_path, several, own)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"1-two-losses.png", "2-own-losses.png"} <= names


def test_page_tells_of_missed_map_solutions(tmp_path):
    metrics = make_metrics(10, networks=2)
    metrics[3]["map_missed/1"] = 1
    page = page_of(tmp_path, make_run(metrics=metrics))
    assert "In 1 of 10 updates (10.0%)" in page
    assert "raise --gamma" in page
    assert "did not reach" not in page_of(tmp_path, make_run())


def test_page_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    page_of(tmp_path, make_run())
    before = (tmp_path / "report.html").read_bytes()

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(page_module, "seed_words", fail)
    with pytest.raises(MemoryError):
        write_report(tmp_path / "report.html", "New", [make_run("Other")])
    assert (tmp_path / "report.html").read_bytes() == before


def test_protocol_sentence_tells_weight_and_own_options():
    protocol = {"sampler": "my.module:Langevin", "step": 0.1, "weight": 50.0, "swaps": 3}
    sentence = protocol_sentence({**protocol, "own": {"a": 1}, "images": 500, "split": "test"})
    assert sentence == (
        "my.module:Langevin, step 0.1, each point counts 50.0 times, swaps 3; scored on 500 images "
        "of the test split."
    )
    assert "counts" not in protocol_sentence({**protocol, "weight": 1.0})
    by_class = protocol_sentence({**protocol, "class_weights": [20.0, 80.0]})
    assert "each point counts 50.0 times on average, swaps 3." in by_class


def test_read_run_takes_scores_of_its_own_coreset_only(tmp_path):
    config = {"method": "fbpc-isotropic", "ipc": 1, "data": "pets"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    run = read_run(tmp_path)
    assert (run.name, run.coreset, run.metrics) == ("FBPC (isotropic), 1 image per class", None, [])
    assert run.evaluation is None
    coreset = make_coreset(ipc=1)
    coreset.save(tmp_path / "coreset.safetensors")
    (tmp_path / "metrics.jsonl").write_text('{"update": 1.0, "loss_x": 0.5}\n')
    evaluation = make_evaluation()
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    assert read_run(tmp_path).evaluation is None  # the scores of another coreset
    evaluation["coreset"]["fingerprint"] = coreset.fingerprint
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    run = read_run(tmp_path)
    assert (run.points, len(run.metrics), run.score("nll")) == (3, 1, 0.654)


@pytest.mark.parametrize(
    ("coreset", "name"),
    [
        (make_coreset(ipc=1), "Random images, 1 image per class"),
        (make_table(), "Random points, 1 point per class"),
        (make_table(regression=True), "Random points, 1 point"),
    ],
    ids=["images", "table", "regression"],
)
def test_read_run_names_what_was_made(tmp_path, coreset, name):
    (tmp_path / "config.yaml").write_text("method: random\nipc: 1\n")
    coreset.save(tmp_path / "coreset.safetensors")
    assert read_run(tmp_path).name == name


@pytest.mark.parametrize(
    "content", [b"[", b"[]", b"\xff\xfe", b"[" * 100_000], ids=["cut", "list", "binary", "deep"]
)
def test_read_run_refuses_damaged_scores(tmp_path, content):
    (tmp_path / "config.yaml").write_text("ipc: 1")
    (tmp_path / "evaluation.json").write_bytes(content)
    with pytest.raises(UserError):
        read_run(tmp_path)
