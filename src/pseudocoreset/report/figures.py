"""Figures of a run: losses, calibration, and the signs that a sampler works.

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

from pseudocoreset.report.run_report import RunReport, finite
from pseudocoreset.report.style import BAD, INK, LINES, add_legend, dress, new_figure, stack
from pseudocoreset.run_folder import missed_gamma

WIDTH = 4.4
HEIGHT = 3.2
SIDES = {"loss_x": "data's posterior", "loss_u": "coreset's posterior"}
MOST_LINES = 8
SMOOTHED_FROM = 100
"""Updates from which on a running mean is drawn over the noise."""


def loss_curves(run: RunReport) -> Figure | None:
    """The method's losses over the updates, and below, where there are any, its MAP steps."""
    losses, steps = _loss_names(run.metrics), _names(run.metrics, "map_steps")
    if not losses:
        return None
    figure = new_figure(WIDTH, HEIGHT)
    above, *below = stack(
        figure, (3, 1) if steps else (1,), head=0.1 + 0.18 * ceil(len(losses) / 2)
    )
    updates = _column(run.metrics, "update")
    if not numpy.isfinite(updates).all():
        updates = numpy.arange(1.0, len(run.metrics) + 1)
    dress(above, x="" if steps else "update", y=_loss_label(losses))
    for number, name in enumerate(losses):
        side, _, network = name.partition("/")
        colour = LINES[(number if side not in SIDES else _place(side)) % len(LINES)]
        style = ("-", "--", ":", "-.")[int(network) % 4 if network.isdigit() else 0]
        label = _label(side, network, run.config)
        _draw_line(above, updates, _column(run.metrics, name), colour, style, label)
    add_legend(above)
    _whole_ticks(above)
    for axes in below:
        dress(axes, x="update", y="MAP steps")
        _draw_steps(axes, run.metrics, steps, updates)
    return figure


def reliability_diagram(run: RunReport) -> Figure | None:
    """Accuracy per bin of confidence beside the diagonal of perfect calibration; below, shares."""
    bins = (run.evaluation or {}).get("reliability") or {}
    if not all(bins.get(name) for name in ("share", "confidence", "accuracy")):
        return None
    share, confidence, accuracy = (
        numpy.asarray(bins[name], dtype=float) for name in ("share", "confidence", "accuracy")
    )
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
    """The training loss along each chain, one colour a seed."""
    traces = [
        (seed, [value for value in map(finite, trace) if value is not None])
        for seed, signs in enumerate(run.samplers)
        for trace in signs.get("loss_trace") or []
    ]
    traces = [(seed, trace) for seed, trace in traces if trace]
    if not traces:
        return None
    figure = new_figure(WIDTH, HEIGHT)
    (axes,) = stack(figure, (1,), head=0.28)
    dress(axes, x="epoch of the chain", y="training loss")
    named: set[int] = set()
    for seed, trace in traces:
        epochs = run.protocol.get("epochs", len(trace))
        ends = numpy.arange(1, len(trace) + 1) * epochs / len(trace)
        new = seed not in named and len(run.samplers) <= 6
        label = f"seed {run.samplers[seed].get('seed', seed)}" if new else None
        named.add(seed)
        colour = LINES[seed % len(LINES)]
        axes.plot(ends, trace, color=colour, linewidth=1.1, alpha=0.85, label=label)
    lowest = min(min(trace) for _, trace in traces)
    if lowest > 0 and max(max(trace) for _, trace in traces) > 20 * lowest:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    add_legend(axes, ncols=6)
    return figure


def _draw_line(
    axes: Axes,
    updates: Float[numpy.ndarray, " n"],
    values: Float[numpy.ndarray, " n"],
    colour: str,
    style: str,
    label: str,
) -> None:
    """A curve; of a long run its running mean, over the faint curve itself."""
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
    axes.set_ylim(bottom=0)
    _whole_ticks(axes)


def _loss_names(metrics: list[dict[str, Any]]) -> list[str]:
    """FBPC's two losses, once a network; of other methods what looks like a loss, or all."""
    known = [name for side in SIDES for name in _names(metrics, side)]
    keys = [key for key in _all_names(metrics) if key != "update" and not key.startswith("map_")]
    return (known or [key for key in keys if "loss" in key] or keys)[:MOST_LINES]


def _names(metrics: list[dict[str, Any]], base: str) -> list[str]:
    """`base` itself, or `base/0`, `base/1`, … of several networks."""
    return [name for name in _all_names(metrics) if name.split("/")[0] == base]


def _all_names(metrics: list[dict[str, Any]]) -> list[str]:
    """The names of all figures of which at least one can be drawn, in order of appearance."""
    seen = {key: None for row in metrics for key, value in row.items() if finite(value) is not None}
    return list(seen)


def _column(metrics: list[dict[str, Any]], name: str) -> Float[numpy.ndarray, " n"]:
    values = [finite(row.get(name)) for row in metrics]
    return numpy.asarray([numpy.nan if value is None else value for value in values], dtype=float)


def _place(side: str) -> int:
    return list(SIDES).index(side)


def _label(side: str, network: str, config: dict[str, Any]) -> str:
    """What a curve is called: in words, with the network where there are several."""
    name = SIDES.get(side, side)
    nets = config.get("nets") or []
    if network.isdigit() and int(network) < len(nets):
        return f"{name}, {str(nets[int(network)]).split(':')[0]}"
    return f"{name}, network {network}" if network else name


def _loss_label(names: Sequence[str]) -> str:
    return "cross-entropy" if names[0].split("/")[0] in SIDES else "value"


def _whole_ticks(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
