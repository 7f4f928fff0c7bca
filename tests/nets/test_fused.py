"""The fused kernels against PyTorch's own pieces, in Triton's interpreter where there is no GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "cuda_checks.py"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="PyTorch's CPU build comes without Triton"
)


@needs_triton
def test_kernels_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, SCRIPT, "kernels", "cpu"], env=environment, check=True)
