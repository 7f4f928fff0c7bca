"""What a thing on disk is, in words."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import ImageData, load_data
from pseudocoreset.engine.files import open_tensors
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.experts.store import TRAJECTORY
from pseudocoreset.posterior import Posterior
from pseudocoreset.run_folder import missed_gamma, read_config, read_metrics


def describe(what: str, image_size: int | None = None) -> str:
    """Describe a data spec, an expert store or trajectory, a run, a coreset or a posterior."""
    path = Path(what)
    if (path / "index.json").exists():
        return _store(ExpertStore.open(path))
    if (path / "config.yaml").exists():
        return _run(path)
    if path.is_file() and path.suffix == ".safetensors":
        return _tensors(path)
    if what == "digits" or ":" in what:
        return _data(load_data(what, image_size))
    raise UserError(
        f"{what} is no expert store, run, coreset, posterior or data spec: give the path of one, "
        "or a spec such as cifar10:DIR."
    )


def _lines(title: str, rows: dict[str, Any]) -> str:
    shown = [(name, "none" if value in (None, "") else value) for name, value in rows.items()]
    width = max(len(name) for name, _ in shown)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in shown)])


def _data(data: ImageData) -> str:
    counts = data.train.labels.bincount(minlength=data.classes)
    size = f"{data.channels}×{data.image_size}×{data.image_size}"
    rows = {
        "training images": f"{len(data.train):,} of {size}",
        "test images": f"{len(data.test):,}",
        "classes": f"{data.classes}: {', '.join(data.class_names[:12])}"
        + (", …" if data.classes > 12 else ""),
        "images a class": f"{int(counts.min()):,} to {int(counts.max()):,}",
        "mean": ", ".join(map(str, data.normalisation.mean)),
        "std": ", ".join(map(str, data.normalisation.std)),
        "flips keep the class": "yes" if data.mirror else "no",
        "fingerprint": data.fingerprint,
    }
    return _lines(f"the data set {data.name}", rows)


def _store(store: ExpertStore) -> str:
    scores = [store.describe(path).get("test_accuracy") for path in store.trajectories]
    known = [score for score in scores if score is not None]
    size = sum(path.stat().st_size for path in store.trajectories)
    rows = {
        "trajectories": len(store),
        "epochs kept": f"{store.first_epoch} to {store.last_epoch}",
        "size": f"{size / 2**20:.1f} MiB",
        "parameters": f"{store.identity.make_net().num_params:,}",
        "test accuracy": f"{sum(known) / len(known):.2%} after the last epoch" if known else None,
        **asdict(store.identity),
    }
    return _lines(f"the expert store {store.path}", rows)


def _run(path: Path) -> str:
    metrics = read_metrics(path)
    missed = sum(map(missed_gamma, metrics))
    rows = {"updates done": len(metrics), "MAP bound hit": missed, **read_config(path)}
    return _lines(f"the run {path}", rows)


def _tensors(path: Path) -> str:
    with open_tensors(path) as (_, metadata):
        kind = metadata.get("kind")
    if kind == TRAJECTORY:
        loss = metadata.get("train_loss")
        rows = {
            "number": metadata["number"],
            "training loss": " → ".join(f"{value:.3f}" for value in (loss[0], loss[-1]))
            if loss
            else None,
            "test accuracy": metadata.get("test_accuracy"),
            **metadata["identity"],
        }
        return _lines(f"the expert trajectory {path}", rows)
    if kind == "a posterior":
        posterior = Posterior.load(path)
        details = posterior.details
        rows = {
            "samples": len(posterior),
            "network": posterior.net,
            "classes": ", ".join(posterior.class_names),
            **details["protocol"],
            "temperature": f"{details['temperature']:.3g}",
            "kinetic temperature": ", ".join(f"{t:.3g}" for t in details["kinetic_temperature"]),
        }
        return _lines(f"the posterior {path}", rows)
    coreset = Pseudocoreset.load(path)
    rows = {
        "images": f"{len(coreset)} of {'×'.join(map(str, coreset.images.shape[1:]))}",
        "images a class": coreset.ipc,
        "labels": "classes" if coreset.labels.ndim == 1 else "learned probabilities",
        "classes": ", ".join(coreset.class_names),
        "normalisation": coreset.normalisation,
        "augmentation": coreset.dsa,
        "fingerprint": coreset.fingerprint,
        **asdict(coreset.provenance),
    }
    return _lines(f"the coreset {path}", rows)
