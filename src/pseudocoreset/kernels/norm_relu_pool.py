"""Instance norm, ReLU and 2×2 average pooling as one CUDA kernel each way.

These three are most of a ConvNet's time when done one after another: each reads and writes maps
that are far larger than the convolutions' weights. Here the maps are read twice forward (the second
time mostly from cache) and twice backward, and only the pooled quarter is written in between.

    y = pool(relu(w · (x − mean) / std + b)),    mean and std over the pixels of an image's channel

Maps lie with their channels last in memory, as cuDNN's fast convolutions want them.
"""

from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional as F

try:
    import triton  # type: ignore[import-not-found,unused-ignore]
    from triton import language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # PyTorch's builds without CUDA come without it
    triton = None

EPS = 1e-5
"""What nn.GroupNorm adds to the variance."""
ENOUGH_BLOCKS = 264
"""Two for each multiprocessor of a large GPU."""


def can_fuse(channels: int, side: int) -> bool:
    """Whether the kernels take square maps of this many channels and this side."""
    return triton is not None and channels % 16 == 0 and side % 2 == 0


if triton is not None:
    # Triton reads these functions' source, and finds names where they were written: whatever checks
    # types while the program runs must leave them alone.

    # One program serves all layers of a network: to compile one takes half a second.
    _for_all_sizes = triton.jit(do_not_specialize=["height", "width"])

    @_for_all_sizes
    @no_type_check
    def _forward_kernel(
        x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, scale_ptr,
        eps, height, width, channels: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
    ):  # fmt: skip
        """One image and a block of its channels: statistics, then norm, ReLU and pooling."""
        image, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
        channel = block * BLOCK_C + tl.arange(0, BLOCK_C)
        pixels = height * width
        x_ptr += image * pixels * channels
        y_ptr += image * (pixels // 4) * channels
        total = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
        squares = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
        first = tl.load(x_ptr + channel).to(tl.float32)  # near the mean: less is cancelled
        for start in range(0, pixels, BLOCK_P):
            pixel = start + tl.arange(0, BLOCK_P)
            inside = (pixel < pixels)[:, None]
            at = pixel[:, None] * channels + channel[None, :]
            x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32) - first[None, :]
            x = tl.where(inside, x, 0.0)
            total += x
            squares += x * x
        shifted = tl.sum(total, 0) / pixels
        variance = tl.maximum(tl.sum(squares, 0) / pixels - shifted * shifted, 0.0)
        mean = shifted + first
        scale = 1.0 / tl.sqrt(variance + eps)
        tl.store(mean_ptr + image * channels + channel, mean)
        tl.store(scale_ptr + image * channels + channel, scale)
        slope = scale * tl.load(weight_ptr + channel).to(tl.float32)
        shift = tl.load(bias_ptr + channel).to(tl.float32) - mean * slope
        half = width // 2
        for start in range(0, pixels // 4, BLOCK_P):
            pooled = start + tl.arange(0, BLOCK_P)
            inside = (pooled < pixels // 4)[:, None]
            corner = (pooled // half) * 2 * width + (pooled % half) * 2
            y = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
            for down in tl.static_range(2):
                for right in tl.static_range(2):
                    pixel = corner + down * width + right
                    at = pixel[:, None] * channels + channel[None, :]
                    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
                    y += tl.maximum(x * slope[None, :] + shift[None, :], 0.0)
            at = pooled[:, None] * channels + channel[None, :]
            tl.store(y_ptr + at, (y * 0.25).to(y_ptr.dtype.element_ty), mask=inside)

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    @no_type_check
    def _normed_and_gated(place, inside, mean, scale, weight, bias, dy):
        """x̂ of some pixels, and the gradient that reaches them through the ReLU."""
        x = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        x = (x - mean[None, :]) * scale[None, :]
        return x, tl.where(x * weight[None, :] + bias[None, :] > 0, dy, 0.0)

    @_for_all_sizes
    @no_type_check
    def _backward_kernel(
        x_ptr, weight_ptr, bias_ptr, mean_ptr, scale_ptr, dy_ptr, dx_ptr, sums_ptr,
        height, width, channels: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
    ):  # fmt: skip
        """The gradients of one image and a block of its channels.

        With x̂ = (x − mean)·scale and g = dy/4 where the ReLU is open: Σ g and Σ g·x̂ are the
        gradients of b and w, and dx = scale·w·(g − Σ g / P − x̂ · Σ g·x̂ / P) over P pixels.
        """
        image, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
        channel = block * BLOCK_C + tl.arange(0, BLOCK_C)
        pixels = height * width
        x_ptr += image * pixels * channels
        dx_ptr += image * pixels * channels
        dy_ptr += image * (pixels // 4) * channels
        mean = tl.load(mean_ptr + image * channels + channel)
        scale = tl.load(scale_ptr + image * channels + channel)
        weight = tl.load(weight_ptr + channel).to(tl.float32)
        bias = tl.load(bias_ptr + channel).to(tl.float32)
        half = width // 2
        sum_g = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
        sum_gx = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
        for start in range(0, pixels // 4, BLOCK_P):
            pooled = start + tl.arange(0, BLOCK_P)
            inside = (pooled < pixels // 4)[:, None]
            corner = (pooled // half) * 2 * width + (pooled % half) * 2
            at = pooled[:, None] * channels + channel[None, :]
            dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32) * 0.25
            for down in tl.static_range(2):
                for right in tl.static_range(2):
                    pixel = corner + down * width + right
                    at = pixel[:, None] * channels + channel[None, :]
                    x, g = _normed_and_gated(x_ptr + at, inside, mean, scale, weight, bias, dy)
                    sum_g += g
                    sum_gx += g * x
        dbias = tl.sum(sum_g, 0)
        dweight = tl.sum(sum_gx, 0)
        sums_ptr += image * 2 * channels
        tl.store(sums_ptr + channel, dweight)
        tl.store(sums_ptr + channels + channel, dbias)
        mean_g = dbias / pixels
        mean_gx = dweight / pixels
        slope = scale * weight
        for start in range(0, pixels // 4, BLOCK_P):
            pooled = start + tl.arange(0, BLOCK_P)
            inside = (pooled < pixels // 4)[:, None]
            corner = (pooled // half) * 2 * width + (pooled % half) * 2
            at = pooled[:, None] * channels + channel[None, :]
            dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32) * 0.25
            for down in tl.static_range(2):
                for right in tl.static_range(2):
                    pixel = corner + down * width + right
                    at = pixel[:, None] * channels + channel[None, :]
                    x, g = _normed_and_gated(x_ptr + at, inside, mean, scale, weight, bias, dy)
                    dx = slope[None, :] * (g - mean_g[None, :] - x * mean_gx[None, :])
                    tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def _blocks(x: Tensor) -> dict[str, Any]:
    """Few channels a block where there are few images, so that all of the GPU has work."""
    images, channels = x.shape[:2]
    fits = [block for block in (64, 32, 16) if channels % block == 0]
    block = next((b for b in fits if images * channels // b >= ENOUGH_BLOCKS), fits[-1])
    return {"BLOCK_C": block, "BLOCK_P": 2048 // block, "num_warps": 4}


class _NormReluPool(torch.autograd.Function):
    """y; the gradient is a kernel of its own, which can be differentiated once more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        images, channels, height, width = x.shape
        shape = (images, channels, height // 2, width // 2)
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        mean = torch.empty((images, channels), device=x.device)
        scale = torch.empty_like(mean)
        blocks = _blocks(x)
        _forward_kernel[(images, channels // blocks["BLOCK_C"])](
            x, weight, bias, y, mean, scale, EPS, height, width, channels, **blocks
        )
        ctx.save_for_backward(x, weight, bias, mean, scale)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        weight, bias = ctx.saved_tensors[1:3]
        dx, sums = _Gradient.apply(*ctx.saved_tensors, dy)  # type: ignore[no-untyped-call]
        # A sum over images as a product, which takes half as long.
        total = torch.mv(sums.flatten(1).t(), sums.new_ones(len(sums))).view(2, -1)
        return dx, total[0].to(weight.dtype), total[1].to(bias.dtype)


class _Gradient(torch.autograd.Function):
    """dx, and an image's gradients of w and b, one after the other."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, dy: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight, bias, dy)
        images, channels, height, width = x.shape
        dy = dy.contiguous(memory_format=torch.channels_last)
        dx = torch.empty_like(x)
        sums = torch.empty((images, 2, channels), device=x.device)
        blocks = _blocks(x)
        _backward_kernel[(images, channels // blocks["BLOCK_C"])](
            x, weight, bias, mean, scale, dy, dx, sums, height, width, channels, **blocks
        )
        return dx, sums

    @staticmethod
    def backward(ctx: Any, by_dx: Tensor, by_sums: Tensor) -> tuple[Tensor | None, ...]:
        return _differentiate_again(ctx, by_dx, by_sums)


def _differentiate_again(ctx: Any, by_dx: Tensor, by_sums: Tensor) -> tuple[Tensor | None, ...]:
    """The gradient of the gradient, which some methods need: through PyTorch's own pieces.

    The kernel gives the gradients of w and b an image, so each image has its own w and b here. It
    computes in float32 whatever the maps are in, and so do they.
    """
    types = [t.dtype for t in ctx.saved_tensors]
    with torch.enable_grad():
        x, weight, bias, dy = (t.detach().float().requires_grad_() for t in ctx.saved_tensors)
        own = [t.expand(len(x), -1).clone() for t in (weight, bias)]
        scaled = F.group_norm(x, x.shape[1], eps=EPS) * own[0][..., None, None]
        y = F.avg_pool2d(F.relu(scaled + own[1][..., None, None]), 2)
        inner = torch.autograd.grad(y, (x, *own), dy, create_graph=True)
        wanted = [t.float() for t in (by_dx, *by_sums.unbind(1))]
        found = torch.autograd.grad(inner, (x, weight, bias, dy), wanted)
    by_x, by_weight, by_bias, by_dy = (t.to(kind) for t, kind in zip(found, types, strict=True))
    return by_x, by_weight, by_bias, None, None, by_dy


def norm_relu_pool(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Norm, ReLU and pooling of maps that `can_fuse`."""
    x = x.contiguous(memory_format=torch.channels_last)
    y: Tensor = _NormReluPool.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y
