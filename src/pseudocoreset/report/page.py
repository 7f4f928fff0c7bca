"""The page of one or several runs: one HTML file with everything in it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from pseudocoreset.coreset import Pseudocoreset, versions
from pseudocoreset.engine.files import whole_file, write_text
from pseudocoreset.report.protocol_words import (
    commands,
    sampling_facts,
    seed_words,
    temperature_note,
    wordings,
)
from pseudocoreset.report.run_report import RunReport, missed_note
from pseudocoreset.report.scores import COLUMNS, score_rows, seed_count

LONGEST_NAME = 16
"""Letters of a class name that stand in one line."""


@dataclass(frozen=True)
class Picture:
    """A figure, and the words that go with it."""

    uri: str
    title: str
    alt: str
    caption: str


@dataclass
class Section:
    """What the page shows of a run."""

    anchor: str
    run: RunReport
    facts: list[str]
    warning: str
    classes: list[tuple[str, list[str], int]] = field(default_factory=list)
    images_caption: str = ""
    tile: int = 0
    widest: int = 0
    name_width: float = 0.0
    pictures: list[Picture] = field(default_factory=list)
    sampling: list[tuple[str, str, str]] = field(default_factory=list)
    sampling_note: str = ""
    config: list[tuple[str, str]] = field(default_factory=list)


def write_report(path: Path, title: str, runs: Sequence[RunReport]) -> None:
    """Write the page `path` and, beside it, the folder figures/ with what it shows as PNG files.

    All is drawn before anything is written, and the page, which needs no other file, comes last:
    it is there whole or not at all.
    """
    drawn: dict[str, bytes] = {}
    sections = [_section(number, run, drawn) for number, run in enumerate(runs, start=1)]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = files("pseudocoreset.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    page = environment.from_string(source).render(
        title=title,
        data=_data_names(runs),
        columns=COLUMNS,
        rows=list(zip(score_rows(runs), sections, strict=True)),
        any_best=any(cell.best for row in score_rows(runs) for cell in row.cells),
        any_scores=any(run.evaluation for run in runs),
        most_seeds=max((seed_count(run) for run in runs), default=0),
        sections=sections,
        protocols=wordings(runs),
        seeds=seed_words(runs),
        versions=_versions(runs),
        commands=commands(),
    )
    for name, content in drawn.items():
        with whole_file(path.parent / "figures" / name) as part:
            part.write_bytes(content)
    write_text(path, page)


def _section(number: int, run: RunReport, drawn: dict[str, bytes]) -> Section:
    slug = re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-")[:60]
    section = Section(
        anchor=f"run-{number}",
        run=run,
        facts=_facts(run),
        warning=missed_note(run),
        sampling=sampling_facts(run),
        sampling_note=temperature_note(run),
        config=[(name, _plain(value)) for name, value in run.config.items()],
    )
    if run.coreset is not None:
        _add_images(section, run.coreset, drawn, f"{number}-{slug}-images.png")
    _add_pictures(section, drawn, f"{number}-{slug}")
    return section


def _add_images(
    section: Section, coreset: Pseudocoreset, drawn: dict[str, bytes], name: str
) -> None:
    """The images, one by one, so that they can flow on a narrow screen; and as one figure."""
    from pseudocoreset.report import images
    from pseudocoreset.report.style import png

    groups = images.images_by_class(coreset)
    size = coreset.images.shape[-1]
    section.tile = size * images.zoom_for(size)
    section.widest = max(len(group.pixels) for group in groups)
    longest = max(len(group.name) for group in groups)
    section.name_width = round(0.2 + 0.6 * min(max(longest, 2), LONGEST_NAME), 2)
    section.images_caption = images.images_caption(groups)
    if coreset.labels.ndim == 2:
        section.images_caption += " Labels are learned; an image stands at its most probable class."
    section.classes = [
        (group.name, [images.image_uri(image) for image in group.pixels], group.total)
        for group in groups
    ]
    drawn[name] = png(images.coreset_grid(coreset), colours=None)


def _add_pictures(section: Section, drawn: dict[str, bytes], slug: str) -> None:
    from pseudocoreset.report import figures
    from pseudocoreset.report.images import png_uri
    from pseudocoreset.report.style import png

    run = section.run
    for kind, figure, words in (
        ("losses", figures.loss_curves(run), _loss_words(run)),
        ("reliability", figures.reliability_diagram(run), _reliability_words(run)),
        ("sampler", figures.chain_traces(run), _chain_words(run)),
    ):
        if figure is not None:
            content = drawn[f"{slug}-{kind}.png"] = png(figure)
            section.pictures.append(Picture(png_uri(content), *words))


def _loss_words(run: RunReport) -> tuple[str, str, str]:
    """Title, text for who can't see it, caption."""
    known = any(key.split("/")[0] == "loss_x" for row in run.metrics for key in row)
    caption = (
        "How badly networks drawn from each posterior predict the coreset's labels. The method "
        "makes the two posteriors alike: the curves should draw together."
        if known
        else "What the method reports of each update."
    )
    return "Making the coreset", f"Curves over {len(run.metrics)} updates: {caption}", caption


def _reliability_words(run: RunReport) -> tuple[str, str, str]:
    error, accuracy = run.score("ece"), run.score("accuracy")
    told = "" if error is None or accuracy is None else (
        f" Over all seeds, accuracy {accuracy:.1%}, expected calibration error {error:.3f}."
    )  # fmt: skip
    caption = (
        "When the averaged prediction is this confident, how often is it right? Bars below the "
        "dashed line are overconfident, bars above it too modest; the first seed is shown."
    )
    return "Calibration", f"Bars of accuracy for each bin of confidence.{told}", caption


def _chain_words(run: RunReport) -> tuple[str, str, str]:
    caption = "The loss along a chain should fall, then wander on a level."
    if run.protocol.get("every"):
        caption += f" A sample is kept every {run.protocol['every']} epochs."
    return "Sampling the posterior", f"Curves of the loss along the chains. {caption}", caption


def _facts(run: RunReport) -> list[str]:
    """A line under the heading: size, data, network, updates, seed."""
    found = [] if run.images is None else [f"{run.images:,} images"]
    found += [str(run.config["data"])] if run.config.get("data") else []
    net = run.protocol.get("net") or ", ".join(map(str, run.config.get("nets") or []))
    found += [str(net)] if net else []
    updates = len(run.metrics) or run.config.get("steps")
    found += [f"{updates:,} updates"] if updates else []
    found += [f"seed {run.config['seed']}"] if "seed" in run.config else []
    return found


def _data_names(runs: Sequence[RunReport]) -> str:
    names = {
        run.config.get("data") or (run.coreset.provenance.data if run.coreset else None): None
        for run in runs
    }
    return " and ".join(str(name) for name in names if name)


def _versions(runs: Sequence[RunReport]) -> str:
    """What the figures were computed with; that may differ from run to run."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        made = run.protocol.get("versions") or (
            run.coreset.provenance.versions if run.coreset else {}
        )
        for name, value in made.items():
            found.setdefault(name, {})[str(value)] = None
    known = found or {name: {value: None} for name, value in versions().items()}
    return ", ".join(f"{name} {' / '.join(values)}" for name, values in known.items())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
