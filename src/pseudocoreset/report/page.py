"""The page of one or several runs: one HTML file with everything in it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.files import whole_file, write_text
from pseudocoreset.engine.text import printable
from pseudocoreset.engine.versions import versions
from pseudocoreset.report.protocol_words import (
    commands,
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
    columns_for,
    score_details,
    score_rows,
)

LONGEST_NAME = 16
"""Letters of a class name that stand in one line."""
MOST_CLASSES = 20
"""Up to so many classes the confusion matrix is shown."""
LONGEST_TEXT = 2000
GLOSSARY = {
    "nll": "NLL is the negative log-likelihood of the averaged prediction",
    "nll_kim": "the second NLL averages as Kim et al. do",
    "ece": "ECE is the expected calibration error (15 bins)",
    "brier": "Brier is the squared error of the probabilities",
    "rmse": "RMSE is the root of the mean squared error of the mean prediction",
    "coverage": "coverage is the share of targets inside the 90 % intervals, best near 90",
}


@dataclass(frozen=True)
class Picture:
    """A figure, and the words that go with it."""

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
    """What the page shows of a run."""

    anchor: str
    run: RunReport
    facts: list[str]
    warning: str
    classes: list[tuple[str, list[str], int]] = field(default_factory=list)
    caption: str = ""
    tile: int = 0
    widest: int = 0
    name_width: float = 0.0
    pictures: list[Picture] = field(default_factory=list)
    sampling: list[tuple[str, str, str]] = field(default_factory=list)
    sampling_note: str = ""
    sampling_warning: str = ""
    scores: list[ScoreDetail] = field(default_factory=list)
    has_pooled: bool = False
    class_scores: list[ClassScore] = field(default_factory=list)
    config: list[tuple[str, str]] = field(default_factory=list)


def write_report(path: Path, title: str, runs: Sequence[RunReport]) -> None:
    """Write the page `path` and, beside it, the folder figures/ with what it shows as PNG files.

    All is drawn before anything is written, and the page, which needs no other file, comes last:
    it is there whole or not at all.

    Args:
        path: the HTML file
        title: its heading
        runs: what it shows, in this order
    """
    drawn: dict[str, bytes] = {}
    sections = [_section(number, run, drawn) for number, run in enumerate(runs, start=1)]
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    source = files("pseudocoreset.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    columns, rows = columns_for(runs), score_rows(runs)
    page = environment.from_string(source).render(
        title=title,
        data=_data_names(runs),
        things="images" if all(run.is_image for run in runs) else "points",
        columns=columns,
        glossary=_glossary(columns),
        rows=list(zip(rows, sections, strict=True)),
        any_best=any(cell.best for row in rows for cell in row.cells),
        any_scores=any(run.evaluation for run in runs),
        most_seeds=max((run.seeds for run in runs), default=0),
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
        config=[(name, _plain(value)) for name, value in run.config.items()],
    )
    if run.coreset is not None:
        name = f"{number}-{slug}-{'images' if run.coreset.is_image else 'points'}.png"
        add = _add_images if run.coreset.is_image else _add_table
        add(section, run.coreset, drawn, name)
    _add_pictures(section, drawn, f"{number}-{slug}")
    return section


def _add_images(
    section: Section, coreset: Pseudocoreset, drawn: dict[str, bytes], name: str
) -> None:
    """The images, one by one, so that they can flow on a narrow screen; and as one figure."""
    from pseudocoreset.coreset import pictures
    from pseudocoreset.report.style import png

    groups = pictures.images_by_class(coreset)
    size = max(coreset.input_shape[1:])
    section.tile = size * pictures.zoom_for(size)
    section.widest = max(len(group.pixels) for group in groups)
    longest = max(len(group.name) for group in groups)
    section.name_width = round(0.2 + 0.6 * min(max(longest, 2), LONGEST_NAME), 2)
    section.caption = pictures.images_caption(coreset, groups)
    if coreset.class_names and coreset.targets.ndim == 2:
        section.caption += " Labels are soft; an image stands at its most probable class."
    section.classes = [
        (group.name, [pictures.image_uri(image) for image in group.pixels], group.total)
        for group in groups
    ]
    drawn[name] = png(pictures.coreset_grid(coreset), colours=None)


def _add_table(
    section: Section, coreset: Pseudocoreset, drawn: dict[str, bytes], name: str
) -> None:
    from pseudocoreset.coreset.pictures import table_caption, table_figure
    from pseudocoreset.report.style import DOTS_PER_INCH, png

    caption = table_caption(coreset)
    figure = table_figure(coreset)
    figure.set_dpi(DOTS_PER_INCH)
    content = drawn[name] = png(figure, colours=None)
    alt = f"A heat map: {caption}"
    section.pictures.append(_picture(content, "The points", alt, caption))


def _add_pictures(section: Section, drawn: dict[str, bytes], slug: str) -> None:
    from pseudocoreset.report import figures
    from pseudocoreset.report.style import png

    run = section.run
    for kind, figure, words in (
        ("losses", figures.loss_curves(run), _loss_words(run)),
        ("reliability", figures.reliability_diagram(run), _reliability_words(run)),
        ("kept", figures.risk_and_coverage(run), _kept_words()),
        ("sampler", figures.chain_traces(run), _chain_words(run)),
        ("chains", figures.prediction_traces(run), _prediction_words()),
    ):
        if figure is not None:
            content = drawn[f"{slug}-{kind}.png"] = png(figure)
            section.pictures.append(_picture(content, *words))


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
    """What the scores are and which way they are better."""
    names = [column.key for column in columns]
    words = [GLOSSARY[name] for name in names if name in GLOSSARY]
    first = "More accuracy is better, less of all the rest" if "accuracy" in names else ""
    return ": ".join(part for part in (first, ", ".join(words)) if part) + "."


def _loss_words(run: RunReport) -> tuple[str, str, str]:
    """Title, text for who can't see it, caption."""
    names = {key.split("/")[0] for row in run.metrics for key in row}
    caption = "What the method reports of each update."
    if "loss_x" in names:
        caption = (
            "How badly networks drawn from each posterior predict the coreset's targets. The "
            "method makes the two posteriors alike: the curves should draw together."
        )
    elif "nll" in names:
        caption = (
            "How badly networks that know the coreset predict real points (nll), which the "
            "method makes smaller; and how badly they predict the coreset itself."
        )
    return "Making the coreset", f"Curves over {len(run.metrics)} updates: {caption}", caption


def _reliability_words(run: RunReport) -> tuple[str, str, str]:
    error, accuracy = run.score("ece"), run.score("accuracy")
    sentence = "" if error is None or accuracy is None else (
        f" Over all seeds, accuracy {accuracy:.1%}, expected calibration error {error:.3f}."
    )  # fmt: skip
    caption = (
        "When the averaged prediction is this confident, how often is it right? Bars below the "
        "dashed line are overconfident, bars above it too modest; the first seed is shown."
    )
    return "Calibration", f"Bars of accuracy for each bin of confidence.{sentence}", caption


def _chain_words(run: RunReport) -> tuple[str, str, str]:
    caption = "The loss along a chain should fall, then wander on a level."
    if run.protocol.get("every"):
        caption += f" A sample is kept every {printable(run.protocol['every'])} epochs."
    return "Sampling the posterior", f"Curves of the loss along the chains. {caption}", caption


def _kept_words() -> tuple[str, str, str]:
    caption = (
        "Accuracy if only the most confident predictions are kept, all seeds' samples pooled. The "
        "curve should fall from left to right: then doubt is where the mistakes are."
    )
    return "Knowing when not to answer", f"A curve. {caption}", caption


def _prediction_words() -> tuple[str, str, str]:
    caption = (
        "What each chain predicts for the truth at two test points, draw by draw: where R̂ is in "
        "the middle, and where it is worst. Chains that sample one posterior cross each other."
    )
    return "Do chains agree?", f"Curves of the predictions along the chains. {caption}", caption


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
