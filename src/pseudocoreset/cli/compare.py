"""`compare`: compare the predictions of two posteriors."""

import warnings
from dataclasses import dataclass
from pathlib import Path

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.evaluate import is_posterior
from pseudocoreset.cli.shared import (
    CommonOptions,
    DataOptions,
    JsonOptions,
    NetOptions,
    add_common,
    add_sampling,
    load,
    one_net,
    prints_figures,
    progress_for,
    refuse_sampling,
    sampler_of,
    weight_of,
)
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.engine.files import refuse_unwritable_file, write_json
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.text import printable
from pseudocoreset.evaluation.compare import (
    FULL,
    Comparable,
    Comparison,
    compare,
    in_place_of_full,
)
from pseudocoreset.evaluation.evaluate import SHOWN
from pseudocoreset.evaluation.points import points_to_score
from pseudocoreset.gallery import coreset_path
from pseudocoreset.interop import read_coreset
from pseudocoreset.posterior import Posterior, sample
from pseudocoreset.posterior.sample import CHAINS


@dataclass(frozen=True)
class _Options(Options):
    chains: int = option(CHAINS, "chains per sampled posterior", at_least=1)
    split: str = option("test", "points to predict", choices=("test", "holdout"))
    other_data: bool = option(False, "allow data that the coreset was not made from")


def configure(parser: Parser, words: list[str]) -> None:
    """Define the options of the command."""
    parser.positional(
        "a",
        "a posterior, a coreset (also gallery:NAME-IPC), the folder of a run, or full for all "
        "training points; anything but a posterior is sampled first, a with --seed and b with the "
        "next seed",
    )
    parser.positional("b", "the same; kl is KL[a ‖ b]")
    parser.add(DataOptions)
    parser.add(_Options)
    parser.add(NetOptions, default="that of each coreset; of full, the other's")
    parser.add(JsonOptions)
    add_common(parser)
    add_sampling(parser, words)


def run(arguments: Arguments) -> None:
    """Sample what is not sampled yet, and compare."""
    own, common = arguments.pick(_Options), arguments.pick(CommonOptions)
    json, names = arguments.pick(JsonOptions).json, [arguments.text(name) for name in ("a", "b")]
    refuse_unwritable_file(json, *(name for name in names if name != FULL))
    data = load(arguments)
    first, second = (_read(arguments, name, data) for name in names)
    both = in_place_of_full(first, second, data, one_net(arguments))
    if all(isinstance(what, Posterior) for what in both):
        refuse_sampling(arguments, "on posteriors, which are already sampled")
    for what in both:  # refuse either before the work on the first
        points_to_score(what, data, own.split, other_data=own.other_data)
    a, b = (
        what
        if isinstance(what, Posterior)
        else sample(
            what,
            sampler_of(arguments),
            chains=own.chains,
            weight=1.0 if name == FULL else weight_of(arguments, what),
            net=one_net(arguments),
            seed=common.seed + number,
            device=common.device,
            progress=progress_for(arguments),
        )
        for number, (name, what) in enumerate(zip(names, both, strict=True))
    )
    _warn_of_other_settings(a, b)
    found = compare(
        a,
        b,
        data,
        split=own.split,
        other_data=True,  # checked above
        device=common.device,
        progress=progress_for(arguments),
    )
    if prints_figures(arguments):
        _print(found)
    if json is not None:
        write_json(Path(json), found.as_json())


def _read(arguments: Arguments, name: str, data: Data) -> Comparable:
    """A posterior, a coreset, or `full`."""
    if name == FULL:
        return FULL
    path, trust = coreset_path(name), arguments.flag("trust_code")
    if is_posterior(path):
        return Posterior.load(path, net=one_net(arguments), trust_code=trust)
    coreset: Pseudocoreset = read_coreset(path, data, one_net(arguments), trust_code=trust)
    return coreset


def _warn_of_other_settings(a: Posterior, b: Posterior) -> None:
    """Warn if the two were sampled differently, except for weights and chains."""
    may = ("weight", "class_weights", "chains")
    settings = [
        {k: v for k, v in each.details["protocol"].items() if k not in may} for each in (a, b)
    ]
    names = dict.fromkeys([*settings[0], *settings[1]])
    other = [
        f"{name} {printable(settings[0].get(name))} and {printable(settings[1].get(name))}"
        for name in names
        if settings[0].get(name) != settings[1].get(name)
    ]
    if other:
        warnings.warn(
            f"a and b were not sampled in the same way: {', '.join(other)}.",
            RuntimeWarning,
            stacklevel=2,
        )


def _print(found: Comparison) -> None:
    for name, value in found.figures.items():
        print(f"{name:20}{'unknown' if value is None else f'{value:.4f}'}")
    more = ("mutual_information", "between_chains")
    for name, of in (("a", found.a), ("b", found.b)):
        parts = [f"{k} {of[k]:.4f}" for k in (*SHOWN, *more) if of.get(k) is not None]
        print(f"{name}: {', '.join(parts)}")
