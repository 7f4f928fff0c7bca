"""The rest of the paper by `pseudocoreset reproduce` on the digits, shortened."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pseudocoreset import SGHMC, Pseudocoreset, evaluate, load_data, recipes, sample
from pseudocoreset.cli import main
from pseudocoreset.cli import reproduce as command
from pseudocoreset.cli.arguments import Parser
from pseudocoreset.engine.progress import SILENT
from pseudocoreset.experts import ExpertStore
from pseudocoreset.posterior import named_sampler
from pseudocoreset.reproduce import measure_cell as measuring
from pseudocoreset.reproduce.cells import FOUR_NORMS, Cell, Scope, cells_of
from pseudocoreset.reproduce.pictures import logits_path, norms_path
from pseudocoreset.reproduce.registry import REPRODUCIBLE
from pseudocoreset.reproduce.shipped import shipped_path

REAL_NETS = dict(measuring.OTHER_NETS)
SMALL = ["--data", "digits", "--num", 1, "--epochs", 2, "--steps", 1, "--seeds", 2]
SCOPE = Scope("digits")
SHORT = SGHMC(epochs=2, every=1)
TINY, TINY_OF_PAPER, READING = (
    named_sampler(name, SHORT) for name in ("tuned", "paper", "paper-epochs")
)
NETS = {
    "resnet18": "convnet:width=4,norm=none",
    "resnet34": "convnet:width=4,norm=none,depth=1",
    "vgg11": "convnet:width=8",
    "alexnet": "convnet:width=4,depth=1",
    **{norm: f"convnet:width=4,norm={norm}" for norm in ("group", "layer", "batch")},
}
BEST = {
    "form": "mosaic:2",
    "labels": "learned",
    "steps": 3,
    "lr_images": 1.0,
    "from_epoch": 1,
    "samples": 2,
    "gamma": 2.0,
}


@pytest.fixture(scope="module", autouse=True)
def shortened():
    patch = pytest.MonkeyPatch()
    patch.setattr(measuring, "NET", "convnet:width=4")
    patch.setattr(measuring, "OTHER_NETS", NETS)
    patch.setattr(measuring, "SAMPLERS", (TINY, TINY_OF_PAPER))
    patch.setattr(measuring, "READING", READING)
    few = {"samples": 2, "gamma": 2.0, "from_epoch": 1, "covariance_steps": 2, "student_steps": 2}
    shipped = dict(recipes._shipped())
    for key in (("digits", 1), ("digits", 10)):
        methods = shipped[key]["paper"]
        short = {m: v | {n: few[n] for n in few if n in v} for m, v in methods.items()}
        shipped[key] = {**shipped[key], "paper": short, "best": {"fbpc-isotropic": BEST}}
    patch.setattr(recipes, "_shipped", lambda: shipped)
    yield
    patch.undo()


def run(*arguments: object, code: int = 0) -> None:
    words = ["reproduce", *arguments, "--device", "cpu"]
    assert main([str(word) for word in words]) == code


def content(out: Path, table: str, name: str, scope: Scope = SCOPE):
    return json.loads((out / table / scope.label / f"{name}.json").read_text())


def line_of(text: str, *starts: str) -> str:
    """The first such row: that by our protocol."""
    start = f"| {' | '.join(starts)} |"
    return next(row for row in text.splitlines() if row.startswith(start))


@pytest.fixture(scope="module")
def results(shortened, tmp_path_factory):
    """FBPC's coreset of table1, which other tables score."""
    out = tmp_path_factory.mktemp("rest") / "results"
    run("table1", *SMALL, "--cells", "fbpc/10", "--out", out, "--quiet")
    return out


def test_table2_has_its_cells_in_half_precision_from_the_epochs_used(tmp_path, capsys):
    out, more = tmp_path / "results", ["--from-epoch", 1, "--half", "--lr", 0.02]
    cells = "random/1,fbpc/1,fbpc-isotropic/*"
    run("table2", *SMALL, *more, "--cells", cells, "--out", out)
    assert "| 1 | FBPC-isotropic | best |" in capsys.readouterr().out
    assert [cell.file_name for cell in cells_of("table2", "paper", "digits")] == [
        *(f"random-ipc{ipc}" for ipc in (1, 10, 50)),
        *(f"bpc-fkl-ipc{ipc}-paper" for ipc in (1, 10, 50)),
        *(f"fbpc-ipc{ipc}-paper" for ipc in (1, 10, 50)),
        *(f"fbpc-isotropic-ipc{ipc}-best" for ipc in (1, 10, 50)),
    ]
    best = content(out, "table2", "fbpc-isotropic-ipc10-best")
    assert best["coreset"]["config"]["form"] == "mosaic:2"
    assert (best["experts"]["half"], best["experts"]["first_epoch"]) == (True, 1)
    (store,) = (tmp_path / "reproduce-work" / "digits").glob("experts-*/")
    assert store.name == "experts-2-epochs-lr-0.02-from-1-half-seed0"
    assert ExpertStore.open(store).identity.half
    assert (ExpertStore.open(store).identity.lr, best["experts"]["lr"]) == (0.02, 0.02)
    page = (out / "results.md").read_text()
    row = line_of(page[page.index("### Table 2\n") :], "10", "FBPC-isotropic", "best")
    mean = 100 * sum(seed["accuracy"] for seed in best["seeds"]) / 2
    assert f"| {mean:.2f} ± " in row
    again = line_of(page[page.index("<summary>Table 2 with") :], "10", "FBPC-isotropic", "best")
    start = page.index("### Table 2\n")
    details = page[page.index("<summary>More scores and how each was made", start) :]
    below = line_of(details, "10", "FBPC-isotropic", "best")
    for line, pooled in ((below, best["pooled"]), (again, best["by_paper"]["pooled"])):
        assert f"| {100 * pooled['accuracy']:.2f} / {pooled['nll']:.2f} (2) |" in line
    assert "× 2 epochs at learning rate 0.02, 1 of 3 updates" in below
    assert "1 of 3 updates, form mosaic:2, 2 seeds" in below
    assert "### Table 1" not in page[page.index("## Digits") :]  # nothing of it is measured
    latex = (out / "table2" / "digits.tex").read_text()
    assert "chains pooled" in latex
    run("table2", *SMALL, *more, "--cells", cells, "--out", out)
    again = capsys.readouterr().out
    assert again.count("measured before") == 5
    assert "learning rate of the experts" not in again
    run("table2", *SMALL, *more[:-2], "--cells", "fbpc/1", "--out", out)
    assert "learning rate of the experts 0.02, not 0.01" in capsys.readouterr().out


def test_best_coreset_is_rounded_with_its_labels(tmp_path):
    out = tmp_path / "results"
    words = ["--cells", "fbpc-isotropic/1", "--keep-coresets", "--out", out, "--quiet"]
    run("table2", *SMALL, *words)
    stored = shipped_path(out, SCOPE, "fbpc-isotropic", 1)
    cell = content(out, "table2", "fbpc-isotropic-ipc1-best")
    assert Pseudocoreset.load(stored).fingerprint == cell["fingerprints"][0]


def test_shipped_coreset_is_scored_on_other_networks(results, tmp_path):
    out = tmp_path / "results"
    shutil.copytree(results, out)
    run("cross-architecture", *SMALL, "--cells", "fbpc/10/*", "--out", out, "--quiet")
    assert not list((tmp_path / "reproduce-work" / "digits").glob("experts-*"))  # none is needed
    of_table1 = content(out, "table1", "fbpc-ipc10-paper")
    same = content(out, "cross-architecture", "fbpc-ipc10-paper")
    assert same["fingerprints"] == of_table1["fingerprints"]
    assert same["accuracy"] == of_table1["accuracy"]
    other = content(out, "cross-architecture", "fbpc-ipc10-paper-on-vgg11")
    assert "width=8" in other["protocol"]["net"]
    assert other["cell"]["on"] == "vgg11"
    coreset = Pseudocoreset.load(shipped_path(out, SCOPE, "fbpc", 10))
    again = evaluate(
        coreset, load_data("digits"), TINY, net=NETS["vgg11"], seeds=2, device="cpu", progress=False
    )
    assert again.accuracy == other["accuracy"]
    page = (out / "results.md").read_text()
    row = line_of(page[page.index("### Across") :], "10", "made for ConvNet", "paper")
    assert f"{100 * other['accuracy']:.1f} ± " in row.split("|")[7]
    details = page[page.index("<summary>How each was made", page.index("### Across")) :]
    assert "the shipped coreset" in line_of(details, "10", "made for ConvNet", "paper")


def test_scores_stay_where_the_protocol_of_the_paper_diverges(
    results, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "results"
    shutil.copytree(results, out)
    diverges = replace(TINY_OF_PAPER, step=1e30)
    monkeypatch.setattr(measuring, "SAMPLERS", (TINY, diverges))
    for _ in range(2):
        run("cross-architecture", *SMALL, "--cells", "fbpc/10/vgg11", "--out", out)
    said = capsys.readouterr().out
    assert "measured before" in said
    assert "Chains diverged: 10 per class on VGG11." in said
    cell = content(out, "cross-architecture", "fbpc-ipc10-paper-on-vgg11")
    assert cell["by_paper"] is None
    assert f"{100 * cell['accuracy']:.1f} ± " in said
    monkeypatch.setattr(measuring, "SAMPLERS", (diverges, TINY_OF_PAPER))
    words = ["cross-architecture", *map(str, SMALL), "--cells", "fbpc/10/resnet18"]
    assert main(["reproduce", *words, "--out", str(out)]) == 2
    assert "diverged" in capsys.readouterr().err


def test_shipped_coreset_of_another_recipe_network_or_holdout_is_not_taken(results):
    options = measuring.ReproduceOptions()
    work = measuring.Work(load_data("digits"), SCOPE, results, options, 0, "cpu", SILENT)
    work = replace(work, results=results)
    cell = Cell("norms", "fbpc", 10, "paper", on="layer")
    assert measuring.shipped_for(cell, work) is not None
    for other in (
        replace(cell, recipe="tuned"),
        replace(cell, made_for=FOUR_NORMS),  # none of these is shipped
        replace(cell, ipc=1),
        replace(cell, table="table2"),
    ):
        assert measuring.shipped_for(other, work) is None
    assert measuring.shipped_for(cell, replace(work, scope=Scope("digits", 100))) is None
    assert measuring.shipped_for(cell, replace(work, results=None)) is None


@pytest.mark.parametrize("table", ["cross-architecture", "norms", "resnet18", "table1"])
def test_alexnet_alone_has_a_small_step(table):
    for cell in cells_of(table, "tuned", "cifar10"):
        if cell.ipc is not None:
            steps = {sampler.step for sampler in measuring.samplers_of(cell)}
            assert steps == {0.003 if cell.on == "alexnet" else 0.03}, cell.name


def test_one_coreset_is_made_for_several_networks(results, tmp_path):
    out = tmp_path / "results"
    shutil.copytree(results, out)
    words = [*SMALL, "--cells", "fbpc@*/10/alexnet", "--out", out, "--quiet"]
    run("cross-architecture", *words)
    name = "fbpc-for-convnet+resnet18+vgg11-ipc10-paper-on-alexnet"
    cell = content(out, "cross-architecture", name)
    nets = [cell["experts"]["net"], *(each["net"] for each in cell["experts"]["others"])]
    assert ["norm=none" in net for net in nets] == [False, True, False]
    assert ["width=8" in net for net in nets] == [False, False, True]
    assert cell["coreset"]["config"]["steps"] == 1
    assert cell["cell"]["made_for"] == ["convnet", "resnet18", "vgg11"]
    runs = sorted((tmp_path / "reproduce-work" / "digits" / "runs").glob("*/"))
    assert [path.name for path in runs] == ["fbpc-for-convnet+resnet18+vgg11-ipc10-paper-1x2-seed0"]
    assert (
        Pseudocoreset.load(shipped_path(out, SCOPE, "fbpc", 10)).fingerprint
        == (content(out, "table1", "fbpc-ipc10-paper")["fingerprints"][0])
    )  # it does not take the place of the shipped one
    stored = shipped_path(out, SCOPE, "fbpc", 10, ("convnet", "resnet18", "vgg11"))
    assert Pseudocoreset.load(stored).fingerprint == cell["fingerprints"][0]
    # Another network's cell, with the folder of the run and without it.
    for net in ("vgg11", "resnet18"):
        run("cross-architecture", *SMALL, "--cells", f"fbpc@*/10/{net}", "--out", out, "--quiet")
        again = content(out, "cross-architecture", name.replace("alexnet", net))
        assert again["fingerprints"] == cell["fingerprints"]
        assert (again["experts"] is None) == (net == "resnet18")
        shutil.rmtree(tmp_path / "reproduce-work", ignore_errors=True)
    assert not (tmp_path / "reproduce-work").exists()  # nothing was made again


def test_names_of_networks():
    for norm in ("group", "layer", "batch"):
        assert REAL_NETS[norm] == f"convnet:norm={norm}"
    for name in ("resnet18", "resnet34", "vgg11", "alexnet"):
        assert REAL_NETS[name] == name


def test_coreset_of_other_updates_is_made_again(results, tmp_path):
    out = tmp_path / "results"
    shutil.copytree(results, out)
    words = ["--cells", "fbpc@*/10/vgg11", "--out", out, "--quiet"]
    run("cross-architecture", *SMALL, *words)
    shutil.rmtree(tmp_path / "reproduce-work")
    name = "fbpc-for-convnet+resnet18+vgg11-ipc10-paper"
    run("cross-architecture", *SMALL, "--steps", 2, "--cells", "fbpc@*/10/convnet", "--out", out)
    again = content(out, "cross-architecture", name)
    assert again["coreset"]["config"]["steps"] == 2
    assert again["experts"] is not None


def test_norms_and_logits_are_drawn(results, tmp_path):
    out = tmp_path / "results"
    shutil.copytree(results, out)
    run("logits", *SMALL, "--out", out, "--quiet")
    several = "fbpc-for-convnet+group+layer+batch-ipc10-paper"
    files = {path.stem for path in (out / "norms" / "digits").glob("*.json")}
    assert files == {several, *(f"{several}-on-{norm}" for norm in FOUR_NORMS[1:])}
    assert norms_path(out, SCOPE).exists()
    assert logits_path(out, SCOPE).exists()
    cell = content(out, "norms", f"{several}-on-batch")
    nets = [cell["experts"]["net"], *(each["net"] for each in cell["experts"]["others"])]
    norms = [net.partition("norm=")[2].partition(",")[0] for net in nets]
    assert norms == ["instance", "group", "layer", "batch"]
    found = cell["outputs"]
    assert found["class"] == "0"
    folder = tmp_path / "reproduce-work" / "digits" / "runs" / f"{several}-1x2-seed0"
    coreset = Pseudocoreset.load(folder / "coreset.safetensors").rounded("half")
    posterior = sample(coreset, TINY, chains=1, net=NETS["batch"], device="cpu", progress=False)
    net = posterior.make_net()
    outputs = torch.stack([net.apply(w, coreset.seen_inputs)[0] for w in posterior.samples()])
    torch.testing.assert_close(torch.tensor(found["mean"]), outputs.mean(0), rtol=1e-4, atol=1e-5)
    page = (out / "results.md").read_text()
    assert "| 10 | FBPC-multi | paper |" in page
    assert "pictures/digits-logits.png" in page
    before = logits_path(out, SCOPE).stat().st_mtime_ns
    run("norms", *SMALL, "--cells", "fbpc/10/layer", "--out", out, "--quiet")
    assert logits_path(out, SCOPE).stat().st_mtime_ns == before
    assert "| 10 | FBPC-single | paper | – | – |" in (out / "results.md").read_text()


def test_resnet18_is_made_for_it_alone_and_with_the_convnet(tmp_path):
    out = tmp_path / "results"
    run("resnet18", *SMALL, "--cells", "*/convnet", "--out", out, "--quiet")
    for name, number in (("resnet18", 0), ("resnet18+convnet", 1)):
        cell = content(out, "resnet18", f"fbpc-for-{name}-ipc10-paper")
        assert "norm=none" in cell["experts"]["net"]
        assert len(cell["experts"].get("others", [])) == number
    assert "made for ResNet18 + ConvNet" in (out / "results.md").read_text()


def test_corruptions_are_scored_by_both_protocols(shortened, tmp_path):
    out, larger = tmp_path / "results", ["--image-size", 16]
    run("corruptions", *SMALL, *larger, "--cells", "fbpc/10", "--out", out, "--quiet")
    scope = Scope("digits", image_size=16)
    cell = content(out, "corruptions", "fbpc-ipc10-paper", scope)
    for scores in (cell, cell["by_paper"]):
        found = scores["corruptions"]
        assert found["severities"] == [1, 2, 3, 4, 5]
        assert len(found["each"]) == 5 * len(found["by_corruption"])
        for name, part in found["by_corruption"].items():
            rows = [each["accuracy"] for each in found["each"] if each["corruption"] == name]
            assert part["accuracy"] == pytest.approx(sum(rows) / 5)
            lost = (scores["accuracy"] - part["accuracy"]) / scores["accuracy"]
            assert part["degradation"] == pytest.approx(lost)
    assert cell["corruptions"] != cell["by_paper"]["corruptions"]
    page = (out / "results.md").read_text()
    mean = cell["corruptions"]["mean"]
    figures = [f"{100 * mean[name]:.1f}" for name in ("accuracy", "degradation")]
    assert line_of(page, "mean") == f"| mean | {' | '.join(figures)} |"


def test_protocol_scores_random_images_by_two_readings(tmp_path, capsys):
    out = tmp_path / "results"
    run("protocol", *SMALL, "--out", out)
    cell = content(out, "protocol", "random-ipc10")
    assert (cell["protocol"]["first"], cell["protocol"]["weight_decay"]) == (True, 5e-4)
    assert cell["by_paper"]["protocol"]["weight_decay"] == 0
    assert not cell["by_paper"]["protocol"]["first"]
    shown = capsys.readouterr().out
    assert f"| 10 | `paper-epochs` | {100 * cell['accuracy']:.2f} ± " in shown
    assert f"| 10 | `paper` | {100 * cell['by_paper']['accuracy']:.2f} ± " in shown


def test_listing_names_all(results, capsys):
    names = ("table2", "norms", "logits", "cost", "protocol", "cross-architecture")
    run(*names, "--list", "--data", "digits", "--out", results)
    shown = capsys.readouterr().out
    assert all(f"{name}: " in shown for name in names)
    assert "fbpc@convnet+group+layer+batch/10/batch" in shown
    assert main(["reproduce", "cost", "--out", str(results), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("names", "given"),
    [
        (["covariance"], ["--trials", "3"]),
        (["covariance"], ["--device", "cuda"]),
        (["covariance"], ["--data", "digits"]),
        (["regression"], ["--workers", "2"]),
        (["regression", "exact"], ["--seeds", "2"]),
        (["exact"], ["--num", "2"]),
        (["cost"], ["--seed", "1"]),
        (["fidelity"], ["--coresets", "2"]),
        (["beyond"], ["--recipe", "best"]),
        (["table1"], ["--trials", "2"]),
        ([], ["--chains", "2"]),
    ],
)
def test_option_without_an_effect_is_refused(names, given, tmp_path, capsys):
    out = tmp_path / "results"
    assert main(["reproduce", *names, *given, "--out", str(out)]) == 2
    assert f"{given[0]} has no effect on {', '.join(names)}" in capsys.readouterr().err
    assert not out.exists()


def test_option_with_an_effect_on_one_of_several_is_accepted(tmp_path, capsys):
    given = ["covariance", "regression", "--trials", "3", "--list", "--out", str(tmp_path)]
    assert main(["reproduce", *given]) == 0
    assert "0 rows measured" in capsys.readouterr().out


def test_every_option_has_an_effect_on_something():
    parser = Parser("reproduce", "")
    command.configure(parser, [])
    known = {*command._ALWAYS}.union(*(each.uses for each in REPRODUCIBLE.values()))
    assert known - {"names"} == set(parser._owners)
