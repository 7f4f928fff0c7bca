"""On a GPU: captured, compiled, fused steps give what plain ones give, and side by side too."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parent / "cuda_checks.py"


@pytest.mark.cuda
def test_fast_steps_equal_plain_ones(tmp_path):
    found = {}
    for way in ("plain", "fast"):
        file = tmp_path / f"{way}.pt"
        subprocess.run([sys.executable, SCRIPT, way, file], check=True)
        found[way] = torch.load(file, weights_only=True)
    differences = {
        name: float((found["fast"][name] - plain).norm() / plain.norm())
        for name, plain in found["plain"].items()
    }
    # The same random numbers; bfloat16 steps by other kernels. On one H200: an expert 0.008 after
    # 60 steps, a posterior 0.02, and the gradient of one update 0.02 (BPC-W) to 0.2 (FBPC, whose
    # MAP solution Adam finds: its first steps follow the sign of each gradient, however small).
    limits = {"expert": 0.03, "posterior": 0.06, "bpc-w": 0.06, "bpc-fkl": 0.15, "variance": 0.1}
    limits["predictions"] = 0.003  # the head's products in TF32, as convolutions are
    too_far = {name: d for name, d in differences.items() if not 0 < d < limits.get(name, 0.4)}
    assert not too_far, differences


@pytest.mark.cuda
@pytest.mark.parametrize("check", ["repeats", "dropout", "kernels"])
def test_engine_passes_its_checks(check):
    subprocess.run([sys.executable, SCRIPT, check, "cuda"], check=True)
