"""The 19 corruptions of CIFAR-10-C (Hendrycks and Dietterich, 2019), with their parameters."""

from collections.abc import Callable
from dataclasses import dataclass

from pseudocoreset.evaluation.corruptions import blurs, colour, elastic, noise, spatter, weather

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Corruption:
    """What changes pixels in [0, 1], and what it is given at severities 1 to 5."""

    function: Callable[..., noise.Images]
    parameters: tuple[tuple[float, ...], ...]


def _one(function: Callable[..., noise.Images], *values: float) -> Corruption:
    """A corruption with one parameter."""
    return Corruption(function, tuple((value,) for value in values))


CORRUPTIONS: dict[str, Corruption] = {
    "brightness": _one(colour.brightness, 0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": _one(colour.contrast, 0.75, 0.5, 0.4, 0.3, 0.15),
    "defocus_blur": Corruption(
        blurs.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))
    ),
    "elastic_transform": Corruption(
        elastic.elastic_transform,
        ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
    ),
    "fog": Corruption(weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "frost": Corruption(weather.frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "gaussian_blur": _one(blurs.gaussian_blur, 0.4, 0.6, 0.7, 0.8, 1),
    "gaussian_noise": _one(noise.gaussian_noise, 0.04, 0.06, 0.08, 0.09, 0.1),
    "glass_blur": Corruption(
        blurs.glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
    ),
    "impulse_noise": _one(noise.impulse_noise, 0.01, 0.02, 0.03, 0.05, 0.07),
    "jpeg_compression": _one(colour.jpeg_compression, 80, 65, 58, 50, 40),
    "motion_blur": Corruption(blurs.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "pixelate": _one(colour.pixelate, 0.95, 0.9, 0.85, 0.75, 0.65),
    "saturate": Corruption(colour.saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
    "shot_noise": _one(noise.shot_noise, 500, 250, 100, 75, 50),
    "snow": Corruption(
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "spatter": Corruption(
        spatter.spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
    ),
    "speckle_noise": _one(noise.speckle_noise, 0.06, 0.1, 0.12, 0.16, 0.2),
    "zoom_blur": _one(blurs.zoom_blur, 1.06, 1.11, 1.16, 1.21, 1.26),
}
"""By name; lengths are in pixels of 32×32 images."""

PAPER = (
    "brightness",
    "defocus_blur",
    "elastic_transform",
    "frost",
    "gaussian_blur",
    "jpeg_compression",
    "motion_blur",
    "pixelate",
    "snow",
    "spatter",
)
"""The ten of Kim, Lee and Lee (2023), as we read their abbreviations."""
