"""Sets and trajectories that other programs wrote."""

import os

import numpy as np
import pytest
import torch

from pseudocoreset import SGHMC, UserError, distill, evaluate, load_data, train_experts
from pseudocoreset.cli import main
from pseudocoreset.experts import ExpertOptions
from pseudocoreset.interop import import_replay_buffers, read_coreset
from pseudocoreset.nets import make_net

DATA = load_data("digits")
NET = "convnet:width=8"
SHORT = SGHMC(epochs=2, every=1)
QUIET = {"device": "cpu", "progress": False}


def images_and_labels(number: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    return DATA.scaling.apply(DATA.train.inputs[:number]), DATA.train.targets[:number]


def test_npz_of_bytes_is_normalised_and_of_floats_taken_as_it_is(tmp_path):
    images, labels = images_and_labels()
    np.savez(tmp_path / "bytes.npz", images=DATA.train.inputs[:10, 0].numpy(), labels=labels)
    np.savez(tmp_path / "floats.npz", images=images.numpy(), labels=labels.numpy())
    for name in ("bytes", "floats"):
        coreset = read_coreset(tmp_path / f"{name}.npz", DATA, None)
        assert torch.allclose(coreset.inputs, images)
        assert torch.equal(coreset.targets, labels)


@pytest.mark.parametrize("largest", [1, 255])
def test_floats_that_are_not_normalised_are_told(tmp_path, largest):
    _, labels = images_and_labels()
    images = DATA.train.inputs[:10].float() / 255 * largest
    np.savez(tmp_path / "floats.npz", images=images.numpy(), labels=labels)
    with pytest.warns(RuntimeWarning, match="do not seem to be normalised"):
        read_coreset(tmp_path / "floats.npz", DATA)
    white = np.full((10, 8, 8), 255, np.uint8)
    np.savez(tmp_path / "bytes.npz", images=white, labels=labels)
    read_coreset(tmp_path / "bytes.npz", DATA)  # which normalises them itself


def test_images_are_no_set_of_a_table(tmp_path):
    images, labels = images_and_labels()
    np.savez(tmp_path / "set.npz", images=images.numpy(), labels=labels)
    with pytest.raises(UserError, match="diabetes, which is a table"):
        read_coreset(tmp_path / "set.npz", load_data("diabetes"))


def test_random_points_beside_an_uneven_set_are_refused_at_once(tmp_path, monkeypatch, capsys):
    images, labels = images_and_labels(7)
    np.savez(tmp_path / "set.npz", images=images.numpy(), labels=labels)
    monkeypatch.setattr("pseudocoreset.cli.evaluate.evaluate", pytest.fail)
    assert main(["evaluate", str(tmp_path / "set.npz"), "--data", "digits", "--random"]) == 2
    assert "--random draws the same number of points of each class" in capsys.readouterr().err


def test_files_of_trajectory_matching_can_be_evaluated(tmp_path):
    images, labels = images_and_labels()
    torch.save(images, tmp_path / "images_best.pt")
    torch.save(labels, tmp_path / "labels_best.pt")
    for path in (tmp_path, tmp_path / "images_best.pt"):
        coreset = read_coreset(path, DATA, NET)
        assert torch.equal(coreset.inputs, images)
    with pytest.warns(RuntimeWarning, match="does not say which data"):
        found = evaluate(coreset, DATA, SHORT, seeds=1, **QUIET)
    assert 0 <= found.accuracy <= 1


def test_run_and_file_of_ours_are_read(tmp_path):
    made = distill(DATA, (), "random", ipc=1, net=NET, out=tmp_path, **QUIET)
    for path in (tmp_path, tmp_path / "coreset.safetensors"):
        found = read_coreset(path, DATA)
        assert found == made
        assert found.provenance == made.provenance


def test_path_without_a_set_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "no.npz", tmp_path / "text.txt"):
        with pytest.raises(UserError):
            read_coreset(path, DATA)


def test_soft_labels_are_taken_too(tmp_path):
    images, labels = images_and_labels()
    soft = 0.9 * torch.nn.functional.one_hot(labels, 10) + 0.01
    np.savez(tmp_path / "soft.npz", images=images.numpy(), labels=soft.numpy())
    assert torch.equal(read_coreset(tmp_path / "soft.npz", DATA, None).targets, soft)


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of PyTorch 2.11
@pytest.mark.parametrize(
    ("images", "labels", "says"),  # which of the two, and what of it
    [
        (Harmful(), torch.zeros(1), "tensors and nothing else"),
        ([1, 2], torch.zeros(1), "floats of m×c×h×w"),
        (torch.zeros(10, 3, 8, 8), torch.zeros(10).long(), "give the data they were made of"),
        (torch.zeros(10, 1, 8, 8), torch.zeros(9).long(), "expected 10 labels"),
        (torch.zeros(10, 1, 8, 8), torch.full((10,), 10), "expected 10 labels"),
        (torch.zeros(10, 1, 8, 8), torch.zeros(10, 10), "expected 10 labels"),
        (torch.full((10, 1, 8, 8), torch.nan), torch.zeros(10).long(), "NaN"),
        (torch.zeros(0, 1, 8, 8), torch.zeros(0).long(), "holds no images"),
        (torch.zeros(10, 1, 8, 8).to_sparse(), torch.zeros(10).long(), "floats of m×c×h×w"),
    ],
)
def test_file_that_is_no_set_is_refused(images, labels, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(images, tmp_path / "images_best.pt")
    torch.save(labels, tmp_path / "labels_best.pt")
    with pytest.raises(UserError, match=says):
        read_coreset(tmp_path, DATA, None)
    assert not (tmp_path / "harmed").exists()


def test_truncated_file_is_refused(tmp_path):
    images, labels = images_and_labels()
    torch.save(images, tmp_path / "images_best.pt")
    torch.save(labels, tmp_path / "labels_best.pt")
    whole = (tmp_path / "images_best.pt").read_bytes()
    for cut in (0, 10, len(whole) // 2):
        (tmp_path / "images_best.pt").write_bytes(whole[:cut])
        with pytest.raises(UserError, match="images_best"):
            read_coreset(tmp_path, DATA, None)


def test_replay_buffers_become_an_expert_store(tmp_path):
    net = make_net(NET, **DATA.shape)
    torch.manual_seed(0)
    modules = [[net.build() for _ in range(3)] for _ in range(4)]
    buffers = [[[p.detach() for p in m.parameters()] for m in row] for row in modules]
    torch.save(buffers[:3], tmp_path / "replay_buffer_0.pt")
    torch.save(buffers[3:], tmp_path / "replay_buffer_1.pt")
    store = import_replay_buffers(tmp_path, DATA, NET, tmp_path / "out", ExpertOptions(), 0)
    assert (len(store), store.first_epoch, store.last_epoch) == (4, 0, 2)
    weights = store.snapshot(store.trajectories[3], 1, torch.device("cpu"))
    images, _ = images_and_labels()
    assert torch.allclose(net.apply(weights, images), modules[3][1].eval()(images), atol=1e-6)
    with pytest.raises(UserError, match="not the parameters of convnet"):
        import_replay_buffers(
            tmp_path, DATA, "convnet:width=16", tmp_path / "other", ExpertOptions(), 0
        )


def test_replay_buffers_are_not_imported_over_trained_experts(tmp_path):
    net = make_net(NET, **DATA.shape)
    snapshot = [p.detach() for p in net.build().parameters()]
    torch.save([[snapshot, snapshot]], tmp_path / "replay_buffer_0.pt")
    settings = ExpertOptions(num=1, epochs=1)
    store = train_experts(DATA, NET, tmp_path / "out", settings, **QUIET)
    trained = store.trajectories[0].read_bytes()
    with pytest.raises(UserError) as error:
        import_replay_buffers(tmp_path, DATA, NET, tmp_path / "out", settings, 0)
    assert error.value.parameter == "out"
    assert store.trajectories[0].read_bytes() == trained
    for _ in range(2):  # once more, over themselves
        import_replay_buffers(tmp_path, DATA, NET, tmp_path / "imported", settings, 0)


def test_scores_of_a_set_of_unknown_data_come_with_a_warning(tmp_path):
    data = DATA.hold_out(100)
    assert data.holdout is not None
    images = data.scaling.apply(data.holdout.inputs).numpy()
    np.savez(tmp_path / "seen.npz", images=images, labels=data.holdout.targets.numpy())
    coreset = read_coreset(tmp_path / "seen.npz", data, NET)
    with pytest.warns(RuntimeWarning, match="does not say which data"):
        evaluate(coreset, data, SHORT, seeds=1, split="holdout", **QUIET)


def test_replay_buffers_that_are_not_finite_are_refused(tmp_path):
    net = make_net(NET, **DATA.shape)
    snapshot = [p.detach() for p in net.build().parameters()]
    snapshot[0][0] = torch.nan
    torch.save([[snapshot, snapshot]], tmp_path / "replay_buffer_0.pt")
    with pytest.raises(UserError, match="NaN or infinity"):
        import_replay_buffers(tmp_path, DATA, NET, tmp_path / "out", ExpertOptions(), 0)
