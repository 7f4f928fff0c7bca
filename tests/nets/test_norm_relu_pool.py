"""The fused kernels against PyTorch's own pieces, in Triton's interpreter where there is no GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pseudocoreset.nets.kernels import norm_relu_pool as fused

SCRIPT = Path(__file__).parent.parent / "cuda_checks.py"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="PyTorch's CPU build comes without Triton"
)


@needs_triton
def test_kernels_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, SCRIPT, "kernels", "cpu"], env=environment, check=True)


@needs_triton
def test_kernels_see_the_names_of_their_module():
    # What checks types in the tests wraps functions; Triton would look for names in the wrapper's.
    for kernel in (fused._forward_kernel, fused._normed_and_gated, fused._backward_kernel):
        assert kernel.fn.__globals__ is vars(fused)
