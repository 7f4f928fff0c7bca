"""Other data told from the points that are scored."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import ood as oracle
from pseudocoreset import UserError, load_data
from pseudocoreset.data import Split
from pseudocoreset.evaluation.ood import auroc, fitting_images, fpr95, score_ood, told_apart

NUMBERS = st.lists(st.integers(0, 8), min_size=1, max_size=50)


@settings(max_examples=200, deadline=None)
@given(NUMBERS, NUMBERS)
def test_rates_are_those_of_counting(inside, outside):
    """Few different values, so that ties are common."""
    one, two = (torch.tensor(values, dtype=torch.float64) for values in (inside, outside))
    assert auroc(one, two) == pytest.approx(oracle.auroc(inside, outside), abs=1e-12)
    assert fpr95(one, two) == oracle.fpr95(inside, outside)


def test_direction():
    """Higher scores are for other data."""
    low, high = torch.arange(100.0), torch.arange(100.0) + 1000
    assert (auroc(low, high), fpr95(low, high)) == (1, 0)
    assert (auroc(high, low), fpr95(high, low)) == (0, 1)
    assert auroc(low, low) == 0.5
    assert fpr95(low, low) == 0.95
    assert fpr95(low, torch.tensor([93.0, 94.0, 95.0, 96.0])) == 0.5


def test_entropy_and_mutual_information_are_the_scores():
    """Inside: both samples sure of one class. Outside: first torn, then sure of different ones."""
    sure = torch.tensor([40.0, 0.0]).expand(2, 10, 2)
    torn = torch.zeros(2, 10, 2)
    apart = torch.stack([torch.tensor([[40.0, 0.0]] * 10), torch.tensor([[0.0, 40.0]] * 10)])
    found = told_apart(sure, torn)
    assert found["entropy"] == {"auroc": 1.0, "fpr95": 0.0}
    assert found["mutual_information"] == {"auroc": 0.5, "fpr95": 1.0}  # all are 0
    found = told_apart(sure, apart)
    assert found["entropy"]["auroc"] == found["mutual_information"]["auroc"] == 1


def test_pooled_samples_are_all_together():
    """Two posteriors of one sample each that contradict one another know nothing alone."""
    inside = [torch.tensor([[[40.0, 0.0]]])] * 2
    outside = [torch.tensor([[[40.0, 0.0]]]), torch.tensor([[[0.0, 40.0]]])]
    found = score_ood("other", inside, outside)
    assert found.mean("mutual_information", "auroc") == 0.5
    assert found.pooled["mutual_information"]["auroc"] == 1
    content = found.as_json()
    assert (content["data"], content["images"]) == ("other", 1)
    assert content["entropy"] == {"auroc": 0.5, "auroc_std": 0, "fpr95": 1.0, "fpr95_std": 0}


def test_images_are_made_to_fit():
    digits = load_data("digits")
    grey = fitting_images(digits, (1, 8, 8))
    assert torch.equal(grey, digits.test.inputs)
    large = fitting_images(digits, (3, 16, 16))
    assert large.shape[1:] == (3, 16, 16)
    assert torch.equal(large[:, 0], large[:, 2])
    mean = large.float().mean() - grey.float().mean()
    assert mean.abs() < 1
    colours = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    colours[0, 0], colours[1] = 100, 77  # red, and grey
    few = replace(digits, test=Split(colours, torch.tensor([0, 1])))
    assert fitting_images(few, (1, 8, 8))[:, 0, 0, 0].tolist() == [30, 77]
    with pytest.raises(UserError, match="`ood` needs images"):
        fitting_images(load_data("diabetes"), (3, 16, 16))
