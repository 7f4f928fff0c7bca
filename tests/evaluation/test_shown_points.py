import pytest
import torch

from pseudocoreset.evaluation.examples import examples
from pseudocoreset.evaluation.metrics import Predicted, PredictedNumbers, scores

PROBABILITIES = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.8, 0.2], [0.05, 0.95], [0.4, 0.6]])
LABELS = torch.tensor([0, 0, 1, 0, 0])


def test_examples_are_the_most_uncertain_and_the_most_confidently_wrong():
    found = examples(Predicted(PROBABILITIES.log()[None], LABELS), most=2)
    assert [one["index"] for one in found["uncertain"]] == [1, 4]
    assert [one["index"] for one in found["wrong"]] == [3, 2]
    worst = found["wrong"][0]
    assert (worst["truth"], worst["predicted"]) == (0, [1, 0])
    assert worst["probabilities"] == pytest.approx([0.95, 0.05])
    assert worst["truth_probability"] == pytest.approx(0.05)
    assert found["uncertain"][0]["entropy"] == pytest.approx(0.6931, abs=1e-4)


def test_examples_of_certain_and_right_predictions_are_none_wrong():
    sure = torch.tensor([[[0.0, -float("inf")], [-float("inf"), 0.0]]])
    found = examples(Predicted(sure, torch.tensor([0, 1])))
    assert found["wrong"] == []
    assert [one["entropy"] for one in found["uncertain"]] == [0.0, 0.0]


def test_examples_of_a_regression_are_the_farthest_in_standard_deviations():
    samples = torch.tensor([[[0.0], [10.0], [5.0]], [[2.0], [10.0], [5.0]]])
    numbers = PredictedNumbers(samples, torch.tensor([0.5]), torch.tensor([[4.0], [12.0], [5.0]]))
    found = examples(numbers, most=2)
    assert [one["index"] for one in found["worst"]] == [1, 0]  # 4 and 2.7 standard deviations
    assert found["worst"][0] == {"index": 1, "target": [12.0], "mean": [10.0], "std": [0.5]}
    assert [one["index"] for one in found["fitted"]] == [0, 1, 2]
    assert scores(numbers)["mean_rmse"] == pytest.approx(3.5590, abs=1e-4)
