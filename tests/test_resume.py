"""A run, a store or a search that another device or version began goes on only with a word."""

import json

import pytest
import torch

import pseudocoreset as pc
from pseudocoreset.cli import main
from pseudocoreset.engine import versions as versions_module
from pseudocoreset.engine.versions import made_on, refuse_other, versions
from small_world import NET, make_data
from toy_methods import Quadratic, Searched

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
TOY = {"net": NET, "ipc": 1, "lr_images": 0.1, "device": "cpu", "progress": False}


def other(**changes):
    """Versions that differ in these."""
    return {**versions(), **changes}


@pytest.fixture
def elsewhere(monkeypatch):
    """Work as if by other versions, from now on."""

    def begin(**changes):
        found = other(**changes)
        monkeypatch.setattr(versions_module, "versions", lambda: found)

    return begin


@pytest.mark.parametrize("name", ["torch", "pseudocoreset"])
def test_run_of_another_version_goes_on_only_with_a_word(data, tmp_path, elsewhere, name):
    pc.distill(data, method=Quadratic(), out=tmp_path, steps=3, **TOY)
    elsewhere(**{name: "9.9"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(pc.UserError, match=rf"{name} .*, not 9\.9.*`other_versions`"):
        pc.distill(data, method=Quadratic(), out=tmp_path, steps=5, **TOY)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    coreset = pc.distill(
        data, method=Quadratic(), out=tmp_path, steps=5, other_versions=True, **TOY
    )
    coreset = pc.Pseudocoreset.load(tmp_path / "coreset.safetensors")
    parts = coreset.provenance.made["updates"]
    assert [part["after_update"] for part in parts] == [0, 3]
    assert [part["versions"][name] == "9.9" for part in parts] == [False, True]
    assert [part["device"] for part in parts] == ["cpu", "cpu"]


def test_run_goes_on_by_itself_with_other_code_and_says_so(data, tmp_path, elsewhere):
    pc.distill(data, method=Quadratic(), out=tmp_path, steps=3, **TOY)
    elsewhere(code="0" * 16, numpy="9")
    coreset = pc.distill(data, method=Quadratic(), out=tmp_path, steps=5, **TOY)
    codes = [part["versions"]["code"] for part in coreset.provenance.made["updates"]]
    assert codes == [versions()["code"], "0" * 16]


def test_run_that_goes_on_as_it_was_begun_has_one_part(data, tmp_path):
    for steps in (2, 4, 5):
        coreset = pc.distill(data, method=Quadratic(), out=tmp_path, steps=steps, **TOY)
    (part,) = coreset.provenance.made["updates"]
    assert part == {"after_update": 0, **made_on(CPU)}
    alone = pc.distill(data, method=Quadratic(), steps=5, **TOY)
    assert alone.provenance.made == coreset.provenance.made


def test_finished_run_is_not_refused(data, tmp_path, elsewhere):
    pc.distill(data, method=Quadratic(), out=tmp_path, steps=3, **TOY)
    elsewhere(torch="9.9")
    coreset = pc.distill(data, method=Quadratic(), out=tmp_path, steps=3, **TOY)
    assert len(coreset.provenance.made["updates"]) == 1  # nothing was computed here


def test_run_from_before_the_record_goes_on_as_before(data, tmp_path, elsewhere):
    pc.distill(data, method=Quadratic(), out=tmp_path, steps=3, **TOY)
    (tmp_path / "made.json").unlink()
    elsewhere(torch="9.9")
    coreset = pc.distill(data, method=Quadratic(), out=tmp_path, steps=5, **TOY)
    (part,) = coreset.provenance.made["updates"]
    assert part["after_update"] == 3


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}x", "[1]", '{"a": 1}', '[{"after_update": "x"}]', "[" * 9999),
        '[{"after_update": 0, "threads": NaN}]',
    ],
)
def test_damaged_record_is_refused(data, tmp_path, text):
    pc.distill(data, method=Quadratic(), out=tmp_path, steps=3, **TOY)
    (tmp_path / "made.json").write_text(text)
    with pytest.raises(pc.UserError, match=r"made\.json can't be read"):
        pc.distill(data, method=Quadratic(), out=tmp_path, steps=5, **TOY)


def test_damaged_word_beside_a_trajectory_does_not_reach_a_coreset(data, tmp_path):
    store = pc.train_experts(data, NET, tmp_path, num=2, epochs=1, device="cpu", progress=False)
    assert store.makers() == [made_on(CPU)]
    for number, text in enumerate(['{"threads": NaN}', "[1]"]):
        store.made_path(number).write_text(text)
    assert store.makers() == []


def test_store_of_another_version_grows_only_with_a_word(data, tmp_path, elsewhere):
    given = {"net": NET, "out": tmp_path, "epochs": 1, "batch": 20, "device": "cpu"}
    pc.train_experts(data, num=1, progress=False, **given)
    elsewhere(torch="9.9")
    assert len(pc.train_experts(data, num=1, progress=False, **given)) == 1  # nothing is missing
    with pytest.raises(pc.UserError, match=r"torch .*, not 9\.9"):
        pc.train_experts(data, num=2, progress=False, **given)
    store = pc.train_experts(data, num=2, progress=False, other_versions=True, **given)
    assert len(store) == 2
    assert [made["versions"]["torch"] for made in store.makers()] == [torch.__version__, "9.9"]
    method = pc.FBPCIsotropic(from_epoch=1, max_map_steps=10, gamma=9.0)
    coreset = pc.distill(data, store, method, ipc=1, steps=1, device="cpu", progress=False)
    assert coreset.provenance.made["experts"] == store.makers()

    (tmp_path / "trajectory-0000.json").write_text("[")
    (tmp_path / "trajectory-0001.json").unlink()
    pc.train_experts(data, num=3, progress=False, **given)  # what says nothing refuses nothing


def test_search_of_another_version_goes_on_only_with_a_word(tmp_path, elsewhere):
    data = make_data().hold_out(15)
    given = {**TOY, "method": Searched(), "chain_epochs": 10, "steps": 2, "out": tmp_path}
    pc.tune(data, trials=2, **given)
    elsewhere(torch="9.9")
    pc.tune(data, trials=2, **given)  # nothing is left to do
    with pytest.raises(pc.UserError, match=r"torch .*, not 9\.9"):
        pc.tune(data, trials=3, **given)
    found = pc.tune(data, trials=3, other_versions=True, **given)
    torches = [trial.made_with["versions"]["torch"] for trial in found.trials]
    assert torches == [torch.__version__] * 2 + ["9.9"]


def test_device_counts_by_its_kind_and_a_build_is_no_version():
    made = {"device": "NVIDIA H200", "versions": other(torch=f"{torch.__version__}+cu999")}
    refuse_other({**made, "versions": versions()}, CUDA, "it")
    with pytest.raises(pc.UserError, match="it was started with device NVIDIA H200, not cpu"):
        refuse_other(made, CPU, "it")
    with pytest.raises(pc.UserError, match="device cpu, not cuda"):
        refuse_other({**made, "device": "cpu"}, CUDA, "it")
    build = torch.__version__.partition("+")[0]
    refuse_other({"device": "cpu", "versions": other(torch=f"{build}+cu999")}, CPU, "it")
    for nothing in (None, [], {}, {"versions": 3}, {"versions": {"torch": None}}):
        refuse_other(nothing, CPU, "it")


def test_word_is_a_flag_and_stays_out_of_configurations(tmp_path, elsewhere, capsys):
    words = ["--data", "digits", "--method", "vbpc", "--net", "convnet:width=4", "--ipc", "1"]
    words += ["--device", "cpu", "--quiet", "--out", str(tmp_path / "run")]
    assert main(["distill", *words, "--steps", "1"]) == 0
    elsewhere(torch="9.9")
    capsys.readouterr()
    assert main(["distill", *words, "--steps", "2"]) == 2
    assert "give --other-versions to resume anyway" in capsys.readouterr().err
    assert main(["distill", *words, "--steps", "2", "--other-versions"]) == 0
    assert main(["distill", *words, "--steps", "2", "--other-versions", "--print-config"]) == 0
    assert "other_versions" not in capsys.readouterr().out
    config = json.dumps((tmp_path / "run" / "config.yaml").read_text())
    assert "other_versions" not in config
