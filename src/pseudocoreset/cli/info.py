"""`info`: describe a data set, an expert store, a run, a search, a coreset or a posterior."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.shared import add_common
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data, load_data
from pseudocoreset.data.dataset import Task, check_task
from pseudocoreset.engine.files import open_tensors
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.experts.store import TRAJECTORY
from pseudocoreset.gallery import SPEC, gallery_path
from pseudocoreset.posterior import Posterior
from pseudocoreset.run_folder import missed_gamma, read_config, read_metrics

EMBEDDED = ("digits", "diabetes", "breast-cancer")


@dataclass(frozen=True)
class _Options(Options):
    image_size: int | None = option(
        None, "resize the images of a data set to this many pixels per side", at_least=1
    )
    target: str | None = option(None, "table column to predict; default: the last")
    task: str | None = option(
        None,
        "task of a table; default: from the target column",
        choices=("classification", "regression"),
    )


def configure(parser: Parser, words: list[str]) -> None:  # noqa: ARG001
    """Define the options of the command."""
    parser.positional("what", "a path, gallery:NAME-IPC, or a data spec such as cifar10:DIR")
    parser.add(_Options)
    add_common(parser)


def run(arguments: Arguments) -> None:
    """Print the description."""
    options = arguments.pick(_Options)
    task = None if options.task is None else check_task(options.task)
    print(describe(arguments.text("what"), options.image_size, options.target, task))


def describe(
    what: str,
    image_size: int | None = None,
    target: str | None = None,
    task: Task | None = None,
) -> str:
    """Describe a data spec, an expert store or trajectory, a run, a coreset or a posterior.

    Args:
        what: a path or a data spec
        image_size: resize a data set's images
        target: the column of a table to predict
        task: of a table
    """
    path = gallery_path(what) if what.startswith(SPEC) else Path(what)
    if (path / "index.json").exists():
        return describe_store(ExpertStore.open(path))
    if (path / "trials.json").exists():
        return _search(path)
    if (path / "config.yaml").exists():
        return _run(path)
    if path.is_file() and path.suffix == ".safetensors":
        return _tensors(path)
    if what in EMBEDDED or ":" in what:
        return _data(load_data(what, image_size, target=target, task=task))
    raise UserError(
        f"{what} is not an expert store, run, coreset, posterior or data spec: give the path of "
        "one, "
        "or a spec such as cifar10:DIR."
    )


def _lines(title: str, rows: dict[str, Any]) -> str:
    shown = {printable(name): _shown(value) for name, value in rows.items()}
    width = max(map(len, shown))
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in shown.items())])


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return "none" if value in (None, "") else printable(value)


def _data(data: Data) -> str:
    size = "×".join(map(str, data.input_shape))
    rows = {
        "training points": f"{len(data.train):,} of {size}",
        "test points": f"{len(data.test):,}",
    }
    if data.task == "classification":
        counts = data.train.class_counts(data.classes)
        more = ", …" if data.classes > 12 else ""
        rows["classes"] = f"{data.classes}: {', '.join(data.class_names[:12])}{more}"
        rows["points per class"] = f"{min(counts):,} to {max(counts):,}"
    else:
        rows["targets"] = f"{data.outputs}, numbers"
    if data.columns:
        rows["columns"] = ", ".join(column.name for column in data.columns)
    if data.is_image:
        rows["mean"] = ", ".join(map(str, data.scaling.mean))
        rows["std"] = ", ".join(map(str, data.scaling.std))
        rows["flips keep the class"] = "yes" if data.mirror else "no"
    rows["training digest"], rows["test digest"] = data.train_digest, data.test_digest
    return _lines(f"the data set {data.name}", rows)


def describe_store(store: ExpertStore) -> str:
    """Describe an expert store; nothing that it names is imported.

    Args:
        store: the store
    """
    figures = [store.describe(path) for path in store.trajectories]
    size = sum(path.stat().st_size for path in store.trajectories)
    rows: dict[str, Any] = {
        "trajectories": len(store),
        "epochs kept": f"{store.first_epoch} to {store.last_epoch}",
        "size": f"{size / 2**20:.1f} MiB",
    }
    for path in store.trajectories[:1]:
        with open_tensors(path, TRAJECTORY) as (tensors, _):
            rows["parameters"] = f"{tensors.get_slice('params').get_shape()[-1]:,}"
    for key, name in (("test_accuracy", "test accuracy"), ("test_rmse", "test RMSE, scaled")):
        known = [f[key] for f in figures if isinstance(f.get(key), float)]
        if known:
            mean = sum(known) / len(known)
            shown = f"{mean:.2%}" if key == "test_accuracy" else f"{mean:.4f}"
            rows[name] = f"{shown} after the last epoch"
    identity = store.identity.as_json()
    if not store.identity.image_size:  # a table
        features, outputs = (identity.pop(name) for name in ("channels", "classes"))
        del identity["image_size"]
        rows |= {"inputs": features, "outputs": outputs}
    return _lines(f"the expert store {store.path}", {**rows, **identity})


def _run(path: Path) -> str:
    metrics = read_metrics(path)
    missed = sum(map(missed_gamma, metrics))
    rows = {"updates done": len(metrics), "MAP bound hit": missed, **read_config(path)}
    return _lines(f"the run {path}", rows)


def _tensors(path: Path) -> str:
    with open_tensors(path) as (_, metadata):
        kind = metadata.get("kind")
        if kind == TRAJECTORY:
            return _trajectory(path, metadata)
    if kind == "a posterior":
        posterior = Posterior.load(path)
        details = posterior.details
        kinetic = details.get("kinetic_temperature", [])
        rows = {
            "samples": len(posterior),
            "network": posterior.net,
            "classes": ", ".join(posterior.class_names),
            **details["protocol"],
            "temperature": f"{details.get('temperature', 0.0):.3g}",
            "kinetic temperature": ", ".join(f"{t:.3g}" for t in kinetic),
        }
        return _lines(f"the posterior {path}", rows)
    coreset = Pseudocoreset.load(path)
    soft = coreset.targets.is_floating_point()
    made = coreset.provenance.as_json()
    rows = {
        "stored": f"{len(coreset)} of {'×'.join(map(str, coreset.input_shape))}",
        "seen by networks": coreset.num_seen,
        "stored numbers": f"{coreset.stored_numbers:,}",
        "stored bytes": f"{coreset.stored_bytes:,}, precision {coreset.precision}",
        "stored per class": coreset.ipc,
        "form": coreset.form,
        "targets": ("probabilities" if coreset.class_names else "numbers") if soft else "classes",
        "classes": ", ".join(coreset.class_names),
        "normalisation": coreset.scaling if coreset.is_image else None,
        "augmentation": coreset.dsa,
        "fingerprint": coreset.fingerprint,
        **made,
    }
    return _lines(f"the coreset {path}", rows)


def _search(path: Path) -> str:
    from pseudocoreset.tuning.trials import FINISHED, STATES, Trials

    trials = Trials(path / "trials.json")
    counts = {state: len(trials.in_state(state)) for state in STATES}
    first, best = trials.in_state(FINISHED)[:1], trials.best()
    rows = {
        "trials": ", ".join(f"{count} {state}" for state, count in counts.items() if count),
        "NLL of the recipe": first[0].nll if first and first[0].number == 0 else None,
        "lowest NLL": best and best.nll,
        **({} if best is None else best.settings),
    }
    return _lines(f"the search {path}", rows)


def _trajectory(path: Path, metadata: dict[str, Any]) -> str:
    loss = metadata.get("train_loss")
    ends = (loss[0], loss[-1]) if isinstance(loss, list) and loss else ()
    rows = {
        "number": metadata.get("number"),
        "training loss": " → ".join(f"{value:.3f}" for value in ends),
        "test accuracy": metadata.get("test_accuracy"),
        **metadata["identity"],
    }
    return _lines(f"the expert trajectory {path}", rows)
