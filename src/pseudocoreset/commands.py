"""What each command does, and what it tells the person."""

from argparse import Namespace
from pathlib import Path

from pseudocoreset import foreign
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.describe import describe
from pseudocoreset.distill import distill as make_coreset
from pseudocoreset.engine.files import (
    refuse_unwritable,
    refuse_unwritable_file,
    write_json,
    write_text,
)
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import evaluate as evaluate_coreset
from pseudocoreset.evaluation.own_images import predict_files
from pseudocoreset.experts import ExpertSettings, train_experts
from pseudocoreset.given import (
    is_of_a_run,
    load,
    one_net,
    progress_of,
    protocol_of,
    scored_nets,
    stores_and_nets,
    tells_figures,
)
from pseudocoreset.nets import DEFAULT_NET, make_net
from pseudocoreset.options import CommonOptions, pick
from pseudocoreset.plan_command import plan as plan
from pseudocoreset.posterior import Posterior, sample_posterior
from pseudocoreset.quickstart import quickstart as run_quickstart
from pseudocoreset.report import print_scores, read_run, write_report
from pseudocoreset.report.tensorboard import Curves, require_tensorboard, write_tensorboard
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import PICTURES, Scope, chosen_cells, chosen_names
from pseudocoreset.reproduce.measure_cell import ReproduceSettings, Work
from pseudocoreset.reproduce.page import markdown_of, rendered, scopes
from pseudocoreset.reproduce.pictures import draw_chart, draw_pictures
from pseudocoreset.reproduce.run import listing, measure_missing
from pseudocoreset.settings import DistillSettings


def quickstart(given: Namespace) -> None:
    """Run the whole job on digits."""
    out = Path(given.out)
    runs = run_quickstart(out, seed=given.seed, device=given.device, progress=progress_of(given))
    print_scores(runs)
    print(f"The page to open: {(out / 'report.html').resolve()}")


def experts(given: Namespace) -> None:
    """Train experts, or import them."""
    data = load(given)
    settings = pick(ExpertSettings, given)
    out = Path(given.out)
    if given.from_replay is not None:
        store = foreign.import_replay_buffers(
            Path(given.from_replay), data, one_net(given) or DEFAULT_NET, out, settings, given.seed
        )
    else:
        common = pick(CommonOptions, given)
        store = train_experts(
            data,
            one_net(given) or DEFAULT_NET,
            out,
            settings,
            seed=common.seed,
            device=common.device,
            progress=progress_of(given),
        )
    if not given.quiet:
        print(describe(str(store.path)))


def distill(given: Namespace) -> None:
    """Make a coreset, and its page."""
    data = load(given)
    stores, nets = stores_and_nets(given, data)
    out = Path(given.out)
    progress = progress_of(given)
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


def evaluate(given: Namespace) -> None:
    """Score a coreset, on each of the networks that are given, or on its own."""
    refuse_unwritable_file(given.json, given.coreset)
    path = Path(given.coreset)
    run = path.parent if is_of_a_run(path) and given.net is None else None
    if run is not None:  # its page shows the scores of its own network
        refuse_unwritable(run)
    data = load(given)
    nets = scored_nets(given)
    for net in nets:  # refuse any before the work on the first
        if net is not None:
            make_net(net, **data.shape)
    found = []
    for net in nets:
        evaluation = evaluate_coreset(
            foreign.read_coreset(path, data, net),
            data,
            net,
            protocol_of(given),
            seeds=given.seeds,
            first_seed=given.seed,
            split=given.split,
            device=given.device,
            progress=progress_of(given),
        )
        found.append(evaluation.as_json())
    if tells_figures(given):  # before anything can fail to be written
        for content in found:
            print(content["protocol"]["net"])
            for name in ("accuracy", "nll", "nll_kim", "ece", "brier", "disagreement"):
                spread = f" ± {content[name + '_std']:.4f}" if given.seeds > 1 else ""
                print(f"{name:14}{content[name]:.4f}{spread}")
        made_for = found[0]["coreset"]["config"].get("nets", [])
        if given.net is None and len(made_for) > 1:
            others = " ".join(f"--net {net}" for net in made_for)
            print(f"It was made for {len(made_for)} networks; to score it on each: {others}")
    if given.json is not None:
        write_json(Path(given.json), found[0] if len(found) == 1 else found)
    if run is not None:
        write_json(run / "evaluation.json", found[0])
        write_report(run / "report.html", f"Pseudocoreset of {data.name}", [read_run(run)])


def sample(given: Namespace) -> None:
    """Store samples of a posterior."""
    refuse_unwritable_file(given.out, given.coreset)
    posterior = sample_posterior(
        Pseudocoreset.load(given.coreset),
        one_net(given),
        protocol_of(given),
        seed=given.seed,
        device=given.device,
        progress=progress_of(given),
    )
    posterior.save(given.out)
    if not given.quiet:
        print(f"{given.out}: {len(posterior)} samples of {posterior.net}")


def predict(given: Namespace) -> None:
    """Predict a person's own images."""
    refuse_unwritable_file(given.json, given.posterior, *given.images)
    predictions = predict_files(
        Posterior.load(given.posterior), [Path(name) for name in given.images], given.device
    )
    if given.json is not None:
        write_json(Path(given.json), predictions)
    if not tells_figures(given):
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
    settings = pick(ReproduceSettings, given)
    settings.check()
    if given.list:
        if given.cells is not None:
            raise UserError("--list lists all cells: leave --cells out.")
        print(listing(names, out, scope))
        return
    if given.cells is not None and given.data is None:
        raise UserError("--cells are measured: give --data with them, or leave them out.")
    cells = chosen_cells(names, settings.recipe, scope.data, given.cells)
    say = (lambda *_: None) if given.quiet else print
    refuse_unwritable(out)
    if given.data is not None:
        folder = Path(given.work) if given.work is not None else out.parent / "reproduce-work"
        refuse_unwritable(folder)
        common = pick(CommonOptions, given)
        place = folder / scope.label
        work = Work(
            load(given), scope, place, settings, common.seed, common.device, progress_of(given)
        )
        for line in measure_missing(cells, work, out, given.keep_coresets):
            say(line)
    else:
        say("Nothing is measured without --data; this is what there is.")
    if PICTURES in names:
        for line in draw_pictures(out, scope):
            say(line)
    for of_results in scopes(out):
        draw_chart(out, of_results)
    for path, text in rendered(out).items():
        write_text(path, text)
        say(f"{path}: written")
    for name in names:
        if name != PICTURES:
            say(f"\n{markdown_of(name, out, scope)}")
