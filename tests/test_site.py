"""The documentation site: it builds without a warning, and its tutorials can be followed."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pseudocoreset as pc
from browser import CHROMIUM, browse

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def image_folder(folder: Path, sides: tuple[int, int] = (16, 17)) -> None:
    """Two classes that differ in brightness."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            side = sides[i % 2]
            pixels = rng.integers(0, 128, (side, side, 3)) + 127 * number
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i:03}.png")


def wine(path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["acid,sugar,region,price,kind"]
    for i in range(90):
        acid, sugar = rng.normal(i % 3, 0.3), rng.normal(-(i % 3), 0.3)
        price = 5 + acid + rng.normal(0, 0.1)
        region = "north" if i % 2 else "south"
        lines.append(
            f"{acid:.3f},{sugar:.3f},{region},{price:.2f},{('red', 'white', 'rose')[i % 3]}"
        )
    path.write_text("\n".join(lines) + "\n")


def test_site_builds_strictly(tmp_path):
    run(ROOT, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site"))
    site = tmp_path / "site"
    assert "From Python" in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "results" / "pictures" / "cifar10-fbpc-ipc10.png").exists()
    faq = (site / "faq" / "index.html").read_text(encoding="utf-8")
    assert 'class="language-text highlight"' in faq  # which css/wrap.css wraps
    speed = (site / "speed" / "index.html").read_text(encoding="utf-8")
    assert re.search(r"LeNet and ResNet18</summary>\s*<!--.*?-->\s*<table>", speed)
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: the pages are not opened")
    pages = [path.relative_to(site).as_posix() for path in site.rglob("index.html")]
    seen = browse(site, [(page, 390, "") for page in sorted(pages)])
    assert seen.console == []
    assert len(seen.pages) == len(pages)
    for page in seen.pages:
        assert (page["too_wide"], page["broken"]) == (0, []), page


def test_reference_has_every_public_name():
    listed = re.findall(
        r"^::: pseudocoreset\.(?:\w+\.)*(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE
    )
    gone = {"__version__", "sample_posterior"}
    assert sorted(listed) == sorted(set(pc.__all__) - gone)


@pytest.mark.parametrize("page", ["quickstart.md", "own-images.md", "table.md"])
def test_tutorial_in_python_runs(page, tmp_path):
    image_folder(tmp_path / "photos")
    wine(tmp_path / "wine.csv")
    run(tmp_path, "-W", "error", "-c", "\n".join(blocks(page, "python")))


EACH_LINE = """
import shlex, sys
from pseudocoreset.cli import main
for line in sys.argv[1:]:
    program, *arguments = shlex.split(line)
    assert program == "pseudocoreset"
    assert main(arguments) == 0, line
"""


def test_tutorial_on_the_command_line_runs(tmp_path):
    image_folder(tmp_path / "my-digits")
    # A program of its own, without the checks of types, which take longer than the work.
    lines = "".join(blocks("command-line.md", "sh")).splitlines()
    run(tmp_path, "-W", "error", "-c", EACH_LINE, *lines)
    assert (tmp_path / "run" / "report.html").exists()
    assert (tmp_path / "predictions.csv").exists()


def test_errors_of_the_faq_are_those_that_are_raised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image_folder(tmp_path / "photos")
    image_folder(tmp_path / "pets", sides=(16, 16))
    for path in sorted((tmp_path / "pets" / "dog").iterdir())[1:]:
        path.unlink()
    (tmp_path / "gaps.csv").write_text("acid,sugar,kind\n1,2,red\n3,,white\n4,5,red\n")
    digits = pc.load_data("digits")
    names = {"pc": pc, "data": digits}
    names["experts"] = pc.train_experts(digits, "convnet:width=8", out="experts", num=1, epochs=1)
    said = zip(blocks("faq.md", "python"), blocks("faq.md", "text"), strict=True)
    for code, message in said:
        with pytest.raises(pc.UserError) as raised:
            exec(code, names)
        assert str(raised.value).split() == message.split()
