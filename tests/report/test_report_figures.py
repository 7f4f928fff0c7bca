import pytest
from make_reports import make_evaluation, make_metrics, make_regression, make_run, make_table

from pseudocoreset.report.figures import (
    chain_traces,
    loss_curves,
    predicted_and_true,
    prediction_traces,
    reliability_diagram,
)


def test_loss_curves_are_named_and_smoothed():
    assert loss_curves(make_run(metrics=[])) is None
    short, long = loss_curves(make_run()), loss_curves(make_run(metrics=make_metrics(400)))
    assert short is not None
    assert long is not None
    assert [line.get_label() for line in short.axes[0].lines] == [
        "data's posterior",
        "coreset's posterior",
    ]
    mean = list(long.axes[0].lines[-1].get_ydata())  # of a constant
    assert mean == pytest.approx([0.5] * 400)


def test_loss_curves_name_the_loss_of_the_task():
    found = loss_curves(make_run())
    regression = loss_curves(make_run(coreset=make_table(regression=True)))
    assert found is not None
    assert regression is not None
    assert found.axes[0].get_ylabel() == "cross-entropy"
    assert regression.axes[0].get_ylabel() == "negative log-likelihood"


def test_loss_of_real_points_is_drawn_beside_that_of_the_coreset():
    """Of vbpc and unrolled, whose other figures have units of their own."""
    row = {"nll": 1.5, "kl": 0.01, "age": 180.0, "student_loss": 0.6, "gradient_norm": 0.07}
    found = loss_curves(make_run(metrics=[{"update": n, **row} for n in (1, 2)]))
    assert found is not None
    assert [line.get_label() for line in found.axes[0].lines] == ["nll", "student_loss"]


def test_reliability_diagram_states_the_error_of_its_bins():
    figure = reliability_diagram(make_run())
    assert figure is not None
    assert figure.axes[0].get_title(loc="right") == "ECE 0.070"  # ¼ · 0.1 + ¾ · 0.06
    assert [bar.get_height() for bar in figure.axes[0].patches] == [0.5, 0.96]


@pytest.mark.parametrize("bins", [None, {}, 3, {"share": [1]}, {"share": ["x"]}])
def test_reliability_diagram_of_damaged_bins_is_none(bins):
    assert reliability_diagram(make_run(evaluation={"reliability": bins})) is None


def test_chain_traces_end_at_the_last_epoch():
    figure = chain_traces(make_run(evaluation=make_evaluation(seeds=3)))
    assert figure is not None
    lines = figure.axes[0].lines
    assert [line.get_label() for line in lines] == ["seed 40", "seed 41", "seed 42"]
    assert list(lines[0].get_xdata()) == [25, 50, 75, 100]


def test_large_targets_leave_room_for_the_labels():
    rows = [{"target": [t], "mean": [t + 2e4], "std": [1e4]} for t in (9e4, 1.6e5)]
    traces = {name: [[112e3, 118e3], [115e3, 116e3]] for name in ("median", "worst")}
    known = {"examples": {"fitted": rows}, "convergence": {"traces": traces}}
    run = make_run(coreset=make_table(regression=True), evaluation=make_regression() | known)
    for drawn in (predicted_and_true(run), prediction_traces(run)):
        assert drawn is not None
        drawn.canvas.draw()
        for axes in drawn.axes:
            label = axes.yaxis.label.get_window_extent()
            ticks = [tick.get_window_extent() for tick in axes.get_yticklabels() if tick.get_text()]
            assert ticks
            assert not any(label.overlaps(tick) for tick in ticks)
