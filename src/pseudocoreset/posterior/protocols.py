"""How a posterior is sampled, by name; the same for every method that is compared."""

from dataclasses import dataclass, replace
from math import inf

from pseudocoreset.errors import UserError

SAMPLERS = ("sghmc", "sgld", "map")

TEMPERATURE = 1e-6
PRIOR_PRECISION = 0.3
"""T and τ of the protocol `tuned`, chosen on held-out training images of CIFAR-10
(results/protocol.json): of a prior the paper says nothing, and its noise costs accuracy."""


@dataclass(frozen=True)
class Protocol:
    """All that decides how a posterior is sampled.

    Args:
        sampler: sghmc, sgld, or map (a deep ensemble: each sample trained on its own)
        step: step size on the averaged potential (η)
        friction: friction (α), of sghmc and map
        temperature: T of exp(−U/T); by the protocol `paper`, T = 2d²m / (ηα) with d = 0.01/m
        prior: precision τ of the Gaussian prior N(0, 1/τ); the weight decay is τ/m
        epochs: passes over the coreset in a chain
        every: epochs between two samples that are kept
        chains: chains; their samples are pooled
        batch: coreset images a step
        dsa: augmentation of the coreset's images: on (as the coreset was made), or off
    """

    sampler: str = "sghmc"
    step: float = 0.03
    friction: float = 0.1
    temperature: float | None = TEMPERATURE
    prior: float = PRIOR_PRECISION
    epochs: int = 1000
    every: int = 100
    chains: int = 1
    batch: int = 256
    dsa: str = "on"

    def temperature_for(self, images: int) -> float:
        """T for a coreset of so many images.

        The paper prints noise N(0, 2d) with d = 0.01/m. Read as a variance it destroys the chain
        (T = 3.3 at the paper's η and α); read as a standard deviation it is the variance 4d², and
        from 2ηα·T/m = 4d² follows T = 2d²m / (ηα), which is 0.067/m.
        """
        if self.temperature is not None:
            return self.temperature
        d = 0.01 / images
        return 2 * d * d * images / (self.step * self.friction)

    def check(self) -> None:
        """Refuse what makes no sense."""
        if self.sampler not in SAMPLERS:
            raise UserError(f"--sampler {self.sampler} is not known: give {', '.join(SAMPLERS)}.")
        for name in ("epochs", "every", "chains", "batch"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} {getattr(self, name)} is too small: give 1 or more.")
        if self.epochs % self.every:
            raise UserError(
                f"--every {self.every} does not divide --epochs {self.epochs}, so the last epochs "
                "would give no sample: give one that does."
            )
        if not 0 < self.friction <= 1:
            raise UserError(f"--friction {self.friction} is not in (0, 1]: give 0.1, say.")
        if not 0 < self.step < inf:
            raise UserError(f"--step {self.step} is not positive: give 0.03, say.")
        for name in ("prior", "temperature"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < inf:
                raise UserError(f"--{name} {value} is out of range: give 0 or more.")
        if self.dsa not in ("on", "off"):
            raise UserError(f"--dsa {self.dsa} is not known here: give on or off.")


PROTOCOLS = {
    "tuned": Protocol(),
    "paper": Protocol(temperature=None, prior=0.0),
    "bayes": Protocol(temperature=1.0, prior=1.0),
}
"""`tuned`: the paper's chain without its noise, but for a trace, and with a prior. `paper`: the
values of Kim et al. 2023 and nothing else. `bayes`: the posterior itself, at temperature 1, with
the prior N(0, 1)."""


def named_protocol(name: str, **changes: object) -> Protocol:
    """The protocol of this name, with what a person gave changed."""
    if name not in PROTOCOLS:
        *others, last = PROTOCOLS
        raise UserError(f"--protocol {name} is not known: give {', '.join(others)} or {last}.")
    given = {key: value for key, value in changes.items() if value is not None}
    protocol = replace(PROTOCOLS[name], **given)  # type: ignore[arg-type]
    protocol.check()
    return protocol
