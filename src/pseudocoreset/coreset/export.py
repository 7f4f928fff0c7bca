"""Export a coreset as a folder of PNG files, an npz file or a Hugging Face data set.

Points are written as networks see them. PNG files have bytes, to which pixels are clipped; an npz
has normalised floats, and rows of a table in their own units. Names of classes, columns and data
are escaped.
"""

import csv
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import numpy
import torch
import yaml

from pseudocoreset.coreset.pictures import (
    input_names,
    pil_images,
    raw_inputs,
    raw_targets,
    sizes_sentence,
)
from pseudocoreset.coreset.pseudocoreset import Pseudocoreset
from pseudocoreset.engine.files import make_folder, sync, sync_tree, whole_file, writing
from pseudocoreset.engine.text import did_you_mean, printable
from pseudocoreset.errors import UserError

FORMATS = ("png", "npz", "hf")
LONGEST_NAME = 80
LEAST_CLIPPED = 0.01
"""The share of clipped pixel values from which on it is said."""
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for itself."""
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
CITATION = """\
@inproceedings{kim2023function,
  title     = {Function Space {Bayesian} Pseudocoreset for {Bayesian} Neural Networks},
  author    = {Kim, Balhae and Lee, Hyungi and Lee, Juho},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2023}
}"""


def export_coreset(coreset: Pseudocoreset, to: str, out: Path) -> Path:
    """Write the points in one of the `FORMATS` and describe what was written.

    Args:
        coreset: the coreset
        to: `png`, `npz` or `hf`
        out: the folder or file to write
    """
    if to not in FORMATS:
        hint = did_you_mean(str(to), FORMATS)
        raise UserError(
            f"`to` is {printable(to)}{hint}: give {', '.join(FORMATS)}.", parameter="to"
        )
    if to == "npz":
        if out.suffix != ".npz":
            raise UserError(f"`out` is {out}: give a file whose name ends in .npz.", "out")
        _write_npz(coreset, out)
        return out
    if to == "png" and not coreset.is_image:
        raise UserError("`to` is png, and the coreset holds a table: give npz or hf.", "to")
    if coreset.is_image and coreset.input_shape[0] not in (1, 3):
        channels = coreset.input_shape[0]
        raise UserError(f"`to` is {to}, and images have {channels} channels: give npz.", "to")
    with _whole_folder(out) as part:
        FOLDERS[to](coreset, part)
    if coreset.is_image and (clipped := clipped_share(coreset)) >= LEAST_CLIPPED:
        warnings.warn(
            f"{clipped:.0%} of the pixel values are darker than black or brighter than white, "
            "which PNG files can't hold: they were clipped. Export to npz to keep them.",
            RuntimeWarning,
            stacklevel=3,
        )
    return out


def clipped_share(coreset: Pseudocoreset) -> float:
    """The share of the values of images that a byte can't hold.

    Args:
        coreset: a coreset of images
    """
    seen = coreset.seen_inputs.detach().float()
    mean, std = (
        torch.tensor(v).view(-1, 1, 1) for v in (coreset.scaling.mean, coreset.scaling.std)
    )
    bytes_ = (seen.cpu() * std + mean) * 255
    return float(((bytes_ < -0.5) | (bytes_ > 255.5)).float().mean())


@contextmanager
def _whole_folder(out: Path) -> Iterator[Path]:
    """Give a temporary folder beside `out`; on success it is moved there at once."""
    _refuse_present(out)
    with writing(out):
        make_folder(out.parent)
        prefix = f".{out.name[:LONGEST_NAME]}."
        part = Path(tempfile.mkdtemp(dir=out.parent, prefix=prefix, suffix=".part"))
        try:
            yield part
            umask = os.umask(0)
            os.umask(umask)
            part.chmod(0o777 & ~umask)  # mkdtemp makes folders private
            if out.exists():  # empty, or it could not be removed
                out.rmdir()
            sync_tree(part)
            part.rename(out)
            sync(out.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _refuse_present(out: Path) -> None:
    empty = out.is_dir() and not out.is_symlink() and not any(out.iterdir())
    if (out.exists() or out.is_symlink()) and not empty:
        raise UserError(f"`out` {out} already exists: give another path.", "out")


def _write_npz(coreset: Pseudocoreset, out: Path) -> None:
    """Arrays that need nothing else: points, targets, names, and how they were normalised.

    Images stay normalised, as networks see them; the rows of a table are in their own units.
    """
    arrays: dict[str, Any] = {}
    if coreset.is_image:
        # Not as bytes: pixels of a coreset may be darker than black and brighter than white.
        arrays["images"] = coreset.seen_inputs.detach().float().cpu().numpy()
    else:
        arrays["inputs"] = raw_inputs(coreset)
        arrays["input_names"] = numpy.array(input_names(coreset), dtype=str)
    if coreset.class_names:
        arrays["labels"] = coreset.seen_targets.detach().cpu().numpy()
        arrays["class_names"] = numpy.array(coreset.class_names, dtype=str)
    else:
        arrays["targets"] = raw_targets(coreset)
    for prefix, scaling in (("", coreset.scaling), ("target_", coreset.target_scaling)):
        if scaling is not None:
            arrays[f"{prefix}mean"] = numpy.array(scaling.mean, dtype=numpy.float32)
            arrays[f"{prefix}std"] = numpy.array(scaling.std, dtype=numpy.float32)
    _refuse_present(out)
    if out.is_dir():
        raise UserError(f"`out` {out} is a folder: give a file.", "out")
    with whole_file(out) as part, part.open("wb") as file:
        numpy.savez_compressed(file, **arrays)


def _write_png(coreset: Pseudocoreset, folder: Path) -> None:
    """One sub-folder per class; soft labels and numbers are in labels.csv."""
    folders = safe_names(coreset.class_names) or ["images"]
    for name in folders:
        (folder / name).mkdir()
    labels = coreset.classes.tolist() if coreset.class_names else [0] * coreset.num_seen
    files = [f"{folders[label]}/{place:05}.png" for place, label in enumerate(labels)]
    for file, image in zip(files, pil_images(coreset), strict=True):
        image.save(folder / file)
    if coreset.targets.is_floating_point():
        names = [printable(name) for name in coreset.class_names] or _target_names(coreset)
        values = coreset.seen_targets if coreset.class_names else raw_targets(coreset)
        rows = [[file, *row] for file, row in zip(files, values.tolist(), strict=True)]
        _write_csv(folder / "labels.csv", _distinct(["file", *names]), rows)


def _write_hf(coreset: Pseudocoreset, folder: Path) -> None:
    """What `datasets.load_dataset(folder)` reads: train/ with metadata.csv, or train.csv."""
    names, targets = _target_columns(coreset)
    if coreset.is_image:
        (folder / "train").mkdir()
        files = [f"{place:05}.png" for place in range(coreset.num_seen)]
        for file, image in zip(files, pil_images(coreset), strict=True):
            image.save(folder / "train" / file)
        rows = [[file, *target] for file, target in zip(files, targets, strict=True)]
        _write_csv(folder / "train" / "metadata.csv", ["file_name", *names], rows)
    else:
        inputs = raw_inputs(coreset).tolist()
        rows = [[*target, *row] for target, row in zip(targets, inputs, strict=True)]
        _write_csv(folder / "train.csv", _distinct([*names, *input_names(coreset)]), rows)
    (folder / "README.md").write_text(data_card(coreset), encoding="utf-8")


FOLDERS: dict[str, Callable[[Pseudocoreset, Path], None]] = {"png": _write_png, "hf": _write_hf}


def _target_columns(coreset: Pseudocoreset) -> tuple[list[str], list[list[Any]]]:
    """The names of the columns that hold targets, and their rows."""
    if not coreset.class_names:
        return _target_names(coreset), raw_targets(coreset).tolist()
    texts = [printable(name) for name in coreset.class_names]
    rows: list[list[Any]] = [[label, texts[label]] for label in coreset.classes.tolist()]
    names = ["label", "class_name"]
    if coreset.targets.is_floating_point():
        names += [f"probability_{label}" for label in range(len(texts))]
        soft = coreset.seen_targets.tolist()
        rows = [[*row, *shares] for row, shares in zip(rows, soft, strict=True)]
    return names, rows


def _target_names(coreset: Pseudocoreset) -> list[str]:
    number = coreset.outputs
    return ["target"] if number == 1 else [f"target_{place}" for place in range(number)]


def safe_names(names: Sequence[str]) -> list[str]:
    """A folder's name for each, different from all others on every file system.

    Args:
        names: of classes
    """
    found: list[str] = []
    taken: set[str] = set()
    for place, name in enumerate(names):
        plain = re.sub(r"[^\w\- .]", "_", printable(name)).strip(" .")[:LONGEST_NAME].strip(" .")
        plain = plain.encode("utf-8", "replace")[:LONGEST_NAME].decode("utf-8", "ignore")
        if not plain or RESERVED.fullmatch(plain):
            plain = f"class-{place}"
        while plain.casefold() in taken:
            plain += f"-{place}"
        taken.add(plain.casefold())
        found.append(plain)
    return found


def _distinct(names: Sequence[str]) -> list[str]:
    """The names of a table's columns, all different."""
    found: list[str] = []
    for place, name in enumerate(names):
        while name in found or not name:
            name = f"{name} {place}"
        found.append(name)
    return found


def _write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def data_card(coreset: Pseudocoreset) -> str:
    """The README.md of a Hugging Face data set.

    Args:
        coreset: the coreset
    """
    made = coreset.provenance
    kind = "image" if coreset.is_image else "tabular"
    seen = coreset.num_seen
    front: dict[str, Any] = {
        "pretty_name": f"Pseudocoreset of {printable(made.data)}",
        "size_categories": [next((name for most, name in SIZES if seen < most), "n>1M")],
        "tags": ["pseudocoreset", "dataset-distillation", "synthetic"],
    }
    if kind == "tabular" or coreset.class_names:  # there is no category for images and numbers
        front["task_categories"] = [f"{kind}-{coreset.task}"]
    facts = [
        ("Made of", made.data),
        ("Training points it stands for", made.num_train),
        ("Method", made.method),
        ("Network", made.net),
        ("Points", f"{seen:,}"),
        ("Size of a point", "×".join(map(str, coreset.input_shape))),
        ("Classes", ", ".join(coreset.class_names) or None),
        ("Mean that inputs were scaled with", _numbers(coreset.scaling.mean)),
        ("Standard deviation", _numbers(coreset.scaling.std)),
        ("Fingerprint", coreset.fingerprint),
    ]
    if coreset.is_image:
        facts.append(("Pixel values clipped to 0 or 255", f"{clipped_share(coreset):.1%}"))
    listed = "\n".join(f"- {name}: {markdown(value)}" for name, value in facts if value is not None)
    return (
        f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---\n\n"
        f"# Pseudocoreset of {markdown(made.data)}\n\n"
        "A few synthetic points that stand for a whole training set. They are for sampling the "
        "posterior of a neural network given these points instead of all the data. "
        f"{sizes_sentence(coreset)}\n\n"
        f"{listed}\n\n"
        "The points were made with pseudocoreset. The rights in the data that they were made of "
        "apply to them too; which these are is not known here.\n\n"
        f"## Citation\n\n```bibtex\n{CITATION}\n```\n"
    )


def markdown(text: object) -> str:
    """A text in one line of Markdown that is nothing but text.

    Args:
        text: what a file says
    """
    plain = escape(printable(text, 2000), quote=False)
    return re.sub(r"([\\`*_{}\[\]()#+!|~$:@-])", r"\\\1", plain)


def _numbers(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:12])
    return f"{shown}, …" if len(values) > 12 else shown
