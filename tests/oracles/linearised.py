"""J Σ Jᵀ of a network by differences and plain loops."""

from math import exp

import torch
from torch import Tensor


def differences(outputs, params: Tensor, step: float = 1e-5) -> Tensor:
    """∂ outputs / ∂ params by central differences: n×k×p."""
    columns = []
    for place in range(len(params)):
        move = torch.zeros_like(params)
        move[place] = step
        columns.append((outputs(params + move) - outputs(params - move)) / (2 * step))
    return torch.stack(columns, -1)


def softmax_curvature(values: Tensor) -> Tensor:
    """The Hessian of the cross-entropy in the outputs: diag(p) − p pᵀ."""
    shares = [exp(float(value)) for value in values]
    p = torch.tensor(shares, dtype=values.dtype) / sum(shares)
    return torch.diag(p) - torch.outer(p, p)


def variance(
    outputs_of, params: Tensor, points: Tensor, at: Tensor, weight: float, prior: float
) -> Tensor:
    """The variance of each output at the inputs `at`, for a posterior of classes of `points`."""
    slopes = differences(lambda p: outputs_of(p, points), params)
    precision = prior * torch.eye(len(params), dtype=params.dtype)
    for slope, values in zip(slopes, outputs_of(params, points), strict=True):
        precision = precision + weight * slope.T @ softmax_curvature(values) @ slope
    covariance = torch.linalg.inv(precision)
    there = differences(lambda p: outputs_of(p, at), params)
    return torch.stack([torch.stack([row @ covariance @ row for row in each]) for each in there])
