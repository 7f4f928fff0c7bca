"""Samplers: networks drawn from the posterior given a small data set."""

from pseudocoreset.posterior.protocols import PROTOCOLS, Protocol, named_protocol
from pseudocoreset.posterior.sample import Posterior, sample_posterior, sample_posteriors

__all__ = [
    "PROTOCOLS",
    "Posterior",
    "Protocol",
    "named_protocol",
    "sample_posterior",
    "sample_posteriors",
]
