import hashlib
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from make_data import pixels, refused

from pseudocoreset.data import Data, Scaling, Split, from_arrays, load_data


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


@pytest.fixture(scope="module")
def diabetes():
    return load_data("diabetes")


CHANNEL = st.tuples(st.floats(0, 1), st.floats(0.05, 1))


@given(channels=st.lists(CHANNEL, min_size=3, max_size=3))
def test_scaling_of_images_follows_the_formula_and_can_be_undone(channels):
    mean, std = zip(*channels, strict=True)
    scaling = Scaling(mean, std)
    images = torch.from_numpy(pixels(2, 3, 8, 8))
    normalised = scaling.apply(images)
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - mean[channel]) / std[channel]
        assert torch.allclose(normalised[:, channel].double(), expected, atol=1e-4)
    assert torch.equal(scaling.invert(normalised), images)
    assert torch.allclose(scaling.apply(images / 255), normalised, atol=1e-4)


def test_scaling_of_bytes_is_one_multiply_and_one_add():
    """Bit for bit what shipped coresets were made with."""
    images = torch.from_numpy(pixels(2, 3, 8, 8))
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    scale = torch.tensor([1 / (255 * s) for s in std]).view(3, 1, 1)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)]).view(3, 1, 1)
    assert torch.equal(Scaling(mean, std).apply(images), images * scale + shift)


COLUMN = st.tuples(st.floats(-1e3, 1e3, width=32), st.floats(0.5, 1e3, width=32))


@given(columns=st.lists(COLUMN, min_size=1, max_size=5), rows=st.sampled_from([1, 7]))
def test_scaling_of_tables_follows_the_formula_and_can_be_undone(columns, rows):
    mean, std = zip(*columns, strict=True)
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(rows, len(columns), generator=generator)
    numbers = numbers * torch.tensor(std) + torch.tensor(mean)
    normalised = Scaling(mean, std).apply(numbers)
    assert normalised.dtype == torch.float32
    expected = (numbers.double().numpy() - mean) / std
    assert np.allclose(normalised, expected, rtol=1e-5, atol=1e-6)
    assert torch.allclose(Scaling(mean, std).invert(normalised), numbers, rtol=1e-4, atol=1e-3)
    samples = torch.stack([normalised, -normalised])  # samples × rows × columns
    assert torch.equal(Scaling(mean, std).invert(samples)[0], Scaling(mean, std).invert(normalised))


def test_scaling_inverted_clips_what_no_pixel_can_show():
    shown = Scaling((0.5,), (0.1,)).invert(torch.tensor([-100.0, 0.0, 100.0]).view(3, 1, 1, 1))
    assert shown.flatten().tolist() == [0, 128, 255]


def test_scaling_measured_gives_mean_0_and_deviation_1():
    images = torch.from_numpy(pixels(50, 3, 8, 8))
    normalised = Scaling.measured(images).apply(images)
    assert normalised.mean((0, 2, 3)).abs().max() < 1e-3
    assert (normalised.std((0, 2, 3)) - 1).abs().max() < 1e-3
    numbers = torch.randn(50, 4) * torch.tensor([1e-3, 1, 1e3, 5]) + torch.tensor([0, 1e3, 5, -5])
    scaling = Scaling.measured(numbers)
    assert np.allclose(scaling.mean, numbers.double().numpy().mean(0), rtol=1e-8)
    assert np.allclose(scaling.std, numbers.double().numpy().std(0), rtol=1e-8)


def test_scaling_measured_of_what_is_constant_stays_finite():
    flat = torch.full((2, 1, 4, 4), 7, dtype=torch.uint8)
    assert Scaling.measured(flat).apply(flat).isfinite().all()
    constant = torch.tensor([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])
    scaling = Scaling.measured(constant)
    assert scaling.std[0] == 1
    assert scaling.apply(constant)[:, 0].abs().max() < 1e-6


def test_data_of_images_says_what_a_network_must_know(digits):
    assert digits.is_image
    assert digits.shape == {"input_shape": (1, 8, 8), "outputs": 10}
    assert (digits.channels, digits.image_size, digits.classes) == (1, 8, 10)
    assert (digits.task, digits.target_scaling, digits.columns) == ("classification", None, ())


def test_data_of_a_table_says_what_a_network_must_know(diabetes):
    assert not diabetes.is_image
    assert diabetes.shape == {"input_shape": (10,), "outputs": 1}
    assert (diabetes.task, diabetes.class_names, diabetes.classes) == ("regression", (), 0)
    assert diabetes.target_scaling == Scaling.measured(diabetes.train.targets)
    for name in ("channels", "image_size"):
        refused("data", getattr, diabetes, name, naming=name)


def test_data_reprs_are_one_line(digits, diabetes):
    held = digits.hold_out(100)
    assert "1,197" in repr(held)
    assert "100 held out" in repr(held)
    assert "10 classes" in repr(held)
    assert "1 target" in repr(diabetes)
    for thing in (digits, held, diabetes, digits.train, diabetes.train):
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 120


def test_data_that_contradict_their_task_are_refused(digits, diabetes):
    refused("task", replace, digits, task="regression")
    refused("task", replace, diabetes, task="classification")
    refused("target_scaling", replace, digits, target_scaling=Scaling((0.0,), (1.0,)))
    refused("target_scaling", replace, diabetes, target_scaling=None)


def test_holdout_is_no_longer_trained_on(digits):
    held = digits.hold_out(100, seed=3)
    assert (len(held.train), held.num_train) == (1197, 1297)
    assert held.class_counts == digits.class_counts == digits.train.targets.bincount().tolist()
    both = torch.cat([held.train.inputs, held.holdout.inputs]).flatten(1).tolist()
    assert sorted(both) == sorted(digits.train.inputs.flatten(1).tolist())
    assert held.fingerprint == digits.hold_out(100, seed=3).fingerprint
    assert held.fingerprint != digits.hold_out(100, seed=4).fingerprint
    assert digits.hold_out(0) is digits


@pytest.mark.parametrize(
    ("sizes", "number", "shares"),
    [
        ((40, 40, 40), 30, [10, 10, 10]),
        ((90, 20, 10), 12, [9, 2, 1]),
        ((90, 20, 10), 13, [10, 2, 1]),
        ((100, 1, 3), 26, [25, 0, 1]),
        ((100, 1, 3), 101, [99, 0, 2]),
        ((50, 2, 2), 51, [49, 1, 1]),
    ],
)
def test_held_out_points_are_in_proportion_to_the_classes(sizes, number, shares):
    labels = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    points = from_arrays(
        torch.arange(len(labels) * 2.0).reshape(-1, 2).numpy(),
        labels.numpy(),
        np.zeros((3, 2)),
        np.arange(3),
    )
    held = points.hold_out(number).holdout
    assert torch.bincount(held.targets, minlength=3).tolist() == shares


def test_holdout_of_a_regression_is_any_number(diabetes):
    held = diabetes.hold_out(57, seed=3)
    assert (len(held.holdout), held.num_train) == (57, len(diabetes.train))
    assert held.class_counts == []
    both = torch.cat([held.train.inputs, held.holdout.inputs]).tolist()
    assert sorted(both) == sorted(diabetes.train.inputs.tolist())
    assert not torch.equal(held.holdout.inputs, diabetes.hold_out(57, seed=4).holdout.inputs)
    assert not torch.equal(held.holdout.inputs, diabetes.train.inputs[:57])


def test_holdout_that_cannot_be_taken_is_refused(digits, diabetes):
    for data, numbers in ((digits, (-10, 1288, 1297)), (diabetes, (-1, len(diabetes.train)))):
        for number in numbers:
            refused("holdout", data.hold_out, number, naming=number)
    refused("holdout", digits.hold_out(10).hold_out, 10)


def test_fingerprint_sees_every_change_that_matters(digits, diabetes):
    images = digits.test.inputs.clone()
    images[-1, 0, 7, 7] ^= 1
    labels = digits.train.targets.clone()
    labels[0] = (labels[0] + 1) % 10
    changed = [
        digits,
        replace(digits, test=Split(images, digits.test.targets)),
        replace(digits, train=Split(digits.train.inputs, labels)),
        replace(digits, class_names=tuple("abcdefghij")),
        replace(digits, scaling=Scaling((0.5,), (0.5,))),
        digits.hold_out(10),
        diabetes,
        replace(diabetes, target_scaling=Scaling((0.0,), (1.0,))),
        replace(diabetes, columns=()),
    ]
    assert len({data.fingerprint for data in changed}) == len(changed)
    assert digits.to(torch.device("cpu")).fingerprint == digits.fingerprint


def fresh(data):
    """The same without what was computed before."""
    return replace(data)


def shuffled(split, seed):
    return split.take(torch.randperm(len(split), generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("name", ["digits", "diabetes"])
def test_digests_depend_on_neither_order_nor_holdout(name, request):
    data = request.getfixturevalue(name)
    same = [
        replace(data, train=shuffled(data.train, 1), test=shuffled(data.test, 2)),
        data.hold_out(50),
        fresh(data.hold_out(50)),
        fresh(data.hold_out(50, seed=1)),
        fresh(data).to(torch.device("cpu")),
        replace(data, name="other", scaling=Scaling.measured(data.test.inputs)),
    ]
    for other in same:
        assert (other.train_digest, other.test_digest) == (data.train_digest, data.test_digest)


def test_digests_follow_their_definition(digits):
    total = 0
    for inputs, target in zip(digits.test.inputs, digits.test.targets, strict=True):
        content = inputs.numpy().tobytes() + target.numpy().tobytes()
        total += int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "little")
    kinds = [("torch.uint8", (1, 8, 8)), ("torch.int64", ())]
    whole = repr((kinds, 500, total % 2**128))
    assert digits.test_digest == hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


def test_digests_see_every_point(digits, diabetes):
    def with_train(data, inputs, targets):
        return replace(data, train=Split(inputs, targets))

    images, labels = digits.train.inputs, digits.train.targets
    rows, numbers = diabetes.train.inputs, diabetes.train.targets
    swapped = labels.clone()
    one, two = 0, int((labels != labels[0]).nonzero()[0])
    swapped[[one, two]] = labels[[two, one]]
    raised = numbers.clone()
    raised[3] += 1
    others = [
        digits,
        with_train(digits, images[1:], labels[1:]),
        with_train(digits, torch.cat([images, images[:1]]), torch.cat([labels, labels[:1]])),
        with_train(
            digits,
            torch.cat([images, images[:1].repeat(2, 1, 1, 1)]),
            torch.cat([labels, labels[:1].repeat(2)]),
        ),
        with_train(digits, images, swapped),  # the same images and labels, paired otherwise
        with_train(digits, images.reshape(-1, 1, 4, 16), labels),
        diabetes,
        with_train(diabetes, rows, raised),
    ]
    assert len({data.train_digest for data in others}) == len(others)
    assert len({data.test_digest for data in others}) == 2


def test_digests_are_passed_on_to_another_device(digits, monkeypatch):
    expected = digits.train_digest, digits.test_digest
    monkeypatch.setattr("pseudocoreset.data.dataset._digest", lambda _: "computed")
    for other in (digits.to(torch.device("cpu")), digits.hold_out(10)):
        assert (other.train_digest, other.test_digest) == expected
    assert fresh(digits).train_digest == "computed"


def test_digests_of_cifar_take_less_than_a_second():
    images = torch.randint(0, 256, (50_000, 3, 32, 32), dtype=torch.uint8)
    labels = torch.arange(50_000) % 2
    split = Split(images, labels)
    data = Data("many", split, split.take(torch.arange(10)), ("a", "b"), Scaling((0.5,), (0.5,)))
    start = time.process_time()
    assert len(data.train_digest) == 32
    assert time.process_time() - start < 1


def test_data_of_images_can_have_numbers_for_targets():
    data = from_arrays(pixels(30, 8, 8), np.linspace(0, 1, 30))
    assert (data.task, data.shape) == ("regression", {"input_shape": (1, 8, 8), "outputs": 1})
    assert data.columns == ()
    assert data.target_scaling is not None
