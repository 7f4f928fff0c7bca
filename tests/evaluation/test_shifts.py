"""Corrupted points and other data, scored by the samples that scored the clean points."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pseudocoreset import SGHMC, UserError, corrupt, distill, evaluate, load_data, sample
from pseudocoreset.cli import main
from pseudocoreset.cli.shifts import _severities
from pseudocoreset.data import Data, Scaling, Split
from pseudocoreset.evaluation.corruption_scores import degradation
from pseudocoreset.evaluation.corruptions import stored
from pseudocoreset.evaluation.metrics import Predicted, scores
from pseudocoreset.evaluation.ood import told_apart

NET = "convnet:depth=2,width=8"
QUIET = {"device": "cpu", "progress": False}
SHORT = SGHMC(epochs=60, every=20, step=0.05)
SOME = ("fog", "gaussian_noise")


def make_split(each: int, seed: int) -> Split:
    """Class c shows a bright band of rows, the c-th of three, under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(3).repeat(each)
    images = torch.randint(0, 120, (len(labels), 3, 16, 16), generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, 4 * label + 2 : 4 * label + 6] += 100
    return Split(images.to(torch.uint8), labels)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache folder of our own."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "user_cache_path", lambda *_, **__: home)
        yield home / "corruptions"


@pytest.fixture(scope="module")
def data():
    train = make_split(20, 0)
    names = ("a", "b", "c")
    return Data("bands", train, make_split(10, 1), names, Scaling.measured(train.inputs))


@pytest.fixture(scope="module")
def coreset(data):
    return distill(data, (), "random", ipc=2, net=NET, **QUIET)


@pytest.fixture(scope="module")
def posteriors(coreset):
    return [sample(coreset, SHORT, chains=1, seed=seed, **QUIET) for seed in (0, 1)]


@pytest.fixture(scope="module")
def evaluation(coreset, data):
    wanted = {"corruptions": SOME, "severities": (1, 5), "ood": load_data("digits")}
    return evaluate(coreset, data, SHORT, seeds=2, **wanted, **QUIET)


def outputs(posterior, images):
    return posterior.outputs(images, scaling=posterior.scaling)


def test_corrupted_points_are_scored_by_the_same_samples(evaluation, posteriors, data):
    plain = evaluate(posteriors[0], data, **QUIET)
    assert plain.seeds[0] == evaluation.seeds[0]
    found = evaluation.corruptions
    assert [(row.corruption, row.severity) for row in found.rows] == [
        (name, severity) for name in SOME for severity in (1, 5)
    ]
    for row in found.rows:
        images = corrupt(data.test.inputs, row.corruption, row.severity)
        both = [outputs(posterior, images).log_softmax(2) for posterior in posteriors]
        for logs, seed in zip([*both, torch.cat(both)], [*row.seeds, row.pooled], strict=True):
            expected = scores(Predicted(logs, data.test.targets))
            for name in ("accuracy", "nll", "ece"):
                assert seed[name] == pytest.approx(expected[name], rel=1e-5)


def test_means_and_degradation(evaluation):
    found, clean = evaluation.corruptions, evaluation.accuracy
    content = json.loads(json.dumps(evaluation.as_json(), allow_nan=False))["corruptions"]
    assert (content["source"], content["severities"]) == ("made", [1, 5])
    accuracies = [row["accuracy"] for row in content["each"]]
    assert content["mean"]["accuracy"] == pytest.approx(sum(accuracies) / 4)
    for row in content["each"]:
        assert row["degradation"] == pytest.approx((clean - row["accuracy"]) / clean)
        own = [one["accuracy"] for one in found.rows[content["each"].index(row)].seeds]
        assert row["accuracy_std"] == pytest.approx(np.std(own, ddof=1))
    fog = content["by_corruption"]["fog"]
    assert fog["nll"] == pytest.approx(sum(row["nll"] for row in content["each"][:2]) / 2)
    assert fog["degradation"] == pytest.approx((clean - sum(accuracies[:2]) / 2) / clean)
    pooled = evaluation.pooled.accuracy
    corrupted = sum(row.pooled.accuracy for row in found.rows) / 4
    assert content["mean"]["pooled"]["degradation"] == pytest.approx((pooled - corrupted) / pooled)
    assert degradation(0.6233, 0.489) == pytest.approx(0.215, abs=5e-4)  # the paper's
    assert degradation(0.0, 0.1) == 0


def test_other_data_are_told_by_the_same_samples(evaluation, posteriors, data):
    digits = load_data("digits").test.inputs
    large = torch.nn.functional.interpolate(
        digits.float(), (16, 16), mode="bilinear", antialias=True
    )
    images = large.round().to(torch.uint8).repeat(1, 3, 1, 1)
    own = [outputs(posterior, data.test.inputs) for posterior in posteriors]
    other = [outputs(posterior, images) for posterior in posteriors]
    found = evaluation.as_json()["ood"]
    assert (found["data"], found["images"]) == ("digits", len(digits))
    expected = [told_apart(*pair) for pair in zip(own, other, strict=True)]
    for measure in ("entropy", "mutual_information"):
        for rate in ("auroc", "fpr95"):
            values = [each[measure][rate] for each in expected]
            assert found[measure][rate] == pytest.approx(sum(values) / 2, abs=1e-4)
    pooled = told_apart(torch.cat(own), torch.cat(other))
    assert found["pooled"]["entropy"]["auroc"] == pytest.approx(
        pooled["entropy"]["auroc"], abs=1e-4
    )


def test_nothing_is_added_where_nothing_was_asked_for(posteriors, data):
    found = evaluate(posteriors[0], data, **QUIET)
    assert (found.corruptions, found.ood) == (None, None)
    assert not {"corruptions", "ood"} & found.as_json().keys()


# The cache.


def test_corrupted_images_are_kept(evaluation, posteriors, data, cache, monkeypatch):
    files = sorted(path.name for path in cache.iterdir())
    assert len(files) == 4
    calls = []

    def counted(*arguments, **more):
        calls.append(arguments[1])
        return corrupt(*arguments, **more)

    monkeypatch.setattr(stored, "corrupt", counted)
    wanted = {"corruptions": "fog", "severities": [1], **QUIET}
    again = evaluate(posteriors[0], data, **wanted)
    assert not calls
    assert again.corruptions.rows[0].seeds[0] == evaluation.corruptions.rows[0].seeds[0]
    changed = data.test.inputs.clone()
    changed[0, 0, 0, 0] ^= 1
    other = replace(data, test=Split(changed, data.test.targets))
    evaluate(posteriors[0], other, other_data=True, **wanted)
    assert calls == ["fog"]
    (damaged,) = [path for path in cache.iterdir() if "fog-5" in path.name]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    evaluate(posteriors[0], data, corruptions="fog", severities=[5], **QUIET)
    assert calls == ["fog", "fog"]


# Arrays that somebody else made.


@pytest.fixture
def official(data, tmp_path):
    """What CIFAR-10-C's arrays are for CIFAR-10, for our small data."""
    for name in SOME:
        parts = [corrupt(data.test.inputs, name, s, seed=7) for s in (1, 2, 3, 4, 5)]
        np.save(tmp_path / f"{name}.npy", torch.cat(parts).permute(0, 2, 3, 1).numpy())
    np.save(tmp_path / "labels.npy", data.test.targets.repeat(5).numpy())
    return tmp_path


def test_official_arrays_are_read(official, posteriors, data, cache):
    before = set(cache.iterdir()) if cache.exists() else set()
    found = evaluate(
        posteriors[0], data, corruptions="fog", corruptions_dir=official, **QUIET
    ).corruptions
    assert found.source == "official"
    assert found.severities == [1, 2, 3, 4, 5]
    for row in found.rows:
        images = corrupt(data.test.inputs, "fog", row.severity, seed=7)
        logs = outputs(posteriors[0], images).log_softmax(2)
        expected = scores(Predicted(logs, data.test.targets))
        assert row.seeds[0].nll == pytest.approx(expected.nll, rel=1e-5)
    assert (set(cache.iterdir()) if cache.exists() else set()) == before


def test_group_takes_the_arrays_that_there_are(official, posteriors, data):
    with pytest.warns(RuntimeWarning, match="has no file of it: brightness, contrast"):
        found = evaluate(
            posteriors[0], data, corruptions="all", corruptions_dir=official, **QUIET
        ).corruptions
    assert found.names == list(SOME)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda at: (at / "fog.npy").unlink(), "fog.npy does not exist"),
        (lambda at: (at / "labels.npy").unlink(), "labels.npy does not exist"),
        (lambda at: np.save(at / "labels.npy", np.zeros(150, int)), "does not have the classes"),
        (lambda at: np.save(at / "labels.npy", np.zeros(9, int)), "does not have the classes"),
        (lambda at: np.save(at / "fog.npy", np.zeros((150, 16, 16, 3))), "float64 of 150×16×16×3"),
        (lambda at: np.save(at / "fog.npy", np.zeros((9, 16, 16, 3), np.uint8)), "150×16×16×3"),
        (lambda at: np.save(at / "fog.npy", np.array([{}] * 150)), "can't be read"),
        (lambda at: (at / "fog.npy").write_bytes(b"\x93NUMPY\x01"), "can't be read"),
        (
            lambda at: np.savez(at / "fog.npz", 1) or (at / "fog.npz").rename(at / "fog.npy"),
            "can't",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(official, posteriors, data, damage, says):
    damage(official)
    with pytest.raises(UserError, match=says) as error:
        evaluate(posteriors[0], data, corruptions="fog", corruptions_dir=official, **QUIET)
    assert error.value.parameter == "corruptions_dir"


def test_what_can_not_be_scored_is_refused_before_any_work(coreset, data, table, monkeypatch):
    monkeypatch.setattr("pseudocoreset.evaluation.evaluate.sample_posteriors", pytest.fail)

    def parameter(data=data, **wanted):
        with pytest.raises(UserError) as error:
            evaluate(coreset, data, SHORT, **wanted, **QUIET)
        return error.value.parameter

    assert parameter(corruptions="fig") == "corruptions"
    assert parameter(corruptions="fog", severities=[0]) == "severities"
    assert parameter(corruptions="fog", severities=[]) == "severities"
    assert parameter(corruptions_dir="x") == "corruptions_dir"
    assert parameter(ood=table) == "ood"


def test_tables_are_refused(table):
    wanted = {"ipc": 4, "net": "mlp:depth=1,width=8", "target_noise": 0.3}
    coreset = distill(table, (), "random", **wanted, **QUIET)
    for wanted in ({"corruptions": "fog"}, {"ood": table}):
        with pytest.raises(UserError, match="is for images with classes"):
            evaluate(coreset, table, SHORT, **wanted, **QUIET)


# The command.


@pytest.mark.parametrize(
    ("text", "found"),
    [("1-5", [1, 2, 3, 4, 5]), ("3", [3]), ("1,3,5", [1, 3, 5]), ("1-2,5", [1, 2, 5])],
)
def test_severities_are_read(text, found):
    assert _severities(text) == found


@pytest.mark.parametrize("text", ["0", "6", "", "3-1", "1-", "a", "1--2", "12"])
def test_severities_that_are_none_are_refused(text):
    with pytest.raises(UserError, match="`severity` is"):
        _severities(text)


def test_command_prints_and_writes_the_scores(data, coreset, tmp_path, capsys):
    arrays = {
        f"{part}_{kind}": getattr(getattr(data, part), name).numpy()
        for part in ("train", "test")
        for kind, name in (("images", "inputs"), ("labels", "targets"))
    }
    np.savez(tmp_path / "bands.npz", class_names=np.array(data.class_names), **arrays)
    coreset.save(tmp_path / "coreset.safetensors")
    words = ["evaluate", str(tmp_path / "coreset.safetensors")]
    words += ["--data", f"npz:{tmp_path / 'bands.npz'}", "--seeds", "2", "--epochs", "4"]
    words += ["--every", "2", "--device", "cpu"]
    shifts = ["--corruptions", "fog,snow", "--severity", "2-3", "--ood", "digits"]
    assert main([*words, *shifts, "--json", str(tmp_path / "scores.json")]) == 0
    printed = capsys.readouterr().out
    content = json.loads((tmp_path / "scores.json").read_text())
    assert [row["severity"] for row in content["corruptions"]["each"]] == [2, 3, 2, 3]
    lines = [line.split() for line in printed.splitlines()]
    by_name = content["corruptions"]["by_corruption"]
    assert ["snow", "mean", *(f"{by_name['snow'][k]:.4f}" for k in COLUMNS)] in lines
    assert ["all", "in", "the", "mean"] in [line[:4] for line in lines]
    assert f"entropy             auroc {content['ood']['entropy']['auroc']:.4f}" in printed
    for wrong, flag in (
        (["--severity", "2"], "--severity has no effect without --corruptions"),
        (["--corruptions", "fog", "--severity", "9"], "--severity is 9"),
        (["--corruptions", "fogs"], "--corruptions fogs is not known (did you mean fog?)"),
        (["--ood", "nosuch"], "--ood"),
        (["--corruptions", "fog", "--corruptions-dir", str(tmp_path)], "labels.npy does not exist"),
    ):
        assert main([*words, *wrong]) == 2
        assert flag in capsys.readouterr().err


COLUMNS = ("accuracy", "nll", "ece", "degradation")
