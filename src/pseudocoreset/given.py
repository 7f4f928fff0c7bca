"""What a person's options name: data, networks, experts, a protocol, and how much is told."""

from argparse import Namespace
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from pseudocoreset.data import ImageData, load_data
from pseudocoreset.engine.progress import SILENT, Progress, Task
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import make_net
from pseudocoreset.options import DataOptions, as_list, pick
from pseudocoreset.posterior import Protocol, named_protocol
from pseudocoreset.report.console import RichProgress


def load(given: Namespace) -> ImageData:
    """The data, with a bar for each folder of image files that is decoded."""
    options = pick(DataOptions, given)
    progress = progress_of(given)
    shown: dict[str, tuple[Task, int]] = {}
    with ExitStack() as stack:

        def show(done: int, total: int, what: str) -> None:
            if what not in shown:
                shown[what] = (stack.enter_context(progress.task(what, total)), 0)
            task, before = shown[what]
            for _ in range(done - before):
                task.advance()
            shown[what] = (task, done)

        data = load_data(options.data, options.image_size, show)
    return data.hold_out(options.holdout)


def progress_of(given: Namespace) -> Progress:
    """Bars, unless all is to be quiet."""
    return SILENT if given.quiet else RichProgress()


def protocol_of(given: Namespace) -> Protocol:
    """The protocol of this name, with what was given besides."""
    changes: dict[str, Any] = {f.name: getattr(given, f.name) for f in fields(Protocol)}
    return named_protocol(given.protocol, **changes)


def scored_nets(given: Namespace) -> list[str | None]:
    """The networks to score a coreset on; None is its own."""
    return [*as_list(given.net)] or [None]


def one_net(given: Namespace) -> str | None:
    """The network of a command that takes one at most."""
    nets = as_list(given.net)
    if len(nets) > 1:
        raise UserError(
            f"--net was given {len(nets)} times ({', '.join(nets)}) and this command takes one "
            "network: run it once for each."
        )
    return nets[0] if nets else None


def stores_and_nets(given: Namespace, data: ImageData) -> tuple[list[ExpertStore], list[str]]:
    """The experts, with their own networks; or the networks alone."""
    stores = [ExpertStore.open(path) for path in as_list(given.experts)]
    nets = as_list(given.net)
    return (_match(stores, nets, data), []) if stores and nets else (stores, nets)


def _match(stores: list[ExpertStore], nets: list[str], data: ImageData) -> list[ExpertStore]:
    """The store of each network that was named, in that order; none may be left over."""
    by_net = {store.identity.net: store for store in stores}
    chosen = []
    for net in nets:
        spec = make_net(net, **data.shape).spec
        if spec not in by_net:
            held = ", ".join(f"{store.path} holds {spec}" for spec, store in by_net.items())
            raise UserError(f"no --experts holds experts of {spec} ({held}): give one that does.")
        chosen.append(by_net[spec])
    over = [str(store.path) for store in stores if store not in chosen]
    if over:
        raise UserError(
            f"no --net is left for the experts in {', '.join(over)}: give as many --net as "
            "--experts, each network once."
        )
    return chosen


def tells_figures(given: Namespace) -> bool:
    """Whether figures are printed: always where no file takes them."""
    return given.json is None or not given.quiet


def is_of_a_run(coreset: Path) -> bool:
    """Whether a coreset's file lies in the folder of the run that made it."""
    return coreset.name == "coreset.safetensors" and (coreset.parent / "config.yaml").exists()
