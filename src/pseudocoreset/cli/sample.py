"""`sample`: store samples of a coreset's posterior."""

from dataclasses import dataclass

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.shared import (
    CommonOptions,
    NetOptions,
    ScaleOptions,
    add_common,
    add_sampling,
    executor_for,
    one_net,
    progress_for,
    sampler_of,
    weight_of,
)
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.files import refuse_unwritable_file
from pseudocoreset.engine.options import Options, option
from pseudocoreset.errors import UserError
from pseudocoreset.gallery import coreset_path
from pseudocoreset.posterior import sample
from pseudocoreset.posterior.sample import CHAINS


@dataclass(frozen=True)
class _Options(Options):
    out: str = option("", "the .safetensors file to write")
    chains: int = option(CHAINS, "number of chains; their samples are pooled", at_least=1)
    half: bool = option(False, "store weights in half precision")


def configure(parser: Parser, words: list[str]) -> None:
    """Define the options of the command."""
    parser.positional("coreset", "a coreset, the folder of a run, or gallery:NAME-IPC")
    parser.add(_Options)
    parser.add(NetOptions, default="the coreset's own")
    parser.add(ScaleOptions)
    add_common(parser)
    add_sampling(parser, words)


def run(arguments: Arguments) -> None:
    """Store samples of a posterior."""
    own, common = arguments.pick(_Options), arguments.pick(CommonOptions)
    path = coreset_path(arguments.text("coreset"))
    if not own.out:
        raise UserError("`out` must be given: the file to write.", "out")
    refuse_unwritable_file(own.out, path)
    coreset = Pseudocoreset.load(path, trust_code=common.trust_code)
    posterior = sample(
        coreset,
        sampler_of(arguments),
        chains=own.chains,
        weight=weight_of(arguments, coreset),
        net=one_net(arguments),
        seed=common.seed,
        device=common.device,
        executor=executor_for(arguments),
        progress=progress_for(arguments),
    )
    posterior.save(own.out, half=own.half)
    if not common.quiet:
        print(f"{own.out}: {posterior}")
