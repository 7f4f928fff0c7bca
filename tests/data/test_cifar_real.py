"""The real archives, in the folder that PSEUDOCORESET_DATA names."""

import os
from pathlib import Path

import pytest
import torch

from pseudocoreset.data import Scaling, load_data

pytestmark = pytest.mark.real_data

FOLDERS = {10: "cifar-10-batches-bin", 100: "cifar-100-binary"}
MEANS = {10: (0.4914, 0.4822, 0.4465), 100: (0.5071, 0.4866, 0.4409)}


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar_real_has_balanced_classes_and_the_known_mean(classes):
    root = os.environ.get("PSEUDOCORESET_DATA")
    if root is None:
        pytest.skip("PSEUDOCORESET_DATA doesn't name a folder of data sets")
    if not (Path(root) / FOLDERS[classes]).is_dir():
        pytest.skip(f"PSEUDOCORESET_DATA has no {FOLDERS[classes]}")
    data = load_data(f"cifar{classes}:{root}")
    assert torch.bincount(data.train.targets).tolist() == [50_000 // classes] * classes
    assert torch.bincount(data.test.targets).tolist() == [10_000 // classes] * classes
    assert Scaling.measured(data.train.inputs).mean == pytest.approx(MEANS[classes], abs=2e-4)
    assert data.class_names[0] == ("airplane" if classes == 10 else "apple")
