"""Scores against cases worked by hand, and against torchmetrics."""

from math import exp, log, pi
from statistics import NormalDist

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torchmetrics.classification import MulticlassCalibrationError

from pseudocoreset.evaluation.metrics import (
    KIM_BATCH,
    METRICS,
    Predicted,
    PredictedNumbers,
    brier,
    calibration_error,
    disagreement,
    negative_log_likelihood,
    negative_log_likelihood_kim,
    numbers,
    predictive,
    reliability,
    scores,
)
from pseudocoreset.likelihoods import Gaussian

# Two samples, three images, two classes; the labels are 0, 1, 1.
SAMPLES = torch.tensor(
    [
        [[0.9, 0.1], [0.58, 0.42], [0.34, 0.66]],
        [[0.66, 0.34], [0.18, 0.82], [0.9, 0.1]],
    ],
    dtype=torch.float64,
)
LABELS = torch.tensor([0, 1, 1])
MEAN = torch.tensor([[0.78, 0.22], [0.38, 0.62], [0.62, 0.38]], dtype=torch.float64)


def score(log_samples, labels):
    return scores(Predicted(log_samples, labels), all_of_them=True)


def test_predictive_is_the_mean_of_probabilities():
    torch.testing.assert_close(predictive(SAMPLES.log()).exp(), MEAN, rtol=1e-14, atol=1e-14)


def test_scores_worked_by_hand():
    found = score(SAMPLES.log(), LABELS)
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.nll == pytest.approx(-(log(0.78) + log(0.62) + log(0.38)) / 3, rel=1e-12)
    geometric = [(0.9 * 0.42 * 0.66) ** (1 / 3), (0.66 * 0.82 * 0.1) ** (1 / 3)]
    assert found.nll_kim == pytest.approx(-log(sum(geometric) / 2), rel=1e-12)
    assert found.brier == pytest.approx((2 * 0.22**2 + 2 * 0.38**2 + 2 * 0.62**2) / 3)
    # Confidences 0.78 (right) and twice 0.62 (right, wrong), which share a bin.
    assert found.ece == pytest.approx(0.22 * 1 / 3 + 0.12 * 2 / 3)
    # The samples predict 0, 0, 1 and 0, 1, 0.
    assert found.disagreement == pytest.approx(2 / 3)
    # Predicted are 0, 1, 0: all of class 0, half of class 1.
    assert found.confusion == [[1, 0], [1, 1]]
    assert found.class_accuracy == [1.0, 0.5]
    assert found.balanced_accuracy == pytest.approx(0.75)
    assert found.largest_class == pytest.approx(2 / 3)


def test_class_without_a_point_counts_in_no_mean():
    """Labels 0, 0, 0, 2 of four classes; predicted are 0, 1, 0, 2."""
    certain = torch.eye(4, dtype=torch.float64)[[0, 1, 0, 2]].clamp(min=1e-9).log()[None]
    found = score(certain, torch.tensor([0, 0, 0, 2]))
    assert found.confusion == [[2, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert found.class_accuracy == pytest.approx([2 / 3, 0, 1, 0])
    assert found.balanced_accuracy == pytest.approx((2 / 3 + 1) / 2)
    assert found.accuracy == found.largest_class == 0.75


def test_table_of_metrics_gives_every_score_once():
    for task, predicted in (
        ("classification", Predicted(SAMPLES.log(), LABELS)),
        ("regression", HAND),
    ):
        of_task = [metric for metric in METRICS if metric.task == task]
        whole = scores(predicted, all_of_them=True)
        assert list(whole) == [metric.name for metric in of_task]
        assert list(scores(predicted)) == [metric.name for metric in of_task if metric.scalar]
        assert all(isinstance(v, float) for v in scores(predicted).values())


# Two samples, three points, one target.
HAND = PredictedNumbers(
    torch.tensor([[[1.0], [4.0], [0.0]], [[3.0], [4.0], [2.0]]], dtype=torch.float64),
    noise=torch.tensor([0.5], dtype=torch.float64),
    targets=torch.tensor([[2.0], [5.0], [4.0]], dtype=torch.float64),
)


def test_scores_of_numbers_worked_by_hand():
    """Means 2, 4, 1 and deviations √1.25, 0.5, √1.25: away by 0, 1 and 3."""
    found = scores(HAND)
    assert found.rmse == pytest.approx((10 / 3) ** 0.5)
    # 0 of 1.84, 1 of 0.82 and 3 of 1.84: only the first is inside.
    assert found.coverage == pytest.approx(1 / 3)
    peak = 1 / (0.5 * (2 * pi) ** 0.5)
    densities = [
        peak * exp(-2.0),  # both samples are away by 2σ
        peak * exp(-2.0),
        peak * (exp(-32.0) + exp(-8.0)) / 2,
    ]
    assert found.nll == pytest.approx(-sum(map(log, densities)) / 3, rel=1e-12)


def random_numbers(samples, points, targets, seed):
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(samples, points, targets, generator=generator, dtype=torch.float64)
    truth = 3 + 2 * torch.randn(points, targets, generator=generator, dtype=torch.float64)
    mean, std = torch.tensor([3.0, -1.0]).double(), torch.tensor([2.0, 0.5]).double()
    return outputs, truth, Gaussian(targets, 0.7), std, mean


def test_nll_of_numbers_is_that_of_torchs_mixture():
    """In raw units: the samples and the noise are scaled by the targets' deviations."""
    outputs, truth, likelihood, std, mean = random_numbers(7, 50, 2, 0)
    found = scores(numbers(outputs, truth, likelihood, std, mean))
    normal = torch.distributions.Normal((outputs * std + mean).transpose(0, 1), 0.7 * std)
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.ones(7, dtype=torch.float64)),
        torch.distributions.Independent(normal, 1),
    )
    assert found.nll == pytest.approx(float(-mixture.log_prob(truth).mean()), rel=1e-12)
    away = (outputs * std + mean).mean(0) - truth
    assert found.rmse == pytest.approx(float((away**2).mean() ** 0.5), rel=1e-12)


def test_coverage_of_the_true_distribution_is_nine_tenths():
    """Targets drawn from what one sample predicts; and of two samples, by their mixture's std."""
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(1, 40_000, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(40_000, 1, generator=generator, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    exact = numbers(outputs, outputs[0] + 0.7 * noise, Gaussian(1, 0.7), one, zero)
    assert scores(exact).coverage == pytest.approx(0.9, abs=0.005)
    sure = numbers(outputs, outputs[0] + 0.7 * noise, Gaussian(1, 0.35), one, zero)
    inside = 2 * NormalDist().cdf(NormalDist().inv_cdf(0.95) / 2) - 1
    assert scores(sure).coverage == pytest.approx(inside, abs=0.008)
    pair = PredictedNumbers(
        torch.tensor([[[-1.0]], [[1.0]]]), torch.zeros(1) + 0.5, torch.zeros(1, 1)
    )
    assert float(pair.std) == pytest.approx(1.25**0.5)


def test_perfect_and_hopeless_predictions():
    certain = torch.eye(4, dtype=torch.float64)
    right, wrong = torch.arange(4), torch.arange(4).roll(1)
    assert brier(certain, right) == 0
    assert brier(certain, wrong) == 2
    assert calibration_error(certain, right) == 0
    assert calibration_error(certain, wrong) == 1
    uniform = torch.full((4, 4), 0.25, dtype=torch.float64)
    assert brier(uniform, right) == pytest.approx(0.75)
    assert negative_log_likelihood(uniform.log(), right) == pytest.approx(log(4))


def test_scores_of_one_sample():
    found = score(SAMPLES[:1].log(), LABELS)
    assert found.disagreement == 0
    assert found.nll_kim == pytest.approx(found.nll, rel=1e-12)


def test_disagreement_of_three_samples():
    """Votes 0, 0, 1 on one image: of three pairs, two disagree."""
    votes = torch.tensor([[0], [0], [1]])
    log_samples = torch.nn.functional.one_hot(votes, 3).float().clamp(min=1e-6).log()
    assert disagreement(log_samples) == pytest.approx(2 / 3)
    assert disagreement(log_samples[:2]) == 0


def random_case(samples, images, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(samples, images, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (images,), generator=generator)
    return logits.log_softmax(2), labels


def test_kim_et_al_average_over_test_batches_of_128():
    assert KIM_BATCH == 128


@given(st.integers(1, 6), st.integers(1, 3 * KIM_BATCH), st.integers(2, 5), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_kims_nll_is_never_smaller(samples, images, classes, seed):
    log_samples, labels = random_case(samples, images, classes, seed)
    ours = negative_log_likelihood(predictive(log_samples), labels)
    assert negative_log_likelihood_kim(log_samples, labels) >= ours - 1e-12


def test_kims_nll_counts_a_short_last_batch_by_its_images():
    """Against a loop over batches, of which the last has 44 images."""
    log_samples, labels = random_case(4, 2 * KIM_BATCH + 44, 3, seed=1)
    total = 0.0
    for start in (0, KIM_BATCH, 2 * KIM_BATCH):
        batch, right = log_samples[:, start : start + KIM_BATCH], labels[start : start + KIM_BATCH]
        losses = [float(F.nll_loss(one, right)) for one in batch]
        loss = -log(sum(exp(-each) for each in losses) / 4)
        total += loss * len(right)
    found = negative_log_likelihood_kim(log_samples, labels)
    assert found == pytest.approx(total / len(labels), rel=1e-12)
    assert found > negative_log_likelihood(predictive(log_samples), labels)


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_ece_equals_that_of_torchmetrics(classes, seed):
    log_samples, labels = random_case(3, 5000, classes, seed)
    probabilities = predictive(log_samples).exp().float()  # their bin edges are float32
    theirs = MulticlassCalibrationError(classes, n_bins=15, norm="l1")(probabilities, labels)
    ours = calibration_error(probabilities.double(), labels)
    assert ours == pytest.approx(float(theirs), abs=1e-6)
    assert float(theirs) > 0.01


def test_confidence_on_an_edge_belongs_to_the_lower_bin():
    """The bins are (a, b], as Guo et al. (2017) have them; 1 is in the last one."""
    probabilities = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.75, 0.25]], dtype=torch.float64)
    share, confidence, accuracy = reliability(probabilities, torch.tensor([0, 0, 1]), bins=4)
    torch.testing.assert_close(share * 3, torch.tensor([0.0, 1.0, 1.0, 1.0]).double())
    torch.testing.assert_close(confidence, torch.tensor([0.0, 0.5, 0.75, 1.0]).double())
    torch.testing.assert_close(accuracy, torch.tensor([0.0, 1.0, 0.0, 1.0]).double())


@given(st.integers(1, 50), st.integers(2, 6), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_scores_are_in_their_ranges(images, classes, seed):
    log_samples, labels = random_case(3, images, classes, seed)
    found = score(log_samples.float(), labels)
    assert 0 <= found.accuracy <= 1
    assert 0 <= found.ece <= 1
    assert 0 <= found.brier <= 2
    assert 0 <= found.disagreement <= 1
    assert 0 <= found.nll < float("inf")


def test_probabilities_of_nothing_stay_finite_in_the_log():
    """A class that float32 would call impossible has a finite NLL, since all is done in logs."""
    logits = torch.tensor([[[0.0, 400.0]]])
    found = score(logits.log_softmax(2), torch.tensor([0]))
    assert found.nll == pytest.approx(400)
