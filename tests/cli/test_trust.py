"""A file is data: nothing that it names is imported, and what it says is printed safely."""

import json
import sys

import numpy as np
import pytest
import yaml
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from pseudocoreset import Pseudocoreset, UserError, distill, load_data
from pseudocoreset.cli import main
from pseudocoreset.engine import plugins
from pseudocoreset.engine.files import open_tensors
from pseudocoreset.posterior import SGHMC, sample
from small_world import make_data, make_store

EVIL = """
from pathlib import Path
Path("ran").touch()
from torch import nn

def factory(channels, image_size, classes):
    size = channels * image_size**2
    return nn.Sequential(nn.Flatten(), nn.Linear(size, classes))

class Method: pass
"""


def run(*arguments, code=0):
    assert main([str(argument) for argument in arguments]) == code


def rewritten(path, change):
    """The same file with other metadata."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = json.loads(file.metadata()["pseudocoreset"])
    change(metadata)
    save_file(tensors, path, {"pseudocoreset": json.dumps(metadata)})


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """Files that name code of the current folder."""
    data = make_data()
    arrays = {f"{part}_{name}": getattr(getattr(data, part), value).numpy()
              for part in ("train", "test")
              for name, value in (("images", "inputs"), ("labels", "targets"))}  # fmt: skip
    np.savez(tmp_path / "bands.npz", **arrays)
    data = load_data(f"npz:{tmp_path / 'bands.npz'}")
    store = make_store(tmp_path / "experts", data)
    coreset = distill(data, store, "random", ipc=1, out=tmp_path / "run", device="cpu")
    posterior = sample(coreset, SGHMC(epochs=2, every=1), chains=1, device="cpu")
    posterior.save(tmp_path / "posterior.safetensors")
    rewritten(
        tmp_path / "run" / "coreset.safetensors",
        lambda m: m["provenance"].update(net="evil:factory"),
    )
    rewritten(tmp_path / "posterior.safetensors", lambda m: m.update(net="evil:factory"))
    index = json.loads((tmp_path / "experts" / "index.json").read_text())
    index["identity"]["net"] = "evil:factory"
    (tmp_path / "experts" / "index.json").write_text(json.dumps(index))
    for path in (tmp_path / "experts").glob("*.safetensors"):
        rewritten(path, lambda m: m["identity"].update(net="evil:factory"))
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    for name, changes in {
        "method": {"method": "evil:Method"},
        "net": {"nets": ["evil:factory"]},
        "sampler": None,
    }.items():
        content = {"sampler": "evil:Method"} if changes is None else {**config, **changes}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the folder is added
    plugins._allowed.clear()
    yield tmp_path
    sys.modules.pop("evil", None)
    plugins._allowed.clear()


COMMANDS = {
    "evaluate": ["evaluate", "run/coreset.safetensors", "--data", "npz:bands.npz"],
    "evaluate a posterior": ["evaluate", "posterior.safetensors", "--data", "npz:bands.npz"],
    "compare": ["compare", "posterior.safetensors", "full", "--data", "npz:bands.npz"],
    "sample": ["sample", "run/coreset.safetensors", "--out", "p.safetensors"],
    "predict": ["predict", "posterior.safetensors", "bands-images.npz"],
    "distill with experts": [
        *("distill", "--data", "npz:bands.npz", "--experts", "experts", "--out", "new"),
        *("--from-epoch", "1", "--steps", "1"),
    ],
    "a method in a file": [
        *("distill", "--data", "npz:bands.npz", "--config", "method.yaml", "--out", "new"),
    ],
    "a network in a file": [
        *("distill", "--data", "npz:bands.npz", "--config", "net.yaml", "--out", "new"),
    ],
    "a sampler in a file": [
        *("sample", "run/coreset.safetensors", "--config", "sampler.yaml", "--out", "p"),
    ],
    "plan": ["plan", "evaluate", "run/coreset.safetensors", "--data", "npz:bands.npz"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_file_that_names_code_does_not_run_it(evil, command, capsys):
    with np.load("bands.npz") as arrays:
        np.savez("bands-images.npz", images=arrays["test_images"])
    run(*command, code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "evil:" in line
    assert "--trust-code" in line
    assert not (evil / "ran").exists()
    assert "evil" not in sys.modules
    assert not (evil / "new").exists()


@pytest.mark.parametrize("name", ["net", "method"])
def test_file_cannot_trust_itself(evil, name, capsys):
    path = evil / f"{name}.yaml"
    path.write_text(f"{path.read_text()}trust_code: true\n")
    for command in (["distill", "--out", "new"], ["plan", "distill"]):
        run(*command, "--data", "npz:bands.npz", "--config", path, code=2)
        assert "--trust-code" in capsys.readouterr().err
    assert not (evil / "ran").exists()
    assert not (evil / "new").exists()


@pytest.mark.parametrize("what", ["run/coreset.safetensors", "posterior.safetensors", "experts"])
def test_info_describes_without_running_code(evil, what, capsys):
    run("info", what)
    assert "evil:factory" in capsys.readouterr().out
    assert not (evil / "ran").exists()


@pytest.mark.parametrize("allowed", [["--trust-code"], ["--net", "evil:factory"]])
def test_code_runs_when_the_person_names_it_or_trusts_the_file(evil, allowed):
    short = ["--epochs", 2, "--every", 1, "--chains", 1, "--quiet"]
    run("sample", "run/coreset.safetensors", "--out", "p.safetensors", *short, *allowed)
    assert (evil / "ran").exists()
    with open_tensors(evil / "p.safetensors") as (_, metadata):
        assert metadata["net"] == "evil:factory"
        assert len(metadata["details"]["net_source"]) == 32


def test_changed_source_of_an_own_network_is_told(evil, capsys):
    short = ["--epochs", 2, "--every", 1, "--chains", 1, "--quiet"]
    trust = ["--trust-code"]
    run("sample", "run/coreset.safetensors", "--out", "p.safetensors", *short, *trust)
    (evil / "evil.py").write_text(EVIL + "\n# another line\n")
    sys.modules.pop("evil")  # as in another process
    run("evaluate", "p.safetensors", "--data", "npz:bands.npz", "--quiet", *trust)
    assert "has changed" in capsys.readouterr().err


def test_names_in_files_are_printed_without_control_characters(evil, capsys):
    hostile = "\x1b[31mred\r\n\u202eabc"
    path = evil / "run" / "coreset.safetensors"
    rewritten(path, lambda m: m["provenance"].update(net=hostile, data=hostile, method=hostile))
    rewritten(path, lambda m: m.update(class_names=[hostile, "b", "c"]))
    run("info", path)
    config = yaml.safe_load((evil / "run" / "config.yaml").read_text())
    (evil / "run" / "config.yaml").write_text(yaml.safe_dump({**config, "method": hostile}))
    run("info", evil / "run")
    main(["evaluate", str(path), "--data", "npz:bands.npz"])
    main(["sample", str(path), "--out", str(evil / "x")])
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert not {"\x1b", "\r", "\u202e"} & set(text)


def damaged(metadata, change):
    """The metadata without a value, or with another one, at a path of keys."""
    *keys, last, value = change
    for key in keys:
        metadata = metadata[key]
    if value is None:
        del metadata[last]
    else:
        metadata[last] = value


@pytest.mark.parametrize(
    "change",
    [
        ("details", "kinetic_temperature", ["x"]),
        ("details", "temperature", "x"),
        ("details", "loss_trace", None),
        ("details", "coreset_provenance", "seed", "x"),
        ("details", "coreset_points", [1]),
        ("class_names", ["a"]),
        ("input_shape", [8]),
        ("normalisation", "mean", [10**400]),
    ],
    ids=lambda change: ".".join(map(str, change[:-1])),
)
def test_damaged_posterior_is_one_sentence(evil, change, capsys):
    np.savez("images.npz", images=np.zeros((2, 8, 8), np.uint8))
    path = "posterior.safetensors"
    rewritten(path, lambda m: (m.update(net="convnet:depth=2,width=8"), damaged(m, change)))
    for command in (["info", path], ["predict", path, "images.npz"]):
        run(*command, code=2)
        (line,) = capsys.readouterr().err.splitlines()
        assert path in line


@pytest.mark.parametrize("change", [("digest", None), ("identity", [1]), ("identity", "lr", 9.0)])
def test_damaged_trajectory_is_refused_before_a_run_begins(tmp_path, change):
    data = make_data()
    store = make_store(tmp_path / "experts", data)
    rewritten(store.trajectories[1], lambda m: damaged(m, change))
    with pytest.raises(UserError):
        distill(data, store, "random", ipc=1, out=tmp_path / "new", device="cpu")
    assert not (tmp_path / "new").exists()


def test_index_with_control_characters_is_one_sentence(evil, capsys):
    for index in ({"format": "\x1b[31m"}, {"format": 2, "identity": {"\x1b[31m\n": 1}}):
        (evil / "experts" / "index.json").write_text(json.dumps(index))
        run("info", "experts", code=2)
        (line,) = capsys.readouterr().err.splitlines()
        assert "\x1b" not in line


def test_class_given_in_python_must_be_given_again(evil, tmp_path):
    class Local(nn.Module):
        def __init__(self, channels, image_size, classes):
            super().__init__()
            self.head = nn.Linear(channels * image_size**2, classes)

        def forward(self, images):
            return self.head(images.flatten(1))

    data = load_data("npz:bands.npz")
    coreset = distill(data, method="random", ipc=1, net=Local, device="cpu")
    coreset.save(tmp_path / "local.safetensors")
    assert coreset.make_net().num_params == 8 * 8 * 3 + 3
    plugins._allowed.clear()
    with pytest.raises(UserError) as error:
        Pseudocoreset.load(tmp_path / "local.safetensors").make_net()
    assert error.value.parameter == "net"
    again = Pseudocoreset.load(tmp_path / "local.safetensors", net=Local)
    assert again.make_net().num_params == 8 * 8 * 3 + 3
