"""`predict`: predictions and uncertainty for your own images or rows."""

import csv
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from pseudocoreset.cli.arguments import Arguments, Parser
from pseudocoreset.cli.shared import (
    CommonOptions,
    JsonOptions,
    NetOptions,
    add_common,
    one_net,
    prints_figures,
)
from pseudocoreset.coreset import KIND
from pseudocoreset.engine.files import (
    json_text,
    open_tensors,
    refuse_unwritable_file,
    whole_file,
)
from pseudocoreset.engine.options import Options, option
from pseudocoreset.engine.text import printable, significant
from pseudocoreset.errors import UserError
from pseudocoreset.gallery import coreset_path
from pseudocoreset.likelihoods import Prediction
from pseudocoreset.posterior import Posterior


@dataclass(frozen=True)
class _Options(Options):
    csv: str | None = option(None, "write the predictions to this CSV file")


def configure(parser: Parser, words: list[str]) -> None:  # noqa: ARG001
    """Define the options of the command."""
    parser.positional("posterior", "file written by `pseudocoreset sample`")
    parser.positional("inputs", "image files, folders, or .npz with `images`; a CSV file", "+")
    parser.add(NetOptions, default="the posterior's own")
    parser.add(JsonOptions)
    parser.add(_Options)
    add_common(parser)


def run(arguments: Arguments) -> None:
    """Predict inputs from files."""
    own, common = arguments.pick(_Options), arguments.pick(CommonOptions)
    json, paths = arguments.pick(JsonOptions).json, arguments.texts("inputs")
    for path in (json, own.csv):
        refuse_unwritable_file(path, arguments.text("posterior"), *paths)
    given = arguments.text("posterior")
    _refuse_coreset(given)
    posterior = Posterior.load(given, net=one_net(arguments), trust_code=common.trust_code)
    if "stats=batch" in posterior.net:
        warnings.warn(
            f"{printable(posterior.net)} normalises with batch statistics, so each prediction "
            "depends on the other images in the batch: give many images at once, or use a "
            "network with stats=kept.",
            RuntimeWarning,
            stacklevel=2,
        )
    shown = prints_figures(arguments) and not (own.csv is not None and common.quiet)
    rows = predict_files(posterior, [Path(path) for path in paths], common.device)
    with ExitStack() as files:  # they appear, whole, when all is predicted
        writers = [files.enter_context(_json_writer(Path(json)))] if json is not None else []
        if own.csv is not None:
            writers.append(files.enter_context(_csv_writer(Path(own.csv))))
        for row in rows:
            for write in writers:
                write(row)
            if shown:
                print(_line(row))


def predict_files(
    posterior: Posterior, paths: list[Path], device: str = "auto"
) -> Iterator[dict[str, Any]]:
    """One row per input: class probabilities, entropy and mutual information in nats.

    Args:
        posterior: the posterior
        paths: image files, folders, .npz files, or CSV files
        device: where to predict
    """
    for names, found in posterior.predict_files(paths, device=device):
        if not isinstance(found, Prediction):
            columns = (found.mean.tolist(), found.std.tolist(), found.epistemic_std.tolist())
            for name, mean, std, epistemic in zip(names, *columns, strict=True):
                yield {"input": name, "mean": mean, "std": std, "epistemic_std": epistemic}
            continue
        figures = (found.probs, found.entropy, found.mutual_information)
        what = "image" if len(posterior.input_shape) == 3 else "input"
        for name, row, entropy, information in zip(names, *figures, strict=True):
            yield {
                what: name,
                "class": posterior.class_names[int(row.argmax())],
                "probabilities": dict(zip(posterior.class_names, row.tolist(), strict=True)),
                "entropy": float(entropy),
                "mutual_information": float(information),
            }


@contextmanager
def _json_writer(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Write rows as JSON. The file appears when all rows are written."""
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        before = "["

        def write(row: dict[str, Any]) -> None:
            nonlocal before
            text = json_text(row).rstrip("\n").replace("\n", "\n  ")
            file.write(f"{before}\n  {text}")
            before = ","

        yield write
        file.write("\n]\n")


def _refuse_coreset(given: str) -> None:
    path, kind = coreset_path(given), None
    with suppress(UserError), open_tensors(path) as (_, metadata):
        kind = metadata.get("kind")
    if kind == KIND or Path(given, "config.yaml").exists():
        raise UserError(
            f"{printable(given)} is a coreset: sample its posterior first, "
            f"`pseudocoreset sample {quote(printable(given))} --out posterior.safetensors`."
        )


@contextmanager
def _csv_writer(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Write rows as CSV, with one column per probability."""
    with whole_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer: Any = None

        def write(row: dict[str, Any]) -> None:
            nonlocal writer
            flat = _flat(row)
            if writer is None:
                writer = csv.DictWriter(file, list(flat), lineterminator="\n")
                writer.writeheader()
            writer.writerow(flat)

        yield write


def _line(row: dict[str, Any]) -> str:
    if "mean" in row:
        pairs = zip(row["mean"], row["std"], row["epistemic_std"], strict=True)
        shown = "; ".join(
            f"{significant(m, 4)} ± {significant(s)} ({significant(e)} from the samples)"
            for m, s, e in pairs
        )
        return f"{printable(row['input'])}: {shown}"
    best = sorted(row["probabilities"].items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{printable(name)} {share:.1%}" for name, share in best)
    name = row.get("image", row.get("input"))
    return (
        f"{printable(name)}: {shown}; entropy {row['entropy']:.3f} nats, of which "
        f"{row['mutual_information']:.3f} from the samples' disagreement"
    )


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with one value per column."""
    flat = {k: v for k, v in row.items() if not isinstance(v, dict | list)}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"p({key})": share for key, share in value.items()}
        elif isinstance(value, list):
            many = len(value) > 1
            flat |= {f"{name}_{i}" if many else name: v for i, v in enumerate(value)}
    return flat
