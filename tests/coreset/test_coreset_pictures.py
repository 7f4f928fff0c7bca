"""What of a coreset is shown."""

import io
import subprocess
import sys
from dataclasses import replace

import numpy
import pytest
import torch
from make_coresets import KINDS, make_coreset

from pseudocoreset.coreset.pictures import (
    coreset_grid,
    images_by_class,
    images_caption,
    table_figure,
)
from pseudocoreset.data import Scaling
from pseudocoreset.errors import UserError

GREY = Scaling((0.5,), (0.25,))


def make_grey(ipc: int, size: int = 8, names: tuple[str, ...] = ("a", "b", "c")):
    inputs = torch.randn(ipc * len(names), 1, size, size)
    return make_coreset(names=names, ipc=ipc, inputs=inputs, scaling=GREY)


def pixels_of(figure) -> numpy.ndarray:
    figure.canvas.draw()
    return numpy.asarray(figure.canvas.buffer_rgba())[..., :3]


@pytest.mark.parametrize("kind", KINDS)
def test_show_and_html_work_for_every_kind(kind):
    coreset = make_coreset(kind)
    figure = coreset.show()
    figure.savefig(io.BytesIO(), format="png")
    html = coreset._repr_html_()
    assert "fbpc on pets" in html
    assert ("<img" in html) == coreset.is_image
    assert ("<table" in html) != coreset.is_image


@pytest.mark.parametrize(("size", "ipc"), [(8, 1), (32, 10), (32, 50)])
def test_grid_shows_every_pixel_as_a_square_of_one_colour(size, ipc):
    coreset = make_grey(ipc, size, tuple("abcdefghij"))
    drawn = pixels_of(coreset_grid(coreset))
    zoom = 64 // size
    for group in images_by_class(coreset)[::9]:
        assert _contains(drawn, group.pixels[-1].repeat(zoom, 0).repeat(zoom, 1))


def _contains(large, small) -> bool:
    windows = numpy.lib.stride_tricks.sliding_window_view(large[..., 0], small.shape[:2])
    corners = (windows[..., 0, 0] == small[0, 0, 0]) & (windows[..., -1, -1] == small[-1, -1, 0])
    return any(
        (large[top : top + small.shape[0], left : left + small.shape[1]] == small).all()
        for top, left in zip(*numpy.nonzero(corners), strict=True)
    )


def test_grid_of_a_large_set_shows_some_and_says_how_many():
    coreset = make_grey(50)
    groups = images_by_class(coreset)
    assert [len(group.pixels) for group in groups] == [10, 10, 10]
    assert images_caption(coreset, groups) == "10 of the 50 images of each class (150 in all)."
    all_of_them = images_by_class(coreset, 50)
    assert images_caption(coreset, all_of_them) == "All 150 images by class."
    many = make_grey(5, names=tuple(f"class {i}" for i in range(100)))
    assert {len(group.pixels) for group in images_by_class(many)} == {3}


def test_grid_leaves_a_class_empty_that_no_label_is_of():
    soft = torch.tensor([[0.8, 0.2, 0], [0.7, 0.3, 0], [0, 0.1, 0.9]])
    coreset = make_coreset(ipc=1, targets=soft)
    assert [group.total for group in images_by_class(coreset)] == [2, 0, 1]
    coreset_grid(coreset).canvas.draw()


def test_grid_of_a_mosaic_shows_what_networks_see():
    coreset = make_coreset("mosaic")
    groups = images_by_class(coreset)
    assert [group.total for group in groups] == [8, 8, 8]
    assert images_caption(coreset, groups).endswith("Stored 6, seen 24 (mosaic:2).")
    seen = coreset.scaling.invert(coreset.form.decode(coreset.inputs))
    first = seen[:4].permute(0, 2, 3, 1).numpy()  # the tiles of the first stored image
    assert (groups[0].pixels[:4] == first).all()
    assert _contains(pixels_of(coreset_grid(coreset)), first[3].repeat(8, 0).repeat(8, 1))


def test_grid_of_a_regression_shows_targets_in_their_own_units():
    coreset = make_coreset("image regression", targets=torch.tensor([[0.5]] * 6))
    assert {group.name for group in images_by_class(coreset)} == {"105"}


def test_to_pil_gives_the_images_that_networks_see():
    coreset = make_coreset("mosaic")
    images = coreset.to_pil()
    seen = coreset.scaling.invert(coreset.seen_inputs).permute(0, 2, 3, 1).numpy()
    assert len(images) == 24
    assert all((numpy.asarray(a) == b).all() for a, b in zip(images, seen, strict=True))
    assert make_grey(1).to_pil()[0].mode == "L"
    with pytest.raises(UserError):
        make_coreset("table").to_pil()


def test_table_figure_shows_a_row_a_point_in_the_order_of_targets():
    figure = make_coreset("regression").show()
    shown = numpy.asarray(figure.axes[0].images[0].get_array())
    coreset = make_coreset("regression")
    order = coreset.targets[:, 0].argsort()
    assert numpy.allclose(shown, coreset.inputs[order].numpy())
    texts = [float(label.get_text()) for label in figure.axes[0].get_yticklabels()]
    assert texts == sorted(texts)


def test_table_figure_can_follow_the_order_of_another_coreset():
    coreset = make_coreset("regression")
    other = replace(coreset, targets=coreset.targets.flip(0))
    shown = numpy.asarray(table_figure(coreset, other).axes[0].images[0].get_array())
    order = other.targets[:, 0].argsort()
    assert not numpy.array_equal(order, coreset.targets[:, 0].argsort())
    assert numpy.allclose(shown, coreset.inputs[order].numpy())


def test_html_table_is_short_and_escaped():
    nasty = ("<script>x</script>", "b", "c")
    html = make_coreset("table", names=nasty, ipc=10)._repr_html_()
    assert html.count("<tr>") == 21
    assert "and 10 more" in html
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;b&gt;blue" in html


def test_names_that_are_no_text_are_drawn():
    names = ("$a_{b", "\ud800\x1b[31m\n", "猫")
    coreset = make_coreset(names=names, provenance=replace(make_coreset().provenance, data="<i>"))
    html = coreset._repr_html_()
    assert "<i>" not in html
    html.encode()


def test_import_of_coreset_does_not_import_matplotlib():
    code = "import sys, pseudocoreset.coreset; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
