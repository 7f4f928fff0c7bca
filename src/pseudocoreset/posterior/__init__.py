"""Samplers, one per file, and posteriors."""

from pseudocoreset.posterior.ensemble import Ensemble
from pseudocoreset.posterior.last_layer import LastLayer
from pseudocoreset.posterior.posterior import Posterior
from pseudocoreset.posterior.protocols import (
    PROTOCOLS,
    SAMPLERS,
    named_sampler,
    sampler_class,
    sampler_name,
)
from pseudocoreset.posterior.sample import sample, sample_posteriors
from pseudocoreset.posterior.sampler import Sampler
from pseudocoreset.posterior.sghmc import SGHMC
from pseudocoreset.posterior.sgld import SGLD

__all__ = [
    "PROTOCOLS",
    "SAMPLERS",
    "SGHMC",
    "SGLD",
    "Ensemble",
    "LastLayer",
    "Posterior",
    "Sampler",
    "named_sampler",
    "sample",
    "sample_posteriors",
    "sampler_class",
    "sampler_name",
]
