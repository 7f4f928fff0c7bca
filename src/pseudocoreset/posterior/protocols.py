"""How a posterior is sampled, by name; the same for every method that is compared."""

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
"""What a protocol sets; all else is the sampler's default. `tuned`: the paper's chain, nearly
without noise and with a prior. `paper`: the values of Kim et al. 2023. `paper-epochs`: another
reading of them, the usual loop of dataset distillation: weight decay 5·10⁻⁴, and a sample after
epochs 1, 101, …, 1001, so that a network which is hardly trained is one of eleven. `bayes`: the
posterior at temperature 1 with the prior N(0, 1), in which the coreset counts as much as the
data."""
FULL_WEIGHT = ("bayes",)
"""The protocols in which the coreset counts as much as the data (`full_weight`)."""


def sampler_class(
    name: str, *, source: Path | str | None = None, trust_code: bool = False
) -> type[Sampler]:
    """The class of the sampler of this name, or of a person's own.

    Args:
        name: one of SAMPLERS, or `package.module:Class`
        source: the file that named it, if a file did
        trust_code: run code that a file names
    """
    return class_named(name, "sampler", SAMPLERS, Sampler, source=source, trust_code=trust_code)


def sampler_name(sampler: Sampler) -> str:
    """What files and the command line call a sampler."""
    return name_of_class(sampler, sampler.name, SAMPLERS)


def named_sampler(protocol: str, sampler: Sampler | None = None) -> Sampler:
    """A complete sampler: what was not given is the protocol's.

    Args:
        protocol: one of PROTOCOLS
        sampler: what was given; default: `SGHMC()`
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
