"""What each command does, and what it tells the person."""

import sys
import time
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pseudocoreset import foreign
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import ImageData, load_data
from pseudocoreset.describe import describe
from pseudocoreset.distill import distill as make_coreset
from pseudocoreset.engine.device import choose_device
from pseudocoreset.engine.files import write_json, write_text
from pseudocoreset.engine.progress import SILENT, Progress, Task
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import evaluate as evaluate_coreset
from pseudocoreset.evaluation.own_images import predict_files
from pseudocoreset.experts import ExpertSettings, ExpertStore, train_experts
from pseudocoreset.measure import seconds_to_start
from pseudocoreset.nets import make_net
from pseudocoreset.options import CommonOptions, DataOptions, as_list, pick
from pseudocoreset.plan import Plan, plan_distill, plan_evaluate, plan_experts
from pseudocoreset.posterior import Posterior, Protocol, named_protocol, sample_posterior
from pseudocoreset.quickstart import quickstart as run_quickstart
from pseudocoreset.report import RunReport, print_scores, read_run, write_report
from pseudocoreset.report.console import RichProgress
from pseudocoreset.report.tensorboard import Curves, require_tensorboard, write_tensorboard
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import PICTURES, Scope, chosen_cells, chosen_names
from pseudocoreset.reproduce.measure_cell import ReproduceSettings, Work
from pseudocoreset.reproduce.page import markdown_of, rendered
from pseudocoreset.reproduce.pictures import draw_pictures
from pseudocoreset.reproduce.run import listing, measure_missing
from pseudocoreset.settings import DistillSettings

NET = "convnet"
"""Of experts, where none is given."""


def quickstart(given: Namespace) -> None:
    """Run the whole job on digits."""
    out = Path(given.out)
    runs = run_quickstart(out, seed=given.seed, device=given.device, progress=_progress(given))
    print_scores(runs)
    print(f"The page to open: {(out / 'report.html').resolve()}")


def experts(given: Namespace) -> None:
    """Train experts, or import them."""
    data = _load(given)
    settings = pick(ExpertSettings, given)
    out = Path(given.out)
    if given.from_replay is not None:
        store = foreign.import_replay_buffers(
            Path(given.from_replay), data, _one_net(given) or NET, out, settings, given.seed
        )
    else:
        common = pick(CommonOptions, given)
        store = train_experts(
            data,
            _one_net(given) or NET,
            out,
            settings,
            seed=common.seed,
            device=common.device,
            progress=_progress(given),
        )
    if not given.quiet:
        print(describe(str(store.path)))


def distill(given: Namespace) -> None:
    """Make a coreset, and its page."""
    data = _load(given)
    stores, nets = _stores_and_nets(given, data)
    out = Path(given.out)
    progress = _progress(given)
    if given.tensorboard:
        require_tensorboard()
        progress = Curves(out, progress)
    coreset = make_coreset(
        data,
        stores,
        pick(DistillSettings, given),
        net=nets or None,
        out=out,
        seed=given.seed,
        device=given.device,
        progress=progress,
    )
    if given.tensorboard:  # of a run that was finished before, too
        write_tensorboard(out)
    write_report(out / "report.html", f"Pseudocoreset of {data.name}", [read_run(out)])
    if not given.quiet:
        print(f"{out / 'coreset.safetensors'}: {len(coreset)} images, {coreset.ipc} a class")
        print(f"The page to open: {(out / 'report.html').resolve()}")


def _tells(given: Namespace) -> bool:
    """Whether figures are printed: always where no file takes them."""
    return given.json is None or not given.quiet


def evaluate(given: Namespace) -> None:
    """Score a coreset, on each of the networks that are given, or on its own."""
    data = _load(given)
    path = Path(given.coreset)
    nets: list[str | None] = [*as_list(given.net)]
    found = []
    for net in nets or [None]:
        evaluation = evaluate_coreset(
            foreign.read_coreset(path, data, net),
            data,
            net,
            _protocol(given),
            seeds=given.seeds,
            first_seed=given.seed,
            split=given.split,
            device=given.device,
            progress=_progress(given),
        )
        found.append(evaluation.as_json())
    if given.json is not None:
        write_json(Path(given.json), found[0] if len(found) == 1 else found)
    run = path.parent
    if _is_of_a_run(path) and given.net is None:  # its page shows the scores of its own network
        write_json(run / "evaluation.json", found[0])
        write_report(run / "report.html", f"Pseudocoreset of {data.name}", [read_run(run)])
    if _tells(given):
        for content in found:
            print(content["protocol"]["net"])
            for name in ("accuracy", "nll", "nll_kim", "ece", "brier", "disagreement"):
                spread = f" ± {content[name + '_std']:.4f}" if given.seeds > 1 else ""
                print(f"{name:14}{content[name]:.4f}{spread}")
        made_for = found[0]["coreset"]["config"].get("nets", [])
        if given.net is None and len(made_for) > 1:
            others = " ".join(f"--net {net}" for net in made_for)
            print(f"It was made for {len(made_for)} networks; to score it on each: {others}")


def _is_of_a_run(coreset: Path) -> bool:
    return coreset.name == "coreset.safetensors" and (coreset.parent / "config.yaml").exists()


def sample(given: Namespace) -> None:
    """Store samples of a posterior."""
    posterior = sample_posterior(
        Pseudocoreset.load(given.coreset),
        _one_net(given),
        _protocol(given),
        seed=given.seed,
        device=given.device,
        progress=_progress(given),
    )
    posterior.save(given.out)
    if not given.quiet:
        print(f"{given.out}: {len(posterior)} samples of {posterior.net}")


def predict(given: Namespace) -> None:
    """Predict a person's own images."""
    predictions = predict_files(
        Posterior.load(given.posterior), [Path(name) for name in given.images], given.device
    )
    if given.json is not None:
        write_json(Path(given.json), predictions)
    if not _tells(given):
        return
    for row in predictions:
        best = sorted(row["probabilities"].items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{name} {share:.1%}" for name, share in best)
        print(
            f"{row['image']}: {shown}; entropy {row['entropy']:.3f} nats, of which "
            f"{row['mutual_information']:.3f} from the samples' disagreement"
        )


def report(given: Namespace) -> None:
    """Write a run's page again."""
    folder = Path(given.run)
    run = read_run(folder)
    page = folder / "report.html"
    write_report(page, f"Pseudocoreset of {run.config.get('data', '?')}", [run])
    if not given.quiet:
        print(page.resolve())


def info(given: Namespace) -> None:
    """Say what something is."""
    print(describe(given.what, given.image_size))


def reproduce(given: Namespace) -> None:
    """Measure what is missing of the paper's tables, and render what there is."""
    names = chosen_names(given.names)
    out = Path(given.out)
    data = (given.data or paper.DATA).partition(":")[0]
    if given.holdout < 0:
        raise UserError(f"--holdout {given.holdout} is negative: give 0 or more images.")
    scope = Scope(data, given.holdout, given.image_size)
    if given.list:
        print(listing(names, out, scope))
        return
    settings = pick(ReproduceSettings, given)
    settings.check()
    if given.cells is not None and given.data is None:
        raise UserError("--cells are measured: give --data with them, or leave them out.")
    cells = chosen_cells(names, settings.recipe, scope.data, given.cells)
    say = (lambda *_: None) if given.quiet else print
    if given.data is not None:
        folder = Path(given.work) if given.work is not None else out.parent / "reproduce-work"
        common = pick(CommonOptions, given)
        place = folder / scope.label
        work = Work(
            _load(given), scope, place, settings, common.seed, common.device, _progress(given)
        )
        for line in measure_missing(cells, work, out, given.keep_coresets):
            say(line)
    else:
        say("Nothing is measured without --data; this is what there is.")
    if PICTURES in names:
        for line in draw_pictures(out, scope):
            say(line)
    for path, text in rendered(out).items():
        write_text(path, text)
        say(f"{path}: written")
    for name in names:
        if name != PICTURES:
            say(f"\n{markdown_of(name, out, scope)}")


def plan(given: Namespace) -> None:
    """Say what a command would take."""
    begun = time.perf_counter()
    options = getattr(given, given.command)
    data = _load(options)
    loaded_s = time.perf_counter() - begun
    if not options.quiet:
        print(f"pseudocoreset: measuring a few steps of {given.command} ...", file=sys.stderr)
    planned = _PLANS[given.command](options, data)
    started_s = seconds_to_start(choose_device(options.device))
    planned = replace(planned, once_s=planned.once_s + started_s + loaded_s)
    if options.json is not None:
        write_json(Path(options.json), planned.as_json())
    if _tells(options):
        print(planned.in_words())


def _random_coreset(data: ImageData, ipc: int, net: str | None = None) -> Pseudocoreset:
    settings = DistillSettings(method="random", ipc=ipc)
    return make_coreset(data, settings=settings, net=net, device="cpu")


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


def _plan_experts(given: Namespace, data: ImageData) -> Plan:
    if given.from_replay is not None:
        raise UserError("--from-replay trains nothing that could be planned: leave it out.")
    net = _one_net(given) or NET
    return plan_experts(data, net, pick(ExpertSettings, given), device=given.device)


def _plan_distill(given: Namespace, data: ImageData) -> Plan:
    stores, nets = _stores_and_nets(given, data)
    settings = pick(DistillSettings, given)
    planned = plan_distill(data, stores, settings, nets=nets, device=given.device)
    return _with_page(planned, _random_coreset(data, settings.ipc))


def _plan_evaluate(given: Namespace, data: ImageData) -> Plan:
    nets: list[str | None] = [*as_list(given.net)]
    plans = []
    for net in nets or [None]:
        if given.coreset is None:
            coreset = _random_coreset(data, given.ipc, net)
        else:
            coreset = foreign.read_coreset(Path(given.coreset), data, net)
        planned = plan_evaluate(
            coreset,
            data,
            net,
            _protocol(given),
            seeds=given.seeds,
            split=given.split,
            device=given.device,
        )
        plans.append(planned)
    whole = reduce(Plan.then, plans)
    if given.coreset is None:  # still to be made: it will be a run's
        ends_with_page = len(plans) == 1
    else:
        ends_with_page = not nets and _is_of_a_run(Path(given.coreset))
    return _with_page(whole, coreset) if ends_with_page else whole


_PLANS = {"experts": _plan_experts, "distill": _plan_distill, "evaluate": _plan_evaluate}


def _load(given: Namespace) -> ImageData:
    """The data, with a bar for each folder of image files that is decoded."""
    options = pick(DataOptions, given)
    progress = _progress(given)
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


def _progress(given: Namespace) -> Progress:
    return SILENT if given.quiet else RichProgress()


def _protocol(given: Namespace) -> Protocol:
    changes: dict[str, Any] = {f.name: getattr(given, f.name) for f in fields(Protocol)}
    return named_protocol(given.protocol, **changes)


def _one_net(given: Namespace) -> str | None:
    nets = as_list(given.net)
    if len(nets) > 1:
        raise UserError(
            f"--net was given {len(nets)} times ({', '.join(nets)}) and this command takes one "
            "network: run it once for each."
        )
    return nets[0] if nets else None


def _stores_and_nets(given: Namespace, data: ImageData) -> tuple[list[ExpertStore], list[str]]:
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
