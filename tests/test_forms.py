"""Forms against slow twins, their transposes, and what they refuse."""

from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from pseudocoreset.errors import UserError
from pseudocoreset.forms import COLOURS, Chroma, Form, Mosaic, Pixels, parse_form

TILED = [Pixels(), Mosaic(2), Mosaic(3), Mosaic(4)]
FORMS = [*TILED, Chroma(1), Chroma(2), Chroma(3)]


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("factor", "height", "width"), [(2, 8, 8), (3, 12, 6), (4, 4, 4)])
def test_mosaic_equals_its_tiles_one_by_one(factor, height, width, dtype):
    stored = drawn(3, 2, height, width).to(dtype)
    seen = Mosaic(factor).decode(stored)
    assert seen.shape == (3 * factor**2, 2, height, width)
    assert seen.dtype == dtype
    tall, wide = height // factor, width // factor
    for image in range(3):
        for r in range(factor):
            for c in range(factor):
                tile = stored[image, :, r * tall : (r + 1) * tall, c * wide : (c + 1) * wide]
                expected = F.interpolate(
                    tile[None], size=(height, width), mode="bilinear", align_corners=False
                )[0]
                found = seen[image * factor**2 + r * factor + c]
                torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_pull_back_is_the_transpose_of_decode(form):
    stored = drawn(2, 3, 12, 12)
    seen = form.decode(stored)
    gradient = drawn(*seen.shape, seed=1)
    back = form.pull_back(gradient, stored)
    assert back.shape == stored.shape
    assert not back.requires_grad
    torch.testing.assert_close((seen * gradient).sum(), (stored * back).sum())


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_pull_back_is_the_gradient_by_finite_differences(form):
    stored, step = drawn(1, 3, 12, 12), 1e-6
    weight = drawn(*form.decode(stored).shape, seed=1)

    def loss(z: torch.Tensor) -> torch.Tensor:
        return (weight * form.decode(z).sin()).sum()

    seen = form.decode(stored)
    back = form.pull_back(weight * seen.cos(), stored)
    for channel, row, column in ((0, 0, 0), (0, 5, 6), (1, 11, 3), (2, 2, 11), (2, 8, 1)):
        moved = torch.zeros_like(stored)
        moved[0, channel, row, column] = step
        expected = (loss(stored + moved) - loss(stored - moved)) / (2 * step)
        found = back[0, channel, row, column]
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_decode_is_linear_and_differentiable(form):
    one, two = drawn(2, 3, 12, 12), drawn(2, 3, 12, 12, seed=1)
    both = form.decode(2 * one - 3 * two)
    torch.testing.assert_close(both, 2 * form.decode(one) - 3 * form.decode(two))
    leaf = one.clone().requires_grad_()
    seen = form.decode(leaf)
    gradient = drawn(*seen.shape, seed=2)
    (found,) = torch.autograd.grad(seen, leaf, gradient)
    torch.testing.assert_close(found, form.pull_back(gradient, one))


@pytest.mark.parametrize("form", TILED, ids=str)
def test_encode_puts_the_means_of_an_image_into_its_tile(form):
    inputs = drawn(2 * form.seen, 3, 12, 12)
    stored = form.encode(inputs)
    assert stored.shape == (2, 3, 12, 12)
    factor, side = form.factor, 12 // form.factor
    for number in range(len(inputs)):
        image, place = divmod(number, form.seen)
        r, c = divmod(place, factor)
        for y in range(side):
            for x in range(side):
                square = inputs[number, :, y * factor : (y + 1) * factor, x * factor :][
                    ..., :factor
                ]
                found = stored[image, :, r * side + y, c * side + x]
                torch.testing.assert_close(found, square.mean((1, 2)))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_smooth_images_are_seen_as_they_were_encoded(form):
    levels = torch.arange(3 * form.seen, dtype=torch.float64).view(-1, 3, 1, 1)
    flat = levels.expand(-1, 3, 12, 12)
    torch.testing.assert_close(form.decode(form.encode(flat)), flat)
    ramp = flat + torch.linspace(0, 1, 12, dtype=torch.float64)
    inner = slice(form.factor, -form.factor)  # beyond the last means there is nothing
    found = form.decode(form.encode(ramp))
    torch.testing.assert_close(found[..., inner], ramp[..., inner])


def chroma_by_hand(stored: torch.Tensor, factor: int) -> torch.Tensor:
    """Image by image, tile by tile, pixel by pixel."""
    count, _, height, width = stored.shape
    tall, wide = height // factor, width // factor
    basis = torch.tensor(COLOURS, dtype=stored.dtype)
    found = []
    for image in range(count):
        for half in range(2):
            for r in range(factor):
                for c in range(factor):
                    rows, columns = slice(r * tall, (r + 1) * tall), slice(c * wide, (c + 1) * wide)
                    planes = [stored[image, half, rows, columns]]
                    for colour in range(2):
                        top = half * height // 2 + r * tall // 2
                        left = colour * width // 2 + c * wide // 2
                        planes.append(
                            stored[image, 2, top : top + tall // 2, left : left + wide // 2]
                        )
                    large = [
                        F.interpolate(
                            plane[None, None],
                            size=(height, width),
                            mode="bilinear",
                            align_corners=False,
                        )[0, 0]
                        for plane in planes
                    ]
                    found.append(sum(basis[k].view(3, 1, 1) * large[k] for k in range(3)))
    return torch.stack(found)


@pytest.mark.parametrize(("factor", "height", "width"), [(1, 4, 8), (2, 8, 8), (3, 12, 6)])
def test_chroma_equals_its_tiles_one_by_one(factor, height, width):
    stored = drawn(2, 3, height, width)
    found = Chroma(factor).decode(stored)
    assert found.shape == (2 * 2 * factor**2, 3, height, width)
    torch.testing.assert_close(found, chroma_by_hand(stored, factor))


def test_the_colours_are_orthonormal_and_the_first_is_brightness():
    basis = torch.tensor(COLOURS, dtype=torch.float64)
    torch.testing.assert_close(basis @ basis.T, torch.eye(3, dtype=torch.float64))
    assert basis[0].unique().numel() == 1


def test_chroma_keeps_brightness_finer_than_colour():
    grey = drawn(2, 1, 4, 4).expand(-1, 3, -1, -1)
    torch.testing.assert_close(Chroma(1).decode(Chroma(1).encode(grey)), grey)
    coloured = drawn(2, 3, 4, 4)
    found = Chroma(1).decode(Chroma(1).encode(coloured))
    torch.testing.assert_close(found.sum(1), coloured.sum(1))
    assert not torch.allclose(found, coloured)


@pytest.mark.parametrize("form", [Mosaic(2), Chroma(1)], ids=str)
def test_encode_refuses_too_few_images(form):
    with pytest.raises(ValueError, match="5"):
        form.encode(drawn(5, 3, 4, 4))


def test_pixels_take_tables():
    stored, gradient = drawn(4, 7), drawn(4, 7, seed=1)
    form = Pixels()
    form.check((7,))
    assert torch.equal(form.decode(stored), stored)
    assert torch.equal(form.pull_back(gradient, stored), gradient)
    assert torch.equal(form.encode(stored), stored)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_targets_are_repeated_in_the_order_of_what_is_seen(form):
    classes = torch.tensor([5, 7])
    assert form.repeat(classes).tolist() == [5] * form.seen + [7] * form.seen
    assert form.repeat(drawn(2, 3)).shape == (2 * form.seen, 3)
    assert form.seen == form.factor**2 * (2 if isinstance(form, Chroma) else 1)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_form_is_a_value_with_a_name(form):
    again = parse_form(str(form))
    assert again == form
    assert hash(again) == hash(form)
    assert parse_form(form) is form


def test_names_are_those_of_the_files():
    names = ["pixels", "mosaic:2", "mosaic:3", "mosaic:4", "chroma:1", "chroma:2", "chroma:3"]
    assert [str(form) for form in FORMS] == names


@pytest.mark.parametrize(
    "text",
    [
        *("", "pixel", "Pixels", "pixels:2", "mosaic", "mosaic:", "mosaic:x", "mosaic:-2"),
        *("mosaic:2.0", "mosaic: 2", "mosaic:0", "mosaic:1", "mosaic:65", "mosaic:99999999999"),
        *("mosaic:²", "mosaic:02", "mosaic:2\n", "\x1b[31m", "chroma", "chroma:0", "chroma:65"),
    ],
)
def test_other_names_are_refused(text):
    with pytest.raises(UserError) as caught:
        parse_form(text)
    assert caught.value.parameter == "form"
    assert str(caught.value).isprintable()


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_a_form_or_refused(text):
    with suppress(UserError):
        assert str(parse_form(text)) == text


@pytest.mark.parametrize(
    ("form", "factor"), [(Mosaic, -2), (Mosaic, 0), (Mosaic, 1), (Mosaic, 65), (Chroma, 0)]
)
def test_impossible_factors_are_refused(form, factor):
    with pytest.raises(UserError) as caught:
        form(factor)
    assert caught.value.parameter == "form"


@pytest.mark.parametrize("shape", [(1, 28, 27), (1, 27, 28), (3, 9, 9), (8,), ()])
def test_inputs_that_cannot_be_tiled_are_refused(shape):
    with pytest.raises(UserError) as caught:
        Mosaic(4).check(shape)
    assert caught.value.parameter == "form"


@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 28, 28), (3, 6)])
def test_chroma_takes_colour_images_whose_sides_can_be_halved(shape):
    with pytest.raises(UserError) as caught:
        Chroma(4).check(shape)
    assert caught.value.parameter == "form"
    Chroma(4).check((3, 32, 8))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 8)])
def test_inputs_that_can_be_tiled_are_taken(shape):
    Mosaic(4).check(shape)
    assert Mosaic(4).decode(torch.zeros(1, *shape)).shape == (16, *shape)


@pytest.mark.cuda
@pytest.mark.parametrize("form", [Mosaic(2), Chroma(2)], ids=str)
def test_pull_back_is_the_same_from_run_to_run_and_can_be_captured(form: Form):
    stored = drawn(10, 3, 32, 32).float().cuda()
    gradient = drawn(10 * form.seen, 3, 32, 32, seed=1).float().cuda()
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        found = [form.pull_back(gradient, stored) for _ in range(5)]
    torch.cuda.synchronize()
    assert all(torch.equal(found[0], other) for other in found)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = form.pull_back(gradient, stored)
    graph.replay()
    assert torch.equal(captured, found[0])
    torch.testing.assert_close(
        captured.cpu(), form.pull_back(gradient.cpu(), stored.cpu()), rtol=1e-5, atol=1e-5
    )
