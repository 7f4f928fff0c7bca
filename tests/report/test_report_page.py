import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from make_reports import make_coreset, make_evaluation, make_metrics, make_run
from PIL import Image

from pseudocoreset.errors import UserError
from pseudocoreset.report import read_run, write_report

VOID = {"meta", "img", "br", "link", "source", "input"}


class Wellformed(HTMLParser):
    """Refuses a page whose tags do not match, and notes all that it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.without_alt = 0

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        named = dict(attrs)
        self.loads += [named[key] for key in ("src", "srcset", "href") if key in named]
        assert tag not in ("script", "link", "iframe", "object")
        assert tag != "img" or "alt" in named

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page_of(tmp_path: Path, *runs, title="A title") -> str:
    write_report(tmp_path / "report.html", title, runs)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    parser = Wellformed()
    parser.feed(page)
    assert parser.open == []
    assert all(load.startswith(("data:image/png;base64,", "#")) for load in parser.loads)
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    assert not re.search(r"\b(nan|inf|None|Undefined)\b", _words(page))
    return page


def _words(page: str) -> str:
    return re.sub(r'"data:[^"]*"', "", page)


def test_a_page_shows_each_run_and_its_numbers(tmp_path):
    other = make_run("Random", evaluation=make_evaluation(accuracy=0.5, nll=1.5))
    page = page_of(tmp_path, make_run(), other, title="Pets")
    for text in ("<h1>Pets</h1>", "FBPC, 2 images per class", "Random", "0.701", "0.093", "0.287"):
        assert text in page
    assert "<strong>81.2</strong>" in page  # the better one of its size
    assert "<strong>50.0</strong>" not in page
    assert "± 0.013" in page or "± 0.012" in page
    assert "12.3%" in page  # disagreement of the samples
    assert "42 times warmer than told" in page
    assert "seeds 40, 41" in page
    assert "torch 2.11.0" in page


def test_figures_are_written_beside_the_page(tmp_path):
    page_of(tmp_path, make_run("FBPC / 2"))
    found = sorted(path.name for path in (tmp_path / "figures").iterdir())
    kinds = ("images", "losses", "reliability", "sampler")
    assert found == [f"1-fbpc-2-{kind}.png" for kind in kinds]
    for path in (tmp_path / "figures").iterdir():
        with Image.open(path) as image:
            image.load()
            assert min(image.size) > 50


def test_what_a_person_named_is_escaped(tmp_path):
    nasty = "<img src=x onerror=alert(1)>"
    coreset = make_coreset((nasty, "$a_{b", '"quoted" & more'))
    page = page_of(tmp_path, make_run(nasty, coreset=coreset, config={"data": nasty}), title=nasty)
    assert nasty not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_class_names_in_any_script(tmp_path):
    page = page_of(tmp_path, make_run(coreset=make_coreset(("猫", "собака"))))
    assert "猫" in page


def test_a_run_of_which_little_is_known(tmp_path):
    bare = make_run("Bare", metrics=[], config={}, evaluation=None)
    page = page_of(tmp_path, bare)
    assert "Scores" not in page
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["1-bare-images.png"]


def test_the_full_data_have_no_coreset(tmp_path):
    sparse = {"accuracy": 0.99, "nll": 0.03, "coreset": {"images": 1297}}
    full = make_run("Full data", coreset=None, metrics=[], config={}, evaluation=sparse)
    page = page_of(tmp_path, make_run(), full)
    assert "1,297" in page
    assert "99.0" in page
    assert "<strong>99.0" not in page


def test_several_networks_and_other_methods_figures(tmp_path):
    several = make_run(
        "Two", metrics=make_metrics(150, networks=2), config={"nets": ["a", "b:c=1"]}
    )
    own = make_run("Own", metrics=[{"update": 1, "elbo": -3, "note": "x"}, {"elbo": float("nan")}])
    page_of(tmp_path, several, own)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"1-two-losses.png", "2-own-losses.png"} <= names


def test_missed_map_solutions_are_told(tmp_path):
    metrics = make_metrics(10, networks=2)
    metrics[3]["map_missed/1"] = 1
    page = page_of(tmp_path, make_run(metrics=metrics))
    assert "In 1 of 10 updates (10.0%)" in page
    assert "raise --gamma" in page
    assert "did not reach" not in page_of(tmp_path, make_run())


def test_a_page_that_fails_leaves_the_old_one(tmp_path):
    page_of(tmp_path, make_run())
    before = (tmp_path / "report.html").read_bytes()
    broken = make_run(
        evaluation={"reliability": {k: ["x"] for k in ("share", "confidence", "accuracy")}}
    )
    with pytest.raises(ValueError, match="convert"):
        write_report(tmp_path / "report.html", "New", [broken])
    assert (tmp_path / "report.html").read_bytes() == before


def test_reading_a_run_folder(tmp_path):
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
    assert (run.images, len(run.metrics), run.score("nll")) == (3, 1, 0.654)
    (tmp_path / "evaluation.json").write_text("[")
    with pytest.raises(UserError, match=r"evaluation\.json can't be read"):
        read_run(tmp_path)
