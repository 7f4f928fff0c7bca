"""Networks, one architecture a file, used as pure functions of their weights."""

from .make import make_net
from .net import Net
from .weights import Weights

__all__ = ["Net", "Weights", "make_net"]
