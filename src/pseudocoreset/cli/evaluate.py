"""`evaluate`: score a coreset or a posterior."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.shared import (
    CommonOptions,
    DataOptions,
    JsonOptions,
    NetOptions,
    ScaleOptions,
    add_common,
    add_sampling,
    executor_for,
    load,
    nets_of,
    one_net,
    prints_figures,
    progress_for,
    refuse_sampling,
    run_of,
    sampler_of,
    weight_of,
)
from pseudocoreset.cli.shifts import ShiftOptions, shift_lines, shifts_of
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.distillation import distill
from pseudocoreset.engine.files import (
    open_tensors,
    refuse_unwritable,
    refuse_unwritable_file,
    write_json,
)
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import SHOWN, Evaluation, evaluate
from pseudocoreset.evaluation.points import points_to_score, same_data
from pseudocoreset.gallery import coreset_path
from pseudocoreset.interop import read_coreset
from pseudocoreset.likelihoods import Gaussian
from pseudocoreset.nets import make_net
from pseudocoreset.posterior import Posterior
from pseudocoreset.posterior.posterior import KIND as POSTERIOR
from pseudocoreset.report import keep_data_options, keep_evaluation, read_run, write_report
from pseudocoreset.report.run_report import listed, mapping
from pseudocoreset.scale import Executor

_Found = list[tuple[Evaluation, Evaluation | None]]


@dataclass(frozen=True)
class EvaluateOptions(Options):
    """Options of `evaluate`."""

    seeds: int = option(5, "number of posteriors to sample, each with its own seed", at_least=1)
    chains: int = option(1, "chains of each posterior", at_least=1)
    split: str = option("test", "points to score on", choices=("test", "holdout"))
    predictive_temperature: float | None = option(
        None,
        "also score the pooled samples at this predictive temperature; take it from "
        "`pooled_temperature` in the JSON of an evaluation on held-out points",
        above=0,
    )
    other_data: bool = option(False, "allow data that the coreset was not made from")
    random: bool = option(
        False, "also score the same number of random training points, for comparison"
    )


def configure(parser: Parser, words: list[str]) -> None:
    """Define the options of the command."""
    parser.positional(
        "coreset",
        "a coreset, a posterior, the folder of a run, or one that came with the package "
        "(gallery:cifar10-10); or a set made elsewhere: an .npz, or a "
        "folder with images_best.pt (floats are taken to be normalised already)",
    )
    add_shared(parser, words)
    parser.add(ScaleOptions)
    parser.add(ShiftOptions, "corrupted images and other data")


def add_shared(parser: Parser, words: list[str]) -> None:
    """Options that `plan evaluate` has too."""
    parser.add(DataOptions)
    parser.add(EvaluateOptions)
    parser.add(NetOptions, default="the coreset's own")
    parser.add(JsonOptions)
    add_common(parser)
    add_sampling(parser, words)


def is_posterior(path: Path) -> bool:
    """Whether a file holds a posterior."""
    if not path.is_file():
        return False
    try:
        with open_tensors(path) as (_, metadata):
            return metadata.get("kind") == POSTERIOR
    except UserError:
        if path.suffix == ".safetensors":
            raise
        return False


def run(arguments: Arguments) -> None:
    """Score a coreset, on each of the networks that are given, or on its own."""
    path, json = coreset_path(arguments.text("coreset")), arguments.pick(JsonOptions).json
    refuse_unwritable_file(json, path)
    folder = run_of(path) if not arguments.has("net") else None
    if folder is not None:  # its page shows the scores of its own network
        refuse_unwritable(folder)
    data, shifts = load(arguments), shifts_of(arguments)
    if is_posterior(path):
        found: _Found = [(_scored_posterior(arguments, path, data, shifts), None)]
    else:
        found = _scored_coreset(arguments, path, data, shifts)
    contents = [_contents(*both) for both in found]
    if prints_figures(arguments):  # before anything can fail to be written
        for evaluation, random in found:
            _print(evaluation, random)
        said = (found[0][0].convergence or {}).get("warning")
        if said:
            print(said)
        made_for = listed(mapping(contents[0]["coreset"].get("config")).get("nets"))
        if not arguments.has("net") and len(made_for) > 1:
            others = " ".join(f"--net {quote(printable(net))}" for net in made_for)
            print(
                f"The coreset was made for {len(made_for)} networks. To score it on each, add: "
                f"{others}"
            )
    if json is not None:
        write_json(Path(json), contents[0] if len(contents) == 1 else contents)
    if folder is not None:
        coreset, split = read_coreset(path, data), arguments.pick(EvaluateOptions).split
        if same_data(coreset, data, split):  # the page is of the run's own data
            keep_evaluation(folder, contents[0], points_to_score(coreset, data, split))
            keep_data_options(folder, vars(arguments.pick(DataOptions)))
            title = f"Pseudocoreset of {data.name}"
            write_report(folder / "report.html", title, [read_run(folder)])


def _scored_posterior(
    arguments: Arguments, path: Path, data: Data, shifts: dict[str, Any]
) -> Evaluation:
    common, options = arguments.pick(CommonOptions), arguments.pick(EvaluateOptions)
    refuse_sampling(arguments, "on a posterior, which is already sampled", "seeds", "random")
    posterior = Posterior.load(path, net=one_net(arguments), trust_code=common.trust_code)
    return evaluate(
        posterior,
        data,
        split=options.split,
        predictive_temperature=options.predictive_temperature,
        other_data=options.other_data,
        **shifts,
        device=common.device,
        progress=progress_for(arguments),
    )


def _scored_coreset(arguments: Arguments, path: Path, data: Data, shifts: dict[str, Any]) -> _Found:
    """Scores on each network, and those of random points if requested."""
    common, options = arguments.pick(CommonOptions), arguments.pick(EvaluateOptions)
    nets: list[str | None] = [*nets_of(arguments, data)] or [None]
    for net in nets:  # refuse any before the work on the first
        if net is not None:
            make_net(net, **data.shape)
    executor = executor_for(arguments)
    found = []
    for net in nets:
        coreset = read_coreset(path, data, net, trust_code=common.trust_code)
        points_to_score(coreset, data, options.split, other_data=options.other_data)
        points = random_points(coreset, data, net, common.seed) if options.random else None
        content = _scored(arguments, coreset, data, net, executor, shifts)
        random = None if points is None else _scored(arguments, points, data, net, executor, {})
        found.append((content, random))
    return found


def _scored(
    arguments: Arguments,
    coreset: Pseudocoreset,
    data: Data,
    net: str | None,
    executor: Executor | None,
    shifts: dict[str, Any],
) -> Evaluation:
    """Scores by the options that were given; the caller checks that the data fit."""
    common, options = arguments.pick(CommonOptions), arguments.pick(EvaluateOptions)
    return evaluate(
        coreset,
        data,
        sampler_of(arguments),
        net=net,
        seeds=options.seeds,
        first_seed=common.seed,
        chains=options.chains,
        weight=weight_of(arguments, coreset),
        split=options.split,
        predictive_temperature=options.predictive_temperature,
        other_data=True,
        **shifts,
        device=common.device,
        executor=executor,
        progress=progress_for(arguments),
    )


def random_points(coreset: Pseudocoreset, data: Data, net: str | None, seed: int) -> Pseudocoreset:
    """Random training points, as many as a coreset stores."""
    if coreset.class_names and len(coreset) % len(coreset.class_names):
        raise UserError(
            f"`random` draws the same number of points of each class, and the coreset has "
            f"{len(coreset)} points for {len(coreset.class_names)} classes: leave it out.",
            "random",
        )
    noise = coreset.likelihood.noise if isinstance(coreset.likelihood, Gaussian) else None
    return distill(
        data,
        (),
        "random",
        ipc=coreset.ipc,
        target_noise=noise,
        dsa=coreset.dsa or None,
        net=net or coreset.provenance.net,
        seed=seed,
        progress=False,
    )


def _contents(evaluation: Evaluation, random: Evaluation | None) -> dict[str, Any]:
    """The content of the JSON file. Scores of random points are under `random`."""
    content = evaluation.as_json()
    if random is not None:
        kept = ("seeds", "pooled", "protocol", "coreset")
        names = [name for mean in random.names for name in (mean, f"{mean}_std")]
        found = random.as_json()
        content["random"] = {name: found[name] for name in (*names, *kept)}
    return content


def _print(evaluation: Evaluation, random: Evaluation | None) -> None:
    content: dict[str, Any] = evaluation.as_json()
    several = len(evaluation.seeds) > 1
    print(printable(content["protocol"]["net"]))
    for name in evaluation.names:
        spread = f" ± {content[name + '_std']:.4f}" if several else ""
        print(f"{name:18}{content[name]:.4f}{spread}")
    lines = {"one network": evaluation.single}
    if several:
        lines["pooled"] = evaluation.pooled
    at = evaluation.pooled_calibrated
    if at:
        lines[f"pooled at T {at['temperature']:.3g}"] = at
    for title, found in lines.items():
        parts = [f"{name} {found[name]:.4f}" for name in SHOWN if name in found]
        print(f"{title:17} {', '.join(parts)}")
    signs = evaluation.convergence
    if signs is not None:
        hats, worth = signs["r_hat"], signs["effective_size"]["median"]
        print(
            f"{'R̂ of predictions':17} {hats['median']:.2f} median, above 1.1 for "
            f"{hats['share_above_1.1']:.0%} of them ({hats['share_by_chance']:.0%} by chance); "
            f"{signs['chains']} chains of "
            f"{signs['draws']} draws are worth {worth:.0f} independent ones"
        )
    if random is not None:
        print(f"{'random points':17} {random}")
    for line in shift_lines(evaluation):
        print(line)
