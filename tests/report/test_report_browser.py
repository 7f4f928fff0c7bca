"""The page in a real browser, at the widths of a desk and of a phone."""

import io
import zipfile
from pathlib import Path

import numpy
import pytest
from make_reports import (
    make_convergence,
    make_coreset,
    make_evaluation,
    make_examples,
    make_pooled,
    make_regression,
    make_run,
    make_table,
)
from PIL import Image

from browser import browse, needs_browser
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.report import RunReport, write_report

WIDTHS = (390, 1280)
POINT = """
const result = {};
for (const [name, pair] of [["first", all[0]], ["last", all.at(-1)]]) {
  pair.scrollIntoView({ block: "center", behavior: "instant" });
  await wait(100);
  const at = pair.getBoundingClientRect();
  const where = { bubbles: true, clientX: at.x + 1, clientY: at.y + 1 };
  pair.dispatchEvent(new window.PointerEvent("pointerover", where));
  await Promise.all([...zoom.querySelectorAll("img")].map((image) => image.decode()));
  const box = zoom.getBoundingClientRect();
  result[name] = {
    images: zoom.querySelectorAll("img").length,
    side: zoom.querySelector("img").getBoundingClientRect().width,
    words: zoom.innerText,
    inside: box.left >= 0 && box.top >= 0 && box.right <= window.innerWidth
      && box.bottom <= window.innerHeight,
    hides: box.left < at.right && at.left < box.right && box.top < at.bottom && at.top < box.bottom,
  };
}
page.body.dispatchEvent(new window.PointerEvent("pointerover", { bubbles: true }));
return { ...result, hidden: zoom.hidden };
"""
ZOOM = 'const zoom = page.getElementById("zoom"), all = [...page.querySelectorAll("[data-words]")];'
DOWNLOAD = """
for (const link of page.querySelectorAll("a[download]")) { link.click(); await wait(300); }
"""


def images_run() -> RunReport:
    """With everything that a page can show."""
    names = ("cat", "a class whose name is far too long for one line of a phone", "猫")
    evaluation = {**make_evaluation(), "pooled": make_pooled(), "convergence": make_convergence()}
    evaluation |= {"largest_class": 0.4, "examples": make_examples()}
    evaluation["random"] = make_evaluation(accuracy=0.5)
    coreset, start = make_coreset(names, ipc=12), make_coreset(names, ipc=12, seed=1)
    image = numpy.zeros((1, 8, 8), dtype=numpy.uint8)
    return make_run(
        coreset=coreset,
        start=start,
        evaluation=evaluation,
        images={0: image, 1: image + 9, 2: image + 99},
        folder=Path("/a folder/with a rather long name/that does not fit/on a phone/in one line"),
        config={"data": "digits", "init": "real", "long": "x" * 300},
    )


def regression_run() -> RunReport:
    coreset = make_table(regression=True)
    evaluation = make_regression() | {"examples": make_examples(regression=True)}
    return make_run("A table", coreset=coreset, start=coreset, evaluation=evaluation)


@pytest.fixture
def pages(tmp_path) -> Path:
    write_report(tmp_path / "images.html", "Images", [images_run()])
    write_report(tmp_path / "table.html", "A table", [regression_run()])
    return tmp_path


@needs_browser
def test_page_works_in_a_browser(pages, tmp_path):
    kept = tmp_path / "downloads"
    kept.mkdir()
    jobs = [("images.html", width, ZOOM + POINT) for width in WIDTHS]
    jobs += [("table.html", width, "") for width in WIDTHS]
    jobs += [("images.html", 1280, DOWNLOAD)]
    seen = browse(pages, jobs, kept)
    assert seen.console == []
    assert len(seen.pages) == len(jobs)
    for page in seen.pages:
        assert page["too_wide"] <= 0, page
        assert page["broken"] == []
        assert page["loads"] == []
        assert page["images"] > 3
    for page in seen.pages[:2]:
        assert page["hidden"]
        assert page["first"]["images"] == 2  # before and after
        assert page["last"]["images"] == 1  # a test image
        for zoom in (page["first"], page["last"]):
            assert zoom["inside"]
            assert not zoom["hides"]
            assert zoom["side"] >= 150
        assert page["first"]["words"].strip() == "cat: start (left) and result (right)"
        assert "Predicted: cat" in page["last"]["words"]
    check_downloads(kept)


def check_downloads(folder: Path) -> None:
    coreset = images_run().coreset
    assert coreset is not None
    (file,) = folder.glob("*.safetensors")
    assert Pseudocoreset.load(file) == coreset
    (archive,) = folder.glob("*.zip")
    with zipfile.ZipFile(archive) as found:
        names = found.namelist()
        assert len(names) == len(coreset)
        with Image.open(io.BytesIO(found.read(names[0]))) as image:
            assert image.size == (8, 8)


@needs_browser
def test_browser_would_see_a_broken_page(tmp_path):
    write_report(tmp_path / "whole.html", "Images", [make_run()])
    text = (tmp_path / "whole.html").read_text(encoding="utf-8")
    for name, new in {
        "wide": '</h1><div style="width: 900px">x</div>',
        "image": '</h1><img alt="" src="data:image/png;base64,AAAA">',
        "network": '</h1><img alt="" src="http://network.invalid/x.png">',
        "script": "</h1><script>document.title</script>",
    }.items():
        (tmp_path / f"{name}.html").write_text(text.replace("</h1>", new), encoding="utf-8")
    seen = browse(
        tmp_path, [(f"{n}.html", 390, "") for n in ("wide", "image", "network", "script")]
    )
    wide, image, network, _ = seen.pages
    assert (wide["too_wide"] > 0, image["too_wide"]) == (True, 0)
    assert len(image["broken"]) == len(network["broken"]) == 1
    told = "\n".join(seen.console)
    assert "network.invalid" in told
    assert "inline script" in told
