"""Protocols: named settings of samplers, the same for all methods."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pseudocoreset.engine.classes import class_named, name_of_class
from pseudocoreset.engine.text import did_you_mean
from pseudocoreset.errors import UserError
from pseudocoreset.posterior.ensemble import Ensemble
from pseudocoreset.posterior.last_layer import LastLayer
from pseudocoreset.posterior.sampler import Sampler
from pseudocoreset.posterior.sghmc import SGHMC
from pseudocoreset.posterior.sgld import SGLD

SAMPLERS: dict[str, type[Sampler]] = {
    each.name: each for each in (SGHMC, SGLD, Ensemble, LastLayer)
}

PROTOCOLS: dict[str, Mapping[str, Any]] = {
    "tuned": {},
    "paper": {"temperature": None, "prior": 0.0},
    "paper-epochs": {"temperature": None, "prior": 0.0, "weight_decay": 5e-4, "first": True},
    "bayes": {"temperature": 1.0, "prior": 1.0},
}
"""The settings of each protocol that differ from the sampler's defaults. `tuned`: the paper's chain
with hardly any noise and with a prior. `paper`: the values of Kim et al. 2023. `paper-epochs`:
another reading of them, with weight decay 5·10⁻⁴ and a sample after epochs 1, 101, …, 1001, so
that one of eleven networks is hardly trained. `bayes`: the posterior at temperature 1 with the
prior N(0, 1), in which the coreset counts as much as the data."""
FULL_WEIGHT = ("bayes",)
"""Protocols in which the coreset counts as much as the data (`full_weight`)."""


def sampler_class(
    name: str, *, source: Path | str | None = None, trust_code: bool = False
) -> type[Sampler]:
    """The class of a sampler, by name.

    Args:
        name: one of SAMPLERS, or `package.module:Class`
        source: the file that contains the name, if it comes from a file
        trust_code: run code that a file names
    """
    return class_named(name, "sampler", SAMPLERS, Sampler, source=source, trust_code=trust_code)


def sampler_name(sampler: Sampler) -> str:
    """The name of a sampler in files and on the command line."""
    return name_of_class(sampler, sampler.name, SAMPLERS)


def named_sampler(protocol: str, sampler: Sampler | None = None) -> Sampler:
    """A complete sampler: fields that were not given are taken from the protocol.

    Args:
        protocol: one of PROTOCOLS
        sampler: a sampler with some fields given; default: `SGHMC()`
    """
    if protocol not in PROTOCOLS:
        raise UserError(
            f"`protocol` {protocol} is not known{did_you_mean(protocol, PROTOCOLS)}: give "
            f"{', '.join(PROTOCOLS)}.",
            "protocol",
        )
    sampler = sampler or SGHMC()
    values = dict(PROTOCOLS[protocol])
    if values.get("temperature", 1.0) is None and not isinstance(sampler, SGHMC):
        del values["temperature"]  # the paper's noise is that of SGHMC
    return sampler.resolved(values)
