"""The coresets that come with the package."""

import shutil
from importlib import import_module

import pytest
import torch

import pseudocoreset as pc
from pseudocoreset import gallery
from pseudocoreset.cli import COMMANDS, main
from pseudocoreset.cli.arguments import Parser
from pseudocoreset.gallery import DATA as NAMES
from pseudocoreset.gallery import FOLDER, commands, entries, gallery_path, sizes
from pseudocoreset.posterior.weight import full_weight

MOST_BYTES = 10_000_000


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.path.stem)
def test_scores_beside_a_coreset_are_of_that_coreset(entry):
    coreset = pc.Pseudocoreset.load(entry.path)
    made = coreset.provenance
    assert entry.about["fingerprint"] == coreset.fingerprint
    assert (entry.data, entry.ipc) == (made.data, coreset.ipc)
    assert (entry.recipe, entry.about["method"]) == (made.config["recipe"], made.method)
    assert entry.about["protocol"]["split"] == "test"
    assert made.holdout == 0
    assert full_weight(coreset).mean == made.num_train / coreset.num_seen


def test_wheel_holds_the_gallery_and_nothing_else_in_its_place():
    shipped = {entry.path.name for entry in entries()}
    assert {path.name for path in FOLDER.glob("*.safetensors")} == shipped
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


def test_best_comes_first_and_recipes_can_be_named():
    best, tuned = pc.load("cifar10", ipc=10), pc.load("cifar10", ipc=10, recipe="tuned")
    assert best.provenance.config["recipe"] == "best"
    assert tuned.provenance.config["recipe"] == "tuned"
    assert best.ipc == tuned.ipc == 10


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"name": "cifr10", "ipc": 10}, ("cifar10 at 1, 10, 50 per class", "did you mean cifar10")),
        ({"name": "cifar10", "ipc": 7}, ("1, 10, 50 per class", "distill", "--ipc 7 --out run")),
        ({"name": "cifar10", "ipc": 50, "recipe": "tuned"}, ("only by best", "--recipe tuned")),
        ({"name": "cifar10", "ipc": 10, "recipe": "good"}, ("paper, tuned, best",)),
        ({"name": "digits", "ipc": 0}, ("give 1 or more",)),
        ({"name": "mine.safetensors"}, ("`ipc` must be given", "Pseudocoreset.load")),
    ],
)
def test_what_is_not_there_is_told_with_what_is(asked, words):
    name = asked.pop("name")
    with pytest.raises(pc.UserError) as raised:
        pc.load(name, **asked)
    for word in words:
        assert word in str(raised.value)
    assert "\n" not in str(raised.value)


def test_file_that_was_not_scored_is_refused(monkeypatch, tmp_path):
    for path in FOLDER.glob("digits-*"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(gallery, "FOLDER", tmp_path)
    entries.cache_clear()
    try:
        assert pc.load("digits", ipc=1).ipc == 1
        one, ten = (tmp_path / f"digits-best-ipc{ipc}.safetensors" for ipc in (1, 10))
        shutil.copy(ten, one)
        with pytest.raises(pc.UserError, match="not the coreset that was scored"):
            pc.load("digits", ipc=1)
        for damage in ("x", "[]", "{}", one.with_suffix(".json").read_text().replace("best", "b")):
            one.with_suffix(".json").write_text(damage)
            entries.cache_clear()
            with pytest.raises(pc.UserError, match="damaged"):
                pc.load("digits", ipc=10)
    finally:
        entries.cache_clear()


@pytest.mark.parametrize("spec", ["gallery:digits-0", f"gallery:digits-{'9' * 5000}", "gallery:x"])
def test_spec_without_a_coreset_is_refused(spec):
    with pytest.raises(pc.UserError):
        gallery_path(spec)


@pytest.mark.parametrize("name", NAMES)
def test_commands_for_other_sizes_are_accepted(name):
    for recipe in ("best", "tuned"):
        for line in commands(name, sizes(name)[0], recipe):
            _, command, *words = line.split()
            parser = Parser(command, COMMANDS[command])
            import_module(f"pseudocoreset.cli.{command}").configure(parser, words)
            parser.parse(words)


def test_data_on_disk_are_offered_in_the_usual_sizes_whether_or_not_they_have_a_recipe():
    assert sizes("mnist") == sizes("fashion-mnist") == sizes("cifar10") == [1, 10, 50]


def test_command_line_takes_coresets_of_the_gallery(tmp_path, capsys):
    assert main(["info", "gallery:cifar10-10-tuned"]) == 0
    assert "cifar10-fbpc-ipc10" in capsys.readouterr().out
    assert main(["export", "gallery:cifar10-1", "--to", "npz", "--out", f"{tmp_path}/a.npz"]) == 0
    assert (tmp_path / "a.npz").exists()
    capsys.readouterr()
    assert main(["export", "gallery:cifar10", "--to", "npz", "--out", f"{tmp_path}/b.npz"]) == 2
    assert "gallery:NAME-IPC" in capsys.readouterr().err


def test_distill_starts_from_a_coreset_of_the_gallery(tmp_path, capsys):
    given = ["distill", "--data", "digits", "--method", "vbpc", "--net", "convnet:width=8"]
    given += ["--ipc", "10", "--steps", "0", "--labels", "hard", "--form", "pixels"]
    run = tmp_path / "run"
    assert main([*given, "--init", "gallery:digits-10", "--out", str(run), "--quiet"]) == 0
    made, start = pc.Pseudocoreset.load(run / "coreset.safetensors"), pc.load("digits", ipc=10)
    assert torch.equal(made.inputs, start.inputs)
    assert main([*given, "--init", "gallery:digits-11", "--out", str(tmp_path / "other")]) == 2
    said = capsys.readouterr().err
    assert "gallery:digits-11: ipc is 11" in said  # --ipc is 10
    assert "`pseudocoreset experts" in said
