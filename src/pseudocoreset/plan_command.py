"""The command `plan`: what another command with the same options would take."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory

from pseudocoreset import foreign
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import ImageData
from pseudocoreset.distill import distill
from pseudocoreset.divergences import factory_of
from pseudocoreset.engine.device import choose_device
from pseudocoreset.engine.files import refuse_unwritable_file, write_json
from pseudocoreset.engine.loop import compiled_anew
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import images_to_score
from pseudocoreset.experts import ExpertSettings
from pseudocoreset.given import (
    is_of_a_run,
    load,
    one_net,
    protocol_of,
    scored_nets,
    stores_and_nets,
    tells_figures,
)
from pseudocoreset.measure import seconds_to_start
from pseudocoreset.nets import DEFAULT_NET
from pseudocoreset.options import pick
from pseudocoreset.plan import plan_distill, plan_evaluate, plan_experts
from pseudocoreset.planned import Plan
from pseudocoreset.report import RunReport, write_report
from pseudocoreset.settings import DistillSettings

COMPILED = (
    "once: kernels were compiled, which the command will find done now; plan again for its own time"
)


def plan(given: Namespace) -> None:
    """Say what a command would take."""
    options = getattr(given, given.command)
    refuse_unwritable_file(options.json)
    begun = time.perf_counter()
    data = load(options)
    loaded_s = time.perf_counter() - begun
    measure = _PLANS[given.command](options, data)  # which refuses what the command would
    if not options.quiet:
        print(f"pseudocoreset: measuring a few steps of {given.command} ...", file=sys.stderr)
    planned = measure()
    started_s = seconds_to_start(choose_device(options.device))
    notes = [*planned.notes, COMPILED] if compiled_anew() else planned.notes
    planned = replace(planned, once_s=planned.once_s + started_s + loaded_s, notes=notes)
    if options.json is not None:
        write_json(Path(options.json), planned.as_json())
    if tells_figures(options):
        print(planned.in_words())


def _random_coreset(data: ImageData, ipc: int, net: str | None = None) -> Pseudocoreset:
    settings = DistillSettings(method="random", ipc=ipc)
    return distill(data, settings=settings, net=net, device="cpu")


def _with_page(planned: Plan, coreset: Pseudocoreset) -> Plan:
    """The plan of a command that ends with the page of a run of such a coreset."""
    return replace(planned, once_s=planned.once_s + _seconds_of_a_page(coreset))


def _seconds_of_a_page(coreset: Pseudocoreset) -> float:
    """The time of one with its images, curves of two updates and no scores."""
    curves = [{"update": number, "loss_x": 1.0, "loss_u": 1.0} for number in (1, 2)]
    begun = time.perf_counter()
    with TemporaryDirectory() as folder:
        write_report(Path(folder, "report.html"), "", [RunReport("", coreset, curves, {}, None)])
    return time.perf_counter() - begun


def _plan_experts(given: Namespace, data: ImageData) -> Callable[[], Plan]:
    if given.from_replay is not None:
        raise UserError("--from-replay trains nothing that could be planned: leave it out.")
    net, settings = one_net(given) or DEFAULT_NET, pick(ExpertSettings, given)
    settings.check()
    return partial(plan_experts, data, net, settings, device=given.device)


def _plan_distill(given: Namespace, data: ImageData) -> Callable[[], Plan]:
    stores, nets = stores_and_nets(given, data)
    settings = pick(DistillSettings, given)
    settings.resolved(data, stores)
    if settings.method != "random":
        factory_of(settings.method)

    def measure() -> Plan:
        planned = plan_distill(data, stores, settings, nets=nets, device=given.device)
        net = stores[0].identity.net if stores else next(iter(nets), None)
        return _with_page(planned, _random_coreset(data, settings.ipc, net))

    return measure


def _plan_evaluate(given: Namespace, data: ImageData) -> Callable[[], Plan]:
    protocol, nets = protocol_of(given), list(scored_nets(given))
    if given.coreset is None:
        coresets = [_random_coreset(data, given.ipc, net) for net in nets]
    else:
        coresets = [foreign.read_coreset(Path(given.coreset), data, net) for net in nets]
    for coreset in coresets:
        images_to_score(coreset, data, given.split, given.seeds)
    same = {"seeds": given.seeds, "split": given.split, "device": given.device}

    def measure() -> Plan:
        pairs = zip(coresets, nets, strict=True)
        plans = [plan_evaluate(one, data, net, protocol, **same) for one, net in pairs]
        whole = reduce(Plan.then, plans)
        if given.coreset is None:  # still to be made: it will be a run's
            ends_with_page = len(plans) == 1
        else:
            ends_with_page = given.net is None and is_of_a_run(Path(given.coreset))
        return _with_page(whole, coresets[-1]) if ends_with_page else whole

    return measure


_PLANS = {"experts": _plan_experts, "distill": _plan_distill, "evaluate": _plan_evaluate}
