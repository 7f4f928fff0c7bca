"""The options of a search and the job of its first trial."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pseudocoreset.data import Data
from pseudocoreset.distillation import DistillOptions, Job, resolve
from pseudocoreset.engine.options import Options, option
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.methods import Method
from pseudocoreset.nets import NetLike
from pseudocoreset.tuning.attempt import SAMPLES

FEW_UPDATES = 200
"""Updates of a trial, where the recipe has more."""


@dataclass(frozen=True)
class TuneOptions(Options):
    """How long the search is, and what it is made with."""

    trials: int = option(
        20, "number of trials; the first one uses the recipe's settings", at_least=1
    )
    seconds: float | None = option(None, "start no new trial after this many seconds", above=0)
    seeds: int = option(1, "chains per trial; the score is their mean NLL", at_least=1)
    chain_epochs: int = option(
        1000, f"epochs of such a chain, a multiple of {SAMPLES}", at_least=SAMPLES
    )
    num: int = option(10, "experts to train if none are given", at_least=1)
    epochs: int = option(20, "epochs per expert", at_least=1)

    def check(self) -> None:
        """A chain has as many samples, however long it is."""
        if self.chain_epochs % SAMPLES:
            raise UserError(
                f"`chain_epochs` is {self.chain_epochs}: give a multiple of {SAMPLES}.",
                "chain_epochs",
            )


def trains_experts(
    stores: Sequence[ExpertStore], method: Method, how: TuneOptions, nets: Sequence[NetLike]
) -> bool:
    """Whether experts are trained first; refuses what would have no effect.

    Args:
        stores: the experts that were given
        method: the method
        how: how long the search is
        nets: the networks that were given
    """
    if not stores and method.needs_experts:
        if len(nets) > 1:
            raise UserError(
                f"`net` was given {len(nets)} times, and experts are trained of one network: give "
                "`experts` of each.",
                "net",
            )
        return True
    for name in ("num", "epochs"):
        if name in how.given:
            raise UserError(
                f"`{name}` has no effect where no experts are trained: leave it out.", name
            )
    return False


def first_job(
    data: Data,
    stores: Sequence[ExpertStore],
    method: Method,
    options: DistillOptions,
    recipe: str,
) -> Job:
    """The first trial's job, which may have no experts yet.

    Args:
        data: the data set
        stores: the experts, if there are any yet
        method: the method
        options: what was given
        recipe: what the search begins with
    """
    given = {name: getattr(options, name) for name in options.given}
    if data.task == "regression" and not stores:  # whose noise is not known yet
        given = {"target_noise": 1.0, **given}
    job = resolve(data, stores, method, DistillOptions(**given), recipe)
    return replace(job, options=replace(job.options, steps=trial_steps(job, options)))


def trial_steps(job: Job, options: DistillOptions) -> int:
    """The updates of a trial: as many as were given, or the recipe's, if they are few.

    Args:
        job: what `distill` would do
        options: what was given
    """
    given = "steps" in options.given
    return job.options.steps if given else min(job.options.steps, FEW_UPDATES)
