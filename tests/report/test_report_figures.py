from dataclasses import replace

import numpy
import pytest
import torch
from make_reports import make_coreset, make_evaluation, make_metrics, make_run

from pseudocoreset.report import coreset_grid
from pseudocoreset.report.figures import chain_traces, loss_curves, reliability_diagram
from pseudocoreset.report.images import images_by_class, images_caption


@pytest.mark.parametrize(("size", "channels", "ipc"), [(8, 1, 1), (32, 3, 10), (32, 3, 50)])
def test_every_pixel_of_the_grid_is_a_square_of_one_colour(size, channels, ipc):
    coreset = make_coreset(tuple("abcdefghij"), ipc=ipc, size=size, channels=channels)
    figure = coreset_grid(coreset)
    figure.canvas.draw()
    drawn = numpy.asarray(figure.canvas.buffer_rgba())[..., :3]
    zoom = 64 // size
    for group in images_by_class(coreset)[::9]:
        last = group.pixels[-1].repeat(zoom, 0).repeat(zoom, 1)
        assert _contains(drawn, last)


def _contains(large, small) -> bool:
    windows = numpy.lib.stride_tricks.sliding_window_view(large[..., 0], small.shape[:2])
    corners = (windows[..., 0, 0] == small[0, 0, 0]) & (windows[..., -1, -1] == small[-1, -1, 0])
    return any(
        (large[top : top + small.shape[0], left : left + small.shape[1]] == small).all()
        for top, left in zip(*numpy.nonzero(corners), strict=True)
    )


def test_large_sets_show_some_and_say_how_many():
    coreset = make_coreset(ipc=50)
    groups = images_by_class(coreset)
    assert [len(group.pixels) for group in groups] == [10, 10, 10]
    assert images_caption(groups) == "10 of the 50 images of each class (150 in all)."
    assert images_caption(images_by_class(coreset, 50)) == "All 150 images by class."
    many = make_coreset(tuple(f"class {i}" for i in range(100)), ipc=5)
    assert {len(group.pixels) for group in images_by_class(many)} == {3}


def test_learned_labels_may_leave_a_class_empty():
    coreset = make_coreset(ipc=1)
    coreset = replace(coreset, labels=torch.tensor([[0.8, 0.2, 0], [0.7, 0.3, 0], [0, 0.1, 0.9]]))
    groups = images_by_class(coreset)
    assert [group.total for group in groups] == [2, 0, 1]
    coreset_grid(coreset).canvas.draw()


def test_loss_curves_of_short_long_and_no_runs():
    assert loss_curves(make_run(metrics=[])) is None
    short, long = loss_curves(make_run()), loss_curves(make_run(metrics=make_metrics(400)))
    assert short is not None
    assert long is not None
    assert [line.get_label() for line in short.axes[0].lines] == [
        "data's posterior",
        "coreset's posterior",
    ]
    mean = numpy.asarray(long.axes[0].lines[-1].get_ydata())  # of a constant
    assert numpy.allclose(mean, 0.5)


def test_the_reliability_diagram_states_the_error_of_its_bins():
    figure = reliability_diagram(make_run())
    assert figure is not None
    assert figure.axes[0].get_title(loc="right") == "ECE 0.070"  # ¼ · 0.1 + ¾ · 0.06
    assert [bar.get_height() for bar in figure.axes[0].patches] == [0.5, 0.96]


def test_traces_end_at_the_last_epoch():
    figure = chain_traces(make_run(evaluation=make_evaluation(seeds=3)))
    assert figure is not None
    lines = figure.axes[0].lines
    assert [line.get_label() for line in lines] == ["seed 40", "seed 41", "seed 42"]
    assert list(lines[0].get_xdata()) == [25, 50, 75, 100]
