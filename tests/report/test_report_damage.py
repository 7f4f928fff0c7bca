"""Whatever the files of a run folder hold, there is a page or a sentence, and no traceback."""

import json
import tempfile
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_reports import (
    make_convergence,
    make_coreset,
    make_evaluation,
    make_examples,
    make_metrics,
    make_pooled,
)

from pseudocoreset.engine.files import write_tensors
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.report import keep_data_options, print_scores, read_run, write_report
from pseudocoreset.report.kept import KIND

CONFIG = {
    "method": "fbpc",
    "ipc": 2,
    "data": "pets",
    "nets": ["convnet", "lenet"],
    "gamma": 0.05,
    "max_map_steps": 100,
    "steps": 6,
    "seed": 7,
    "learn_labels": False,
}
NINE_TO_THE_NINTH = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "\n".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**30, -(10**400), 2**63, 0]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["<b>", "\x1b[31m", "\ud800", "\u202e", "nan", "x" * 5000, ""]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
TIMES = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value inside another."""
    items: list[Any] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value[:3]))
    found = []
    for key, inner in items:
        found += [(*path, key), *places_in(inner, (*path, key))]
    return found


@st.composite
def damaged(draw, value: Any) -> Any:
    """The same with some of its values changed or taken away."""
    changed = deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        places = places_in(changed)
        if not places:
            return draw(VALUES)
        *outer, last = draw(st.sampled_from(places))
        holder = changed
        for key in outer:
            holder = holder[key]
        if draw(st.booleans()):
            holder[last] = draw(VALUES)
        else:
            del holder[last]
    return changed


def make_folder(folder: Path) -> dict[str, Any]:
    """A run folder with everything in it; its scores."""
    coreset = make_coreset(ipc=1)
    coreset.save(folder / "coreset.safetensors")
    coreset.save(folder / "start.safetensors", precision="byte")
    evaluation = {**make_evaluation(), "pooled": make_pooled(), "examples": make_examples()}
    evaluation["coreset"]["fingerprint"] = coreset.fingerprint
    tensors = {"index": torch.arange(3), "inputs": torch.zeros(3, 1, 8, 8, dtype=torch.uint8)}
    metadata = {"kind": KIND, "coreset": coreset.fingerprint}
    write_tensors(folder / "examples.safetensors", tensors, metadata)
    keep_data_options(folder, {"data": "folder:my pets", "image_size": 8, "task": None})
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    write_metrics(folder, make_metrics())
    return evaluation


def write_metrics(folder: Path, rows: list[Any]) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def report_on(folder: Path) -> bool:
    """Write the page, or be refused with a sentence; anything else fails."""
    try:
        run = read_run(folder)
    except UserError as error:
        text = str(error)
        if text != printable(text, 10_000):
            pytest.fail(f"{text!r} is not fit to be printed")
        return False
    print_scores([run])
    write_report(folder / "report.html", "Title", [run])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert not {"\x1b", "\u202e"} & set(page)
    return True


def test_report_on_a_whole_folder_has_everything(tmp_path):
    make_folder(tmp_path)
    assert report_on(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for text in (
        "Calibration",
        "Distillation",
        "Confusion",
        "All scores",
        "convnet",
        "Most uncertain",
    ):
        assert text in page


# What is not looked at is taken away: drawing takes most of the time.


@TIMES
@given(
    damaged(
        {
            **make_evaluation(),
            "pooled": make_pooled(),
            "convergence": make_convergence(),
            "examples": make_examples(),
            "random": make_evaluation(),
            "coreset": {"fingerprint": "x"},
        }
    ),
    st.booleans(),
)
def test_report_on_damaged_scores_is_a_page_or_a_sentence(evaluation, has_coreset):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = make_folder(folder)
        (folder / "metrics.jsonl").unlink()
        if not has_coreset:
            (folder / "coreset.safetensors").unlink()
        if isinstance(evaluation, dict) and isinstance(evaluation.get("coreset"), dict):
            evaluation["coreset"]["fingerprint"] = whole["coreset"]["fingerprint"]
        (folder / "evaluation.json").write_text(json.dumps(evaluation))
        report_on(folder)


@TIMES
@given(damaged(CONFIG))
def test_report_on_a_damaged_configuration_is_a_page_or_a_sentence(config):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_folder(folder)
        (folder / "evaluation.json").unlink()
        with suppress(UnicodeEncodeError):  # PyYAML's, of a lone surrogate
            (folder / "config.yaml").write_text(yaml.safe_dump(config))
        report_on(folder)


@TIMES
@given(damaged(make_metrics(3)), st.binary(max_size=20))
def test_report_on_damaged_metrics_is_a_page_or_a_sentence(rows, noise):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_folder(folder)
        (folder / "evaluation.json").unlink()
        (folder / "coreset.safetensors").unlink()
        write_metrics(folder, rows if isinstance(rows, list) else [rows])
        with (folder / "metrics.jsonl").open("ab") as file:
            file.write(noise)
        assert report_on(folder)


@pytest.mark.parametrize("name", ["config.yaml", "evaluation.json", "metrics.jsonl", "data.json"])
@TIMES
@given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_report_on_files_of_anything_is_a_page_or_a_sentence(name, content):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
        (folder / name).write_bytes(content)
        report_on(folder)


@pytest.mark.parametrize(
    "text",
    [
        "ipc: null",
        "seed: null\nsteps: many\nnets: 3",
        "ipc: [1, [2, [3]]]",
        "ipc: 0x" + "f" * 5000,
        "ipc: " + "9" * 5000,
        "a: !!int ''",
        "a: !!bool maybe",
        "a: !!timestamp soon",
        "a: 2020-01-01",
        "a: !!binary aGVsbG8=",
        "a: &a [*a]",
        NINE_TO_THE_NINTH,
        "? [1]\n: 2",
        "3: 4",
        "a: " + "[" * 5000,
        'data: "\\ud800"',
        "!!python/object/apply:os.system ['false']",
        "",
    ],
)
def test_report_on_a_strange_configuration_is_a_page_or_a_sentence(tmp_path, text):
    make_folder(tmp_path)
    (tmp_path / "config.yaml").write_text(text)
    report_on(tmp_path)


@pytest.mark.parametrize("name", ["evaluation.json", "metrics.jsonl", "config.yaml", "data.json"])
def test_report_on_a_folder_in_a_files_place_is_refused(tmp_path, name):
    make_folder(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(UserError):
        read_run(tmp_path)


def test_report_on_metrics_cut_short_keeps_what_is_whole(tmp_path):
    make_folder(tmp_path)
    deep = "[" * 100_000
    (tmp_path / "metrics.jsonl").write_text(f'{{"update": 1, "loss": 2}}\n{{"update": 2, {deep}')
    assert read_run(tmp_path).metrics == [{"update": 1, "loss": 2}]
    assert report_on(tmp_path)


@pytest.mark.parametrize("name", ["start.safetensors", "examples.safetensors"])
def test_report_without_what_is_only_shown_is_still_a_page(tmp_path, name):
    make_folder(tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:100])
    assert report_on(tmp_path)
