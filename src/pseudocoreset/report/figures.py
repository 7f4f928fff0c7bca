"""Figures of a run: losses, calibration, predictions, sampler diagnostics.

Each takes a `RunReport` and gives a figure, or None where there is nothing to draw.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, MaxNLocator, NullFormatter

from pseudocoreset.engine.text import printable
from pseudocoreset.report.run_report import RunReport, count, finite, listed, mapping
from pseudocoreset.report.style import (
    BAD,
    INK,
    LINES,
    add_legend,
    dress,
    new_figure,
    shorten_ticks,
    stack,
)
from pseudocoreset.run_folder import missed_gamma

WIDTH = 4.4
HEIGHT = 3.2
SIDES = {"loss_x": "data's posterior", "loss_u": "coreset's posterior"}
MOST_LINES = 8
LARGEST = 1e15
"""Larger numbers come from damaged files and are not drawn."""
SMOOTHED_FROM = 100
"""Updates from which on a running mean is drawn over the noise."""


def loss_curves(run: RunReport) -> Figure | None:
    """The method's losses over the updates, and below, if there are any, its MAP steps.

    Args:
        run: the run
    """
    losses, steps = _loss_names(run.metrics), _names(run.metrics, "map_steps")
    if not losses:
        return None
    figure = new_figure(WIDTH, HEIGHT)
    above, *below = stack(
        figure, (3, 1) if steps else (1,), head=0.1 + 0.18 * ceil(len(losses) / 2)
    )
    updates = _column(run.metrics, "update")
    if not numpy.isfinite(updates).all() or not (abs(updates) < LARGEST).all():
        updates = numpy.arange(1.0, len(run.metrics) + 1)
    dress(above, x="" if steps else "update", y=_loss_label(run, losses))
    for number, name in enumerate(losses):
        side, _, network = name.partition("/")
        colour = LINES[(number if side not in SIDES else _place(side)) % len(LINES)]
        place = _number(network)
        style = ("-", "--", ":", "-.")[(place or 0) % 4]
        label = _label(side, network, run.config)
        _draw_line(above, updates, _column(run.metrics, name), colour, style, label)
    add_legend(above)
    _whole_ticks(above)
    for axes in below:
        dress(axes, x="update", y="MAP steps")
        _draw_steps(axes, run.metrics, steps, updates)
    return figure


def reliability_diagram(run: RunReport) -> Figure | None:
    """Accuracy per bin of confidence beside the diagonal of perfect calibration; below, shares.

    Args:
        run: the run
    """
    bins = mapping((run.evaluation or {}).get("reliability"))
    columns = [listed(bins.get(name)) for name in ("share", "confidence", "accuracy")]
    known = [[value for value in map(finite, column) if value is not None] for column in columns]
    if len({len(column) for column in [*columns, *known]}) > 1 or not columns[0]:
        return None
    share, confidence, accuracy = (numpy.asarray(c).clip(0, 1) for c in known)
    figure = new_figure(WIDTH, HEIGHT)
    above, below = stack(figure, (3, 1), head=0.28)
    dress(above, y="accuracy")
    edges = numpy.linspace(0, 1, len(share) + 1)
    seen = share > 0
    bars: dict[str, Any] = {"width": 0.92 / len(share), "color": LINES[0]}
    middles = (edges[:-1] + edges[1:]) / 2
    above.bar(middles[seen], accuracy[seen], alpha=0.85, label="accuracy in the bin", **bars)
    above.plot((0, 1), (0, 1), color=INK, linewidth=1, linestyle="--", label="calibrated")
    above.set_ylim(0, 1.02)
    add_legend(above)
    error = float((share * abs(accuracy - confidence)).sum())
    above.set_title(f"ECE {error:.3f}", loc="right", fontsize=9, color=INK, pad=5)
    dress(below, x="confidence", y="share")
    below.bar(middles, share, alpha=0.5, **bars)
    below.set_xlim(0, 1)
    return figure


def chain_traces(run: RunReport) -> Figure | None:
    """The training loss along each chain, one colour per seed.

    Args:
        run: the run
    """
    traces = [
        (seed, [value for value in map(_drawn, listed(trace)) if value is not None])
        for seed, signs in enumerate(run.samplers)
        for trace in listed(signs.get("loss_trace"))
    ]
    traces = [(seed, trace) for seed, trace in traces if trace]
    if not traces:
        return None
    figure = new_figure(WIDTH, HEIGHT)
    (axes,) = stack(figure, (1,), head=0.28)
    dress(axes, x="epoch of the chain", y="training loss")
    named: set[int] = set()
    for seed, trace in traces:
        epochs = count(run.protocol.get("epochs")) or len(trace)
        ends = numpy.arange(1, len(trace) + 1) * epochs / len(trace)
        new = seed not in named and len(run.samplers) <= 6
        label = f"seed {printable(run.samplers[seed].get('seed', seed), 20)}" if new else None
        named.add(seed)
        colour = LINES[seed % len(LINES)]
        axes.plot(ends, trace, color=colour, linewidth=1.1, alpha=0.85, label=label)
    lowest = min(min(trace) for _, trace in traces)
    if lowest > 0 and max(max(trace) for _, trace in traces) > 20 * lowest:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif lowest >= 0:
        axes.set_ylim(bottom=0)
    add_legend(axes, ncols=6)
    return figure


def risk_and_coverage(run: RunReport) -> Figure | None:
    """Accuracy against the share of points that are kept, the most confident first.

    Args:
        run: the run
    """
    curve = mapping((run.evaluation or {}).get("selective"))
    kept, accuracy = ([_drawn(v) for v in listed(curve.get(k))] for k in ("kept", "accuracy"))
    points = [(x, y) for x, y in zip(kept, accuracy, strict=False) if None not in (x, y)]
    if not points or len(points) != len(kept):
        return None
    figure = new_figure(WIDTH, HEIGHT)
    (axes,) = stack(figure, (1,), head=0.1)
    dress(axes, x="share of the points kept", y="accuracy on them")
    axes.plot(*zip(*points, strict=True), "o-", color=LINES[0], markersize=3)
    axes.set_xlim(0, 1.02)
    return figure


def predicted_and_true(run: RunReport) -> Figure | None:
    """Predicted against true targets of a regression's test points, with standard deviations.

    Args:
        run: the run
    """
    rows = [mapping(row) for row in listed(run.examples.get("fitted"))]
    columns = [
        [_drawn(value) for row in rows for value in listed(row.get(name))]
        for name in ("target", "mean", "std")
    ]
    points = [[v for v in found if v is not None] for found in zip(*columns, strict=False)]
    if not points or any(len(point) < 3 or point[2] < 0 for point in points):
        return None
    target, mean, std = zip(*points, strict=True)
    figure = new_figure(WIDTH, HEIGHT)
    (axes,) = stack(figure, (1,), head=0.1)
    dress(axes, x="true target", y="predicted")
    ends = (min(target), max(target))
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle="--")
    look: dict[str, Any] = {"fmt": "o", "markersize": 2.5, "elinewidth": 0.5, "alpha": 0.7}
    axes.errorbar(target, mean, std, color=LINES[0], **look)
    shorten_ticks(axes)
    return figure


def prediction_traces(run: RunReport) -> Figure | None:
    """Predictions along chains at the points with the median and the largest R̂.

    Args:
        run: the run
    """
    traces = mapping(run.convergence.get("traces"))
    shown: dict[str, list[list[float]]] = {}
    for name in ("median", "worst"):
        chains = [[_drawn(value) for value in listed(c)] for c in listed(traces.get(name))]
        known = [[v for v in chain if v is not None] for chain in chains]
        if known and known == chains and all(known):
            shown[name] = known
    if not shown:
        return None
    figure = new_figure(WIDTH, HEIGHT)
    places = stack(figure, (1,) * len(shown), head=0.1)
    for axes, (name, found) in zip(places, shown.items(), strict=True):
        what = "probability" if run.has_classes else "prediction"
        dress(axes, x="draw" if axes is places[-1] else "", y=f"{what}, {name}")
        for number, chain in enumerate(found):
            colour = LINES[number % len(LINES)]
            draws = numpy.arange(1, len(chain) + 1)
            axes.plot(draws, chain, color=colour, linewidth=1.0, alpha=0.85)
        _whole_ticks(axes)
        shorten_ticks(axes)
    return figure


def _draw_line(
    axes: Axes,
    updates: Float[numpy.ndarray, " n"],
    values: Float[numpy.ndarray, " n"],
    colour: str,
    style: str,
    label: str,
) -> None:
    """A curve, with its running mean if it is long."""
    if len(values) < SMOOTHED_FROM:
        axes.plot(updates, values, style, color=colour, linewidth=1.3, label=label)
        return
    axes.plot(updates, values, color=colour, linewidth=0.5, alpha=0.3)
    window = len(values) // 40
    known = numpy.isfinite(values)
    weight = numpy.convolve(known, numpy.ones(window), "same")
    total = numpy.convolve(numpy.where(known, values, 0.0), numpy.ones(window), "same")
    mean = numpy.where(weight > 0, total / numpy.maximum(weight, 1), numpy.nan)
    axes.plot(updates, mean, style, color=colour, linewidth=1.4, label=label)


def _draw_steps(
    axes: Axes,
    metrics: list[dict[str, Any]],
    names: Sequence[str],
    updates: Float[numpy.ndarray, " n"],
) -> None:
    missed = numpy.asarray([missed_gamma(row) for row in metrics])
    for name in names:
        steps = _column(metrics, name)
        axes.plot(updates, steps, ".", color=INK, markersize=2.5)
        axes.plot(updates[missed], steps[missed], "x", color=BAD, markersize=4)
    _whole_ticks(axes)
    if axes.get_ylim()[1] > 0:
        axes.set_ylim(bottom=0)


def _loss_names(metrics: list[dict[str, Any]]) -> list[str]:
    """FBPC's two losses, once a network; of other methods what looks like a loss, or all."""
    known = [name for side in SIDES for name in _names(metrics, side)]
    keys = [key for key in _all_names(metrics) if key != "update" and not key.startswith("map_")]
    losses = [key for key in keys if "loss" in key or key.split("/")[0] == "nll"]
    return (known or losses or keys)[:MOST_LINES]


def _names(metrics: list[dict[str, Any]], base: str) -> list[str]:
    """`base` itself, or `base/0`, `base/1`, … of several networks."""
    return [name for name in _all_names(metrics) if name.split("/")[0] == base]


def _all_names(metrics: list[dict[str, Any]]) -> list[str]:
    """The names of all figures of which at least one can be drawn, in order of appearance."""
    seen = {key: None for row in metrics for key, value in row.items() if _drawn(value) is not None}
    return list(seen)


def _column(metrics: list[dict[str, Any]], name: str) -> Float[numpy.ndarray, " n"]:
    values = [_drawn(row.get(name)) for row in metrics]
    return numpy.asarray([numpy.nan if value is None else value for value in values], dtype=float)


def _place(side: str) -> int:
    return list(SIDES).index(side)


def _label(side: str, network: str, config: dict[str, Any]) -> str:
    """What a curve is called: in words, with the network if there are several."""
    name = SIDES.get(side, printable(side, 40))
    nets, place = listed(config.get("nets")), _number(network)
    if place is not None and place < len(nets):
        return f"{name}, {printable(nets[place], 40).split(':')[0]}"
    return f"{name}, network {printable(network, 20)}" if network else name


def _number(network: str) -> int | None:
    """The place of a network in `loss_x/0`; None for anything else."""
    return int(network) if network.isdecimal() and len(network) < 4 else None


def _drawn(value: object) -> float | None:
    """A number that axes can show."""
    number = finite(value)
    return number if number is not None and abs(number) < LARGEST else None


def _loss_label(run: RunReport, names: Sequence[str]) -> str:
    if names[0].split("/")[0] not in SIDES:
        return "value"
    return "cross-entropy" if run.has_classes else "negative log-likelihood"


def _whole_ticks(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
