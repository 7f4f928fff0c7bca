"""Networks, one architecture a file, used as pure functions of their weights."""

from .make import DEFAULT_NET, make_net
from .net import Net
from .weights import Weights

__all__ = ["DEFAULT_NET", "Net", "Weights", "make_net"]
