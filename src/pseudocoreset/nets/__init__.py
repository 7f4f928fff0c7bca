"""Networks, one architecture per file, used as functions of their weights."""

from .make import DEFAULT_NET, NET_NAMES, NetLike, default_net, make_net, make_stored_net
from .net import Net
from .weights import Weights

__all__ = [
    "DEFAULT_NET",
    "NET_NAMES",
    "Net",
    "NetLike",
    "Weights",
    "default_net",
    "make_net",
    "make_stored_net",
]
