"""The quickstart, shortened: what it leaves behind, and that it resumes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pseudocoreset import recipes
from pseudocoreset.cli import main
from pseudocoreset.cli import quickstart as module


@pytest.fixture
def shortened(monkeypatch):
    for name, demo in module.DEMOS.items():
        net = "convnet:width=8" if name == "digits" else "mlp:width=8"
        short = replace(
            demo,
            net=net,
            experts=replace(demo.experts, num=1, epochs=2),
            sampler=replace(demo.sampler, epochs=4, every=2),
            full_sampler=replace(demo.full_sampler, epochs=4, every=2),
        )
        monkeypatch.setitem(module.DEMOS, name, short)
    recipe_for = recipes.recipe_for

    def short_recipe(*arguments, **named):
        found = recipe_for(*arguments, **named)
        values = {**found.values, "steps": 2, "gamma": 2.0, "from_epoch": 1}
        return replace(found, values=values if "fbpc" in arguments else found.values)

    monkeypatch.setattr("pseudocoreset.distillation.job.recipe_for", short_recipe)


def test_quickstart_writes_table_and_page_and_resumes(shortened, monkeypatch, tmp_path, capsys):
    # Only here: the second process, to which this belongs, has it still.
    monkeypatch.delattr(module._Baselines, "measure")
    out = tmp_path / "out"
    assert main(["quickstart", "--out", str(out), "--quiet"]) == 0
    first = capsys.readouterr().out
    for name in ("FBPC", "Random", "All training data", "report.html"):
        assert name in first
    assert "All training data" in (out / "report.html").read_text()
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


@pytest.mark.parametrize("data", module.DEMOS)
def test_quickstart_does_what_the_second_process_failed_to_do(
    data, shortened, monkeypatch, tmp_path
):
    monkeypatch.setattr(module, "get_context", lambda _: SimpleNamespace(Process=Failed))
    found = module.quickstart(tmp_path, data=data, device="cpu", progress=False)
    score = "rmse" if data == "diabetes" else "accuracy"
    assert len(found) == 2 * len(module.DEMOS[data].sizes) + 1
    assert all(run.evaluation[score] > 0 for run in found)


def test_quickstart_of_other_data_has_its_own_folder(shortened, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    folders = []
    monkeypatch.setattr(module, "quickstart", lambda out, **_: folders.append(out) or [])
    monkeypatch.setattr(module, "print_scores", lambda _: None)
    for name in module.DEMOS:
        assert main(["quickstart", "--data", name, "--quiet"]) == 0
    assert len(set(folders)) == len(module.DEMOS)
    assert str(folders[0]) == "quickstart"
