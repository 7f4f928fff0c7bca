"""The page of one or several runs: one HTML file with everything in it."""

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.files import whole_file, write_text
from pseudocoreset.engine.text import printable
from pseudocoreset.engine.versions import versions
from pseudocoreset.report.continue_here import commands
from pseudocoreset.report.downloads import Download, downloads
from pseudocoreset.report.figure_words import (
    chain_words,
    fitted_words,
    kept_words,
    loss_words,
    prediction_words,
    reliability_words,
)
from pseudocoreset.report.points import Tiles, tiles
from pseudocoreset.report.protocol_words import (
    convergence_note,
    sampling_facts,
    seed_words,
    temperature_note,
    wordings,
)
from pseudocoreset.report.run_report import (
    RunReport,
    count,
    finite,
    listed,
    mapping,
    missed_note,
    noun,
)
from pseudocoreset.report.scores import (
    Column,
    ScoreDetail,
    baselines,
    columns_for,
    score_details,
    score_rows,
)
from pseudocoreset.report.shown_examples import ExampleGroup, example_groups

MOST_CLASSES = 20
"""Up to this many classes the confusion matrix is shown."""
LONGEST_TEXT = 2000
GLOSSARY = {
    "accuracy": "Higher accuracy is better; lower is better for the other scores.",
    "nll": "NLL: negative log-likelihood of the averaged prediction.",
    "nll_kim": "NLL of Kim et al.: samples are averaged over batches of 128 points.",
    "ece": "ECE: expected calibration error (15 bins).",
    "brier": "Brier: squared error of the probabilities.",
    "rmse": "RMSE: root of the mean squared error of the mean prediction; lower is better.",
    "coverage": "Coverage: share of the targets inside the 90 % intervals; should be near 90.",
}


@dataclass(frozen=True)
class Picture:
    """A figure with its title and caption."""

    uri: str
    size: tuple[int, int]
    title: str
    alt: str
    caption: str


@dataclass(frozen=True)
class ClassScore:
    """How a class is predicted: its accuracy, and the points predicted to be of each class."""

    name: str
    accuracy: str
    predicted: list[tuple[int, float]]
    """Number of points and their share; empty where there are many classes."""


@dataclass
class Section:
    """The parts of the page for one run."""

    anchor: str
    run: RunReport
    facts: list[str]
    warning: str
    tiles: Tiles = field(default_factory=Tiles)
    downloads: list[Download] = field(default_factory=list)
    examples: list[ExampleGroup] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    of_chains: list[Picture] = field(default_factory=list)
    folded: bool = False
    sampling: list[tuple[str, str, str]] = field(default_factory=list)
    sampling_note: str = ""
    sampling_warning: str = ""
    scores: list[ScoreDetail] = field(default_factory=list)
    has_pooled: bool = False
    class_scores: list[ClassScore] = field(default_factory=list)
    config: list[tuple[str, str]] = field(default_factory=list)


def write_report(path: Path, title: str, runs: Sequence[RunReport]) -> None:
    """Write the page `path` and, beside it, the folder figures/ with what it shows as PNG files.

    Everything is drawn before anything is written. The page needs no other file and is written
    last.

    Args:
        path: the HTML file
        title: its heading
        runs: what it shows, in this order
    """
    drawn: dict[str, bytes] = {}
    sections = [_section(number, run, drawn) for number, run in enumerate(runs, start=1)]
    for section in sections:
        section.folded = section.run.is_baseline and not all(run.is_baseline for run in runs)
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    source = files("pseudocoreset.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    scored = [*runs, *baselines(runs)]
    columns, rows = columns_for(scored), score_rows(scored)
    script = files("pseudocoreset.report").joinpath("page.js").read_text(encoding="utf-8")
    page = environment.from_string(source).render(
        title=title,
        data=_data_names(runs),
        things="images" if all(run.is_image for run in runs) else "points",
        columns=columns,
        glossary=_glossary(columns),
        rows=list(zip_longest(rows, sections)),
        any_best=any(cell.best for row in rows for cell in row.cells),
        any_scores=any(run.evaluation for run in runs),
        most_seeds=max((run.seeds for run in runs), default=0),
        sections=sorted(sections, key=lambda section: section.folded),
        protocols=wordings(runs),
        seeds=seed_words(runs),
        versions=_versions(runs),
        commands=commands(runs),
        script=Markup(script),
        digest=b64encode(sha256(script.encode()).digest()).decode(),
    )
    for name, content in drawn.items():
        with whole_file(path.parent / "figures" / name) as part:
            part.write_bytes(content)
    write_text(path, page)


def _harmless(value: Any) -> Any:
    """What a file says may hold control characters and lone surrogates; escaping leaves them."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return printable(value, LONGEST_TEXT)


def _section(number: int, run: RunReport, drawn: dict[str, bytes]) -> Section:
    slug = re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-")[:60]
    section = Section(
        anchor=f"run-{number}",
        run=run,
        facts=_facts(run),
        warning=missed_note(run),
        sampling=sampling_facts(run),
        sampling_note=temperature_note(run),
        sampling_warning=convergence_note(run),
        scores=score_details(run),
        has_pooled=bool(run.pooled),
        class_scores=_class_scores(run),
        examples=example_groups(run),
        config=[(name, _plain(value)) for name, value in run.config.items()],
    )
    if run.coreset is not None:
        section.downloads = downloads(run.coreset, slug or section.anchor)
        if run.coreset.is_image:
            section.tiles = tiles(run, run.coreset)
            drawn[f"{number}-{slug}-images.png"] = _grid(run.coreset)
        else:
            _add_tables(section, run.coreset, drawn, f"{number}-{slug}")
    _add_pictures(section, drawn, f"{number}-{slug}")
    return section


def _grid(coreset: Pseudocoreset) -> bytes:
    from pseudocoreset.coreset.pictures import coreset_grid
    from pseudocoreset.report.style import png

    return png(coreset_grid(coreset), colours=None)


def _add_tables(
    section: Section, coreset: Pseudocoreset, drawn: dict[str, bytes], slug: str
) -> None:
    """The points of a table as heat maps: as they are, and before the first update."""
    from pseudocoreset.coreset.pictures import table_caption, table_figure
    from pseudocoreset.report.style import DOTS_PER_INCH, png

    shown = {"points": ("The points", coreset)}
    if section.run.start is not None:
        shown["start"] = ("The points at the start", section.run.start)
    for kind, (title, points) in shown.items():
        caption, figure = table_caption(points), table_figure(points, coreset)
        figure.set_dpi(DOTS_PER_INCH)
        content = drawn[f"{slug}-{kind}.png"] = png(figure, colours=None)
        section.pictures.append(_picture(content, title, f"A heat map: {caption}", caption))


def _add_pictures(section: Section, drawn: dict[str, bytes], slug: str) -> None:
    from pseudocoreset.report import figures
    from pseudocoreset.report.style import png

    run = section.run
    for kind, figure, words in (
        ("losses", figures.loss_curves(run), loss_words(run)),
        ("reliability", figures.reliability_diagram(run), reliability_words(run)),
        ("kept", figures.risk_and_coverage(run), kept_words()),
        ("predictions", figures.predicted_and_true(run), fitted_words()),
        ("sampler", figures.chain_traces(run), chain_words(run)),
        ("chains", figures.prediction_traces(run), prediction_words(run)),
    ):
        if figure is not None:
            content = drawn[f"{slug}-{kind}.png"] = png(figure)
            place = section.of_chains if kind in ("sampler", "chains") else section.pictures
            place.append(_picture(content, *words))


def _picture(content: bytes, title: str, alt: str, caption: str) -> Picture:
    from pseudocoreset.coreset.pictures import png_uri

    # A PNG file begins with 16 bytes, its width and its height.
    size = int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    return Picture(png_uri(content), size, title, alt, caption)


def _class_scores(run: RunReport) -> list[ClassScore]:
    """Accuracy by class and, of few classes, the confusion matrix; empty where it is not known."""
    shares = [finite(share) for share in listed(run.pooled.get("class_accuracy"))]
    names = run.coreset.class_names if run.coreset else tuple(map(str, range(len(shares))))
    if not shares or len(shares) != len(names):
        return []
    confusion = _confusion(run.pooled.get("confusion"), len(names))
    found = []
    for place, (name, share) in enumerate(zip(names, shares, strict=True)):
        row = confusion[place] if confusion else []
        total = max(sum(row), 1)
        predicted = [(number, round(number / total, 3)) for number in row]
        found.append(ClassScore(name, "–" if share is None else f"{share:.1%}", predicted))
    return found


def _confusion(content: object, classes: int) -> list[list[int]]:
    """The matrix, if it is one and not too large."""
    rows = [[count(number) for number in listed(row)] for row in listed(content)]
    if classes > MOST_CLASSES or [len(row) for row in rows] != [classes] * classes:
        return []
    known = [[number for number in row if number is not None] for row in rows]
    return known if all(len(row) == classes for row in known) else []


def _glossary(columns: Sequence[Column]) -> str:
    """Explanations of the scores."""
    return " ".join(GLOSSARY[column.key] for column in columns if column.key in GLOSSARY)


def _facts(run: RunReport) -> list[str]:
    """A line under the heading: size, data, network, updates, seed."""
    found = []
    if run.points is not None:
        found.append(f"{run.points:,} {noun(run.points, run.is_image)}")
        if run.coreset is not None and run.coreset.form.seen > 1:
            found[-1] += f" stored, {run.coreset.num_seen:,} seen ({run.coreset.form})"
    data = run.config.get("data")
    found += [printable(data)] if data else []
    net = run.protocol.get("net") or ", ".join(map(str, listed(run.config.get("nets"))))
    found += [printable(net)] if net else []
    updates = len(run.metrics) or count(run.config.get("steps"))
    found += [f"{updates:,} updates"] if updates else []
    seed = count(run.config.get("seed"))
    found += [] if seed is None else [f"seed {seed}"]
    return found


def _data_names(runs: Sequence[RunReport]) -> str:
    names: dict[str, None] = {}
    for run in runs:
        name = run.config.get("data") or (run.coreset.provenance.data if run.coreset else None)
        if name:
            names[printable(name)] = None
    return " and ".join(names)


def _versions(runs: Sequence[RunReport]) -> str:
    """What the figures were computed with; that may differ from run to run."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        stated = mapping(run.protocol.get("versions"))
        made = stated or (run.coreset.provenance.versions if run.coreset else {})
        for name, value in made.items():
            found.setdefault(printable(name), {})[printable(value)] = None
    known = found or {name: {value: None} for name, value in versions().items()}
    return ", ".join(f"{name} {' / '.join(values)}" for name, values in known.items())


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return printable(text, LONGEST_TEXT)
