"""A step of Adam as one CUDA kernel."""

from typing import no_type_check

import torch
from torch import Tensor

try:
    import triton  # type: ignore[import-not-found,unused-ignore]
    from triton import language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # PyTorch's builds without CUDA come without it
    triton = None

BLOCK = 1024


def can_step(params: Tensor) -> bool:
    """Whether the kernel takes parameters like these."""
    return triton is not None and params.is_cuda and params.dtype == torch.float32


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    @no_type_check
    def _adam_kernel(
        params_ptr, first_ptr, second_ptr, gradient_ptr, new_params_ptr, new_first_ptr,
        new_second_ptr, count_ptr, length, lr, beta1, beta2, eps, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """A block of the parameters; `count` is the number of this step."""
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = place < length
        gradient = tl.load(gradient_ptr + place, mask=inside, other=0.0)
        first = tl.load(first_ptr + place, mask=inside, other=0.0)
        second = tl.load(second_ptr + place, mask=inside, other=0.0)
        count = tl.load(count_ptr)
        first += (1 - beta1) * (gradient - first)
        second += (1 - beta2) * (gradient * gradient - second)
        scale = lr / (1 - tl.exp2(count * tl.log2(beta1)))
        root = tl.sqrt(second / (1 - tl.exp2(count * tl.log2(beta2)))) + eps
        params = tl.load(params_ptr + place, mask=inside, other=0.0) - scale * first / root
        tl.store(new_params_ptr + place, params, mask=inside)
        tl.store(new_first_ptr + place, first, mask=inside)
        tl.store(new_second_ptr + place, second, mask=inside)


def adam_step(
    params: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    count: Tensor,
    constants: tuple[float, float, float, float],
) -> tuple[Tensor, Tensor, Tensor]:
    """New parameters and moments, of vectors.

    Args:
        params: θ
        first: the mean of gradients
        second: the mean of their squares
        gradient: the gradient
        count: the number of this step, from 1 on
        constants: learning rate, β₁, β₂ and ε
    """
    new = torch.empty_like(params), torch.empty_like(params), torch.empty_like(params)
    length = params.numel()
    _adam_kernel[(triton.cdiv(length, BLOCK),)](
        params, first, second, gradient.contiguous(), *new, count, length, *constants, BLOCK=BLOCK
    )
    return new
