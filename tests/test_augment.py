"""DSA against slow twins, by its gradient, and by the distribution of what it draws."""

from collections.abc import Callable
from math import atan2, pi

import numpy as np
import pytest
import torch
from torch import Tensor

from oracles import augment as slow
from pseudocoreset.augment import KINDS, Augmentation, Draw
from pseudocoreset.errors import UserError

SHAPES = [(3, 32), (1, 8), (3, 9)]  # channels and side; 9 has an odd square to cut out
MANY = 20_000


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_images(number: int, channels: int, size: int, seed: int = 1) -> Tensor:
    return torch.randn(number, channels, size, size, generator=rng(seed))


# What a draw says of image i, in the twin's words.


def twin_color(image: slow.Image, draw: Draw, i: int) -> slow.Image:
    parameters = (draw.brightness[i], draw.saturation[i], draw.contrast[i])
    return slow.slow_color(image, *(float(value) for value in parameters))


def twin_crop(image: slow.Image, draw: Draw, i: int) -> slow.Image:
    right, down = (draw.warp[i, :, 2] * (image.shape[-1] - 1) / 2).round().int().tolist()
    return slow.slow_crop(image, right, down)


def twin_cutout(image: slow.Image, draw: Draw, i: int) -> slow.Image:
    top, left = draw.hole[i].int().tolist()
    return slow.slow_cutout(image, top, left, (image.shape[-1] + 1) // 2)


def twin_flip(image: slow.Image, draw: Draw, i: int) -> slow.Image:
    return slow.slow_flip(image, bool(draw.warp[i, 0, 0] < 0))


def twin_scale(image: slow.Image, draw: Draw, i: int) -> slow.Image:
    return slow.slow_scale(image, float(draw.warp[i, 0, 0]), float(draw.warp[i, 1, 1]))


def twin_rotate(image: slow.Image, draw: Draw, i: int) -> slow.Image:
    return slow.slow_rotate(image, angle_of(draw, i))


def angle_of(draw: Draw, i: int) -> float:
    return atan2(float(draw.warp[i, 1, 0]), float(draw.warp[i, 0, 0]))


TWINS: dict[str, Callable[[slow.Image, Draw, int], slow.Image]] = {
    "color": twin_color,
    "crop": twin_crop,
    "cutout": twin_cutout,
    "flip": twin_flip,
    "scale": twin_scale,
    "rotate": twin_rotate,
}


def check_against_twin(augmentation: Augmentation, kind: str, images: Tensor, draw: Draw) -> None:
    changed = augmentation.apply(images, draw).numpy()
    for i, image in enumerate(images.double().numpy()):
        np.testing.assert_allclose(changed[i], TWINS[kind](image, draw, i), atol=2e-5)


@pytest.mark.parametrize(("channels", "size"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_does_what_its_twin_does(kind: str, channels: int, size: int) -> None:
    augmentation = Augmentation((kind,))
    images = some_images(6, channels, size)
    draw = augmentation.draw(6, size, rng(2))
    check_against_twin(augmentation, kind, images, draw)
    assert not torch.allclose(augmentation.apply(images, draw), images, atol=1e-2)


def test_draw_of_all_kinds_does_what_the_drawn_kind_does() -> None:
    augmentation, images = Augmentation(KINDS), some_images(16, 3, 8)
    seen = set()
    for seed in range(30):
        draw = augmentation.draw(16, 8, rng(seed))
        (kind,) = kinds_drawn(draw, 8)
        check_against_twin(augmentation, kind, images, draw)
        seen.add(kind)
    assert seen == set(KINDS)


def kinds_drawn(draw: Draw, size: int) -> set[str]:
    """The kinds whose parameters are not those that change nothing."""
    linear = draw.warp[:, :, :2]
    diagonal = linear.diagonal(dim1=1, dim2=2)
    off_diagonal = linear - torch.diag_embed(diagonal)
    square_visible = (draw.hole > -size).all()
    changes = {
        "color": (draw.brightness != 0) | (draw.saturation != 1) | (draw.contrast != 1),
        "crop": draw.warp[:, :, 2] != 0,
        "cutout": square_visible,
        "flip": diagonal[:, 0] < 0,
        "scale": (diagonal.abs() != 1).any() & (off_diagonal == 0).all(),
        "rotate": off_diagonal != 0,
    }
    return {kind for kind, where in changes.items() if bool(where.any())}


def test_one_kind_a_call_and_each_equally_often() -> None:
    generator, counts = rng(), dict.fromkeys(KINDS, 0)
    calls = 1200
    for _ in range(calls):
        (kind,) = kinds_drawn(Augmentation(KINDS).draw(40, 16, generator), 16)
        counts[kind] += 1
    assert chi_square(list(counts.values())) < 20.5  # 5 degrees of freedom: 1 in 1000


def chi_square(counts: list[int]) -> float:
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


def assert_uniform(values: Tensor, low: float, high: float) -> None:
    """In range, and no step of the empirical distribution far from the line (Kolmogorov)."""
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    share = ((values.sort().values - low) / (high - low)).double()
    line = torch.linspace(0, 1, len(values), dtype=torch.float64)
    assert (share - line).abs().max() < 1.95 / len(values) ** 0.5  # 1 in 1000


def assert_unrelated(first: Tensor, second: Tensor) -> None:
    correlation = torch.corrcoef(torch.stack([first, second]).double())[0, 1]
    assert abs(float(correlation)) < 4 / len(first) ** 0.5


def many(kind: str, size: int = 32) -> Draw:
    return Augmentation((kind,)).draw(MANY, size, rng(3))


def test_color_parameters() -> None:
    draw = many("color")
    assert_uniform(draw.brightness, -0.5, 0.5)
    assert_uniform(draw.saturation, 0, 2)
    assert_uniform(draw.contrast, 0.5, 1.5)
    assert_unrelated(draw.brightness, draw.saturation)
    assert_unrelated(draw.brightness, draw.contrast)
    assert_unrelated(draw.saturation, draw.contrast)


@pytest.mark.parametrize(("size", "reach"), [(32, 4), (64, 8), (28, 4), (8, 1)])
def test_crop_shifts_by_all_whole_pixels_equally(size: int, reach: int) -> None:
    shifts = many("crop", size).warp[:, :, 2] * (size - 1) / 2
    torch.testing.assert_close(shifts, shifts.round(), atol=1e-4, rtol=0)
    across, down = (column.round().int() + reach for column in shifts.T)
    pairs = across * (2 * reach + 1) + down
    assert pairs.min() >= 0
    assert across.max() == down.max() == 2 * reach
    cells = (2 * reach + 1) ** 2
    counts = pairs.bincount(minlength=cells).tolist()
    assert len(counts) == cells
    assert chi_square(counts) < cells + 4 * (2 * cells) ** 0.5 + 6


@pytest.mark.parametrize(("size", "side", "centres"), [(32, 16, 33), (8, 4, 9), (9, 5, 9)])
def test_cutout_has_its_centre_anywhere(size: int, side: int, centres: int) -> None:
    hole = many("cutout", size).hole
    for corner in hole.T:
        counts = (corner + side // 2).int().bincount(minlength=centres).tolist()
        assert len(counts) == centres
        assert chi_square(counts) < centres + 4 * (2 * centres) ** 0.5 + 6
    assert_unrelated(hole[:, 0], hole[:, 1])


def test_flips_half_of_the_time() -> None:
    flipped = many("flip").warp[:, 0, 0] < 0
    assert abs(float(flipped.float().mean()) - 0.5) < 3.3 * 0.5 / MANY**0.5


def test_scale_factors() -> None:
    warp = many("scale").warp
    assert_uniform(warp[:, 0, 0], 1 / 1.2, 1.2)
    assert_uniform(warp[:, 1, 1], 1 / 1.2, 1.2)
    assert_unrelated(warp[:, 0, 0], warp[:, 1, 1])


def test_rotation_angles() -> None:
    warp = many("rotate").warp.double()
    angles = torch.atan2(warp[:, 1, 0], warp[:, 0, 0])
    assert_uniform(angles * 180 / pi, -15, 15)
    torch.testing.assert_close(warp[:, 0, 1], -warp[:, 1, 0])
    torch.testing.assert_close(warp[:, :, :2].det(), torch.ones(MANY, dtype=torch.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_every_image_has_its_own_parameters(kind: str) -> None:
    same = some_images(1, 3, 32).expand(16, -1, -1, -1)
    changed = Augmentation((kind,))(same, rng())
    distinct = changed.reshape(16, -1).unique(dim=0)
    assert len(distinct) == 2 if kind == "flip" else len(distinct) >= 14


@pytest.mark.parametrize("kind", KINDS)
def test_siamese(kind: str) -> None:
    """One draw on two batches: image i of each is changed in the same way."""
    augmentation = Augmentation((kind,))
    first, second = some_images(4, 3, 16, seed=4), some_images(4, 3, 16, seed=5)
    draw = augmentation.draw(4, 16, rng(6))
    for images in (first, second):
        check_against_twin(augmentation, kind, images, draw)
    torch.testing.assert_close(augmentation.apply(first, draw), augmentation.apply(first, draw))


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_the_finite_difference(kind: str) -> None:
    augmentation = Augmentation((kind,))
    images = some_images(2, 2, 6).double().requires_grad_()
    draw = augmentation.draw(2, 6, rng(7))
    assert torch.autograd.gradcheck(lambda x: augmentation.apply(x, draw), images)


def test_off_passes_images_unchanged_and_draws_nothing() -> None:
    off = Augmentation.parse("off", True)
    generator, images = rng(), some_images(2, 3, 8)
    before = generator.get_state()
    assert off(images, generator) is images
    assert torch.equal(generator.get_state(), before)
    assert off.apply(images, off.draw(2, 8, generator)) is images
    assert str(off) == "off"


def test_same_generator_state_gives_the_same_draw() -> None:
    augmentation = Augmentation(KINDS)
    generator = rng(8)
    first, then = (augmentation.draw(5, 16, generator) for _ in range(2))
    again = augmentation.draw(5, 16, rng(8))
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one, other)
    assert any(not torch.equal(one, other) for one, other in zip(first, then, strict=True))


@pytest.mark.parametrize(
    ("option", "mirror", "kinds"),
    [
        ("on", True, KINDS),
        ("on", False, ("color", "crop", "cutout", "scale", "rotate")),
        ("flip", False, ("flip",)),  # asked for by name
        ("color,crop", True, ("color", "crop")),
        ("crop,color", True, ("color", "crop")),
        ("crop,crop", True, ("crop",)),
    ],
)
def test_names_of_kinds_are_parsed(option: str, mirror: bool, kinds: tuple[str, ...]) -> None:
    parsed = Augmentation.parse(option, mirror)
    assert parsed.kinds == kinds
    assert Augmentation.parse(str(parsed), True) == parsed


@pytest.mark.parametrize("option", ["blur", "color,blur", "", "color,", "on,off"])
def test_unknown_kind_is_refused(option: str) -> None:
    with pytest.raises(UserError) as error:
        Augmentation.parse(option, True)
    assert error.value.parameter == "dsa"


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.cuda
def test_can_be_captured_in_a_cuda_graph_without_waiting() -> None:
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(0)
    augmentation = Augmentation(KINDS)
    images = some_images(8, 3, 32).to(device)
    augmentation(images, generator)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    torch.cuda.set_sync_debug_mode("error")
    try:
        augmentation(images, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    with torch.cuda.graph(graph):  # capture fails where something waits
        changed = augmentation(images, generator)
    results = []
    for seed in range(20):
        generator.manual_seed(seed)
        graph.replay()
        results.append(changed.clone())
        generator.manual_seed(seed)
        torch.testing.assert_close(results[-1], augmentation(images, generator))
    assert len(torch.stack(results).flatten(1).unique(dim=0)) == 20


def test_tables_pass_where_nothing_is_augmented() -> None:
    off, rows = Augmentation(()), torch.randn(3, 5)
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert off(rows, generator) is rows
    assert torch.equal(generator.get_state(), before)
    assert off.apply(rows, off.draw(3, 5, generator)) is rows
