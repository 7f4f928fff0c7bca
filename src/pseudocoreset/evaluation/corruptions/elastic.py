"""Elastic deformation."""

import torch

from pseudocoreset.evaluation.corruptions.draws import Draws
from pseudocoreset.evaluation.corruptions.linear import (
    OFFICIAL_SIDE,
    both_ways,
    gaussian_matrix,
    sampled,
)
from pseudocoreset.evaluation.corruptions.noise import Images


def elastic_transform(x: Images, draws: Draws, alpha: float, sigma: float, jitter: float) -> Images:
    """Three points of the image move by up to `jitter`, then every pixel by a smooth field.

    The affine map takes the corners of a triangle to their new places (borders mirrored); the
    field is `alpha` times uniform noise in [−1, 1] under a Gaussian of `sigma` (borders reflected).
    """
    side = x.shape[-1]
    grown = side / OFFICIAL_SIDE
    centre, arm = float(side // 2), side // 3
    triangle = torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64) * arm + centre
    moved = triangle + draws.uniform(-jitter * grown, jitter * grown, 3, 2)
    ones = torch.ones(len(x), 3, 1, dtype=torch.float64)
    # Where each pixel comes from: (x, y) = A (x', y', 1), solved from the moved triangle.
    back = torch.linalg.solve(torch.cat([moved, ones], 2), triangle.expand(len(x), -1, -1))
    grid = torch.arange(side, dtype=torch.float64)
    rows, columns = torch.meshgrid(grid, grid, indexing="ij")
    places = torch.stack([columns, rows, torch.ones_like(rows)], 2).flatten(0, 1) @ back
    from_columns, from_rows = places.unflatten(1, (side, side)).unbind(3)
    x = sampled(x, from_rows, from_columns, "mirror")
    blur = gaussian_matrix(side, sigma * grown, 3.0, "reflect")
    right, down = (
        alpha * grown * both_ways(draws.uniform(-1, 1, side, side), blur) for _ in range(2)
    )
    return sampled(x, rows + down, columns + right, "reflect")
