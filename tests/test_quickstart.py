"""The quickstart, shortened: what it leaves behind, and that it goes on where it stopped."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pseudocoreset import quickstart as module
from pseudocoreset.cli import main
from pseudocoreset.data import load_data
from pseudocoreset.recipes import OWN


@pytest.fixture
def shortened(monkeypatch):
    short = replace(module.PROTOCOL, epochs=4, every=2)
    monkeypatch.setattr(module, "NET", "convnet:width=8")
    monkeypatch.setattr(module, "EXPERTS", replace(module.EXPERTS, num=1, epochs=2))
    monkeypatch.setattr(module, "PROTOCOL", short)
    monkeypatch.setattr(module, "FULL_PROTOCOL", short)
    for key, recipe in OWN.items():
        monkeypatch.setitem(OWN, key, replace(recipe, steps=2, gamma=2.0, from_epoch=1))


def test_it_leaves_a_table_and_a_page_and_can_go_on(shortened, monkeypatch, tmp_path, capsys):
    # Only here: the second process, to which this belongs, has it still.
    monkeypatch.delattr(module._Compared, "measure")
    out = tmp_path / "out"
    assert main(["quickstart", "--out", str(out), "--quiet"]) == 0
    first = capsys.readouterr().out
    for name in ("FBPC", "Random", "All training images", "report.html"):
        assert name in first
    page = (out / "report.html").read_text()
    assert "All training images" in page
    coreset = out / "fbpc-ipc10" / "coreset.safetensors"
    before = coreset.read_bytes()
    (out / "report.html").unlink()
    assert main(["quickstart", "--out", str(out), "--quiet"]) == 0
    assert coreset.read_bytes() == before
    assert (out / "report.html").exists()


class Failed:
    """A process that could not do its part."""

    exitcode = 1

    def __init__(self, **kwargs):
        pass

    def start(self):
        pass

    def join(self):
        pass


def test_it_does_alone_what_the_second_process_failed_to_do(shortened, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "get_context", lambda _: SimpleNamespace(Process=Failed))
    alone = module.quickstart(tmp_path / "alone", device="cpu")
    assert [run.score("accuracy") is not None for run in alone] == [True] * 5
    assert (tmp_path / "alone" / "random-ipc10" / "coreset.safetensors").exists()


def test_the_whole_data_stand_in_place_of_a_coreset():
    data = load_data("digits")
    whole = module.whole_data(data, module.NET)
    assert len(whole) == len(data.train)
    assert "flip" not in whole.dsa
