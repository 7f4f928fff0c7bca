"""Parameters and buffers of a network as flat vectors."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Weights(NamedTuple):
    """A network's parameters and buffers as two flat vectors.

    Integer buffers (BatchNorm's count of batches) are kept as float32 too: exact up to 2²⁴.
    """

    params: Float[Tensor, " p"]
    buffers: Float[Tensor, " q"]


class Layout:
    """Names, shapes and types of a list of tensors, and where each lies in the flat vector."""

    def __init__(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        named = dict(tensors)
        self.names = tuple(named)
        self.shapes = tuple(tensor.shape for tensor in named.values())
        self.dtypes = tuple(tensor.dtype for tensor in named.values())
        self.sizes = [tensor.numel() for tensor in named.values()]
        self.length = sum(self.sizes)

    def views(self, vector: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """The tensors by name as views, so that the gradient of the vector is one concatenation."""
        pieces = vector.split_with_sizes(self.sizes)
        return {
            name: piece.view(shape)
            for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }

    def copies(self, vector: Float[Tensor, " q"]) -> dict[str, Tensor]:
        """The tensors by name, each of its own type, as copies that may be written to."""
        if not self.names:
            return {}
        views = self.views(vector.detach())
        return {
            name: views[name].to(dtype, copy=True)
            for name, dtype in zip(self.names, self.dtypes, strict=True)
        }

    def vector(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The flat vector of the tensors, in this layout's order."""
        return torch.cat([tensors[name].reshape(-1) for name in self.names])
