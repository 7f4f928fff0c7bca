"""The fused kernels against PyTorch's own pieces, in Triton's interpreter where there is no GPU."""

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from pseudocoreset.kernels import norm_relu_pool as fused

SCRIPT = Path(__file__).parent.parent / "cuda_checks.py"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="PyTorch's CPU build comes without Triton"
)


@needs_triton
def test_kernels_in_the_interpreter():
    if version("triton").startswith("3.6."):
        pytest.skip("Triton 3.6's interpreter does not run loops with NumPy 2.4 or later")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, SCRIPT, "kernels", "cpu"], env=environment, check=True)


def test_second_derivative_of_bfloat16_maps_is_that_of_float32():
    """Through PyTorch's own pieces, on any device; each result is of its input's type."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4, 6, 6), (4,), (4,), (3, 4, 3, 3)]  # x, w, b, dy
    x, weight, bias, dy = (torch.randn(shape, generator=generator) for shape in shapes)
    outer = [torch.randn(shape, generator=generator) for shape in ((3, 4, 6, 6), (3, 4), (3, 4))]
    x, dy, outer[0] = (t.to(torch.bfloat16) for t in (x, dy, outer[0]))
    saved = SimpleNamespace(saved_tensors=(x, weight, bias, dy))
    found = [
        t
        for t in fused._differentiate_again(saved, outer[0], torch.stack(outer[1:], 1))
        if t is not None
    ]
    assert [t.dtype for t in found] == [t.dtype for t in (x, weight, bias, dy)]

    def first(x, weight, bias, dy):
        """The gradients of one image, which has w and b to itself."""
        maps = F.group_norm(x[None], 4, weight, bias, eps=fused.EPS)
        y = F.avg_pool2d(F.relu(maps), 2)[0]
        return torch.autograd.grad((y * dy).sum(), (x, weight, bias), create_graph=True)

    leaves = [t.double().requires_grad_() for t in (x, weight, bias, dy)]
    total = sum(
        (part * way[image].double()).sum()
        for image in range(3)
        for part, way in zip(
            first(leaves[0][image], *leaves[1:3], leaves[3][image]), outer, strict=True
        )
    )
    for ours, exact in zip(found, torch.autograd.grad(total, leaves), strict=True):
        rounding = 4e-3 if ours.dtype == torch.bfloat16 else 1e-5
        # By b it is 0: the slope of the ReLU does not change with it.
        assert (ours.double() - exact).norm() <= rounding * exact.norm()


@needs_triton
def test_kernels_see_the_names_of_their_module():
    # What checks types in the tests wraps functions; Triton would look for names in the wrapper's.
    for kernel in (fused._forward_kernel, fused._normed_and_gated, fused._backward_kernel):
        assert kernel.fn.__globals__ is vars(fused)
