"""The figures of Kim, Lee and Lee (NeurIPS 2023).

Mean and standard deviation over seeds, five of them in Table 1; accuracy in per cent. Which of the
two definitions of the NLL they print, they do not say.
"""

from typing import NamedTuple

DATA = "cifar10"
"""The data set of all figures except those of Table 2."""


class Figure(NamedTuple):
    """A mean over seeds and its standard deviation, which one seed has none of."""

    mean: float
    std: float | None


class Scores(NamedTuple):
    """What a cell of the paper's tables of accuracy and NLL holds."""

    accuracy: Figure
    nll: Figure


TABLE1 = {
    ("random", 1): Scores(Figure(16.30, 0.74), Figure(4.66, 0.03)),
    ("random", 10): Scores(Figure(32.48, 0.34), Figure(2.98, 0.03)),
    ("random", 50): Scores(Figure(49.68, 0.46), Figure(2.06, 0.02)),
    ("bpc-rkl", 1): Scores(Figure(20.44, 1.06), Figure(4.51, 0.10)),
    ("bpc-rkl", 10): Scores(Figure(37.92, 0.66), Figure(2.47, 0.04)),
    ("bpc-rkl", 50): Scores(Figure(51.86, 0.38), Figure(1.95, 0.02)),
    ("bpc-fkl", 1): Scores(Figure(34.50, 1.62), Figure(3.86, 0.13)),
    ("bpc-fkl", 10): Scores(Figure(56.19, 0.61), Figure(1.48, 0.02)),
    ("bpc-fkl", 50): Scores(Figure(64.74, 0.32), Figure(1.26, 0.01)),
    ("fbpc-isotropic", 1): Scores(Figure(32.00, 0.75), Figure(3.40, 0.27)),
    ("fbpc-isotropic", 10): Scores(Figure(61.43, 0.35), Figure(1.35, 0.02)),
    ("fbpc-isotropic", 50): Scores(Figure(71.33, 0.19), Figure(1.03, 0.01)),
    ("fbpc", 1): Scores(Figure(35.45, 0.31), Figure(3.79, 0.04)),
    ("fbpc", 10): Scores(Figure(62.33, 0.34), Figure(1.31, 0.02)),
    ("fbpc", 50): Scores(Figure(71.23, 0.17), Figure(1.03, 0.05)),
}
"""`tab:main_table`, by method and images per class."""

TABLE2 = {
    ("cifar100", "random", 1): Scores(Figure(4.82, 0.47), Figure(5.55, 0.07)),
    ("cifar100", "random", 10): Scores(Figure(18.0, 0.31), Figure(4.57, 0.01)),
    ("cifar100", "random", 50): Scores(Figure(35.1, 0.23), Figure(3.35, 0.01)),
    ("cifar100", "bpc-fkl", 1): Scores(Figure(14.7, 0.16), Figure(4.17, 0.05)),
    ("cifar100", "bpc-fkl", 10): Scores(Figure(28.1, 0.60), Figure(3.53, 0.05)),
    ("cifar100", "bpc-fkl", 50): Scores(Figure(37.1, 0.33), Figure(3.28, 0.24)),
    ("cifar100", "fbpc", 1): Scores(Figure(21.0, 0.76), Figure(3.76, 0.11)),
    ("cifar100", "fbpc", 10): Scores(Figure(39.7, 0.31), Figure(2.67, 0.02)),
    ("cifar100", "fbpc", 50): Scores(Figure(44.47, 0.35), Figure(2.63, 0.01)),
    ("tiny-imagenet", "random", 1): Scores(Figure(1.90, 0.08), Figure(6.18, 0.04)),
    ("tiny-imagenet", "random", 10): Scores(Figure(7.21, 0.04), Figure(5.77, 0.02)),
    ("tiny-imagenet", "random", 50): Scores(Figure(19.15, 0.12), Figure(4.88, 0.01)),
    ("tiny-imagenet", "bpc-fkl", 1): Scores(Figure(3.98, 0.13), Figure(5.63, 0.03)),
    ("tiny-imagenet", "bpc-fkl", 10): Scores(Figure(11.4, 0.45), Figure(5.08, 0.05)),
    ("tiny-imagenet", "bpc-fkl", 50): Scores(Figure(22.18, 0.32), Figure(4.65, 0.02)),
    ("tiny-imagenet", "fbpc", 1): Scores(Figure(10.14, 0.68), Figure(4.69, 0.05)),
    ("tiny-imagenet", "fbpc", 10): Scores(Figure(19.42, 0.51), Figure(4.14, 0.02)),
    ("tiny-imagenet", "fbpc", 50): Scores(Figure(26.43, 0.31), Figure(4.30, 0.05)),
}
"""`tab:cifar100`, by data, method and images per class; three seeds."""

CROSS_ARCHITECTURE = {
    (1, "convnet"): Scores(Figure(35.71, 0.90), Figure(3.44, 0.07)),
    (1, "resnet18"): Scores(Figure(27.7, 0.96), Figure(2.87, 0.13)),
    (1, "resnet34"): Scores(Figure(22.46, 0.12), Figure(3.06, 0.02)),
    (1, "vgg11"): Scores(Figure(26.33, 0.88), Figure(5.38, 0.74)),
    (1, "alexnet"): Scores(Figure(21.05, 0.43), Figure(3.13, 0.60)),
    (10, "convnet"): Scores(Figure(62.53, 0.34), Figure(1.31, 0.01)),
    (10, "resnet18"): Scores(Figure(47.51, 1.73), Figure(1.82, 0.02)),
    (10, "resnet34"): Scores(Figure(35.48, 1.22), Figure(2.41, 0.01)),
    (10, "vgg11"): Scores(Figure(47.87, 1.18), Figure(3.72, 0.09)),
    (10, "alexnet"): Scores(Figure(32.27, 0.78), Figure(2.96, 0.04)),
    (50, "convnet"): Scores(Figure(71.20, 0.36), Figure(1.03, 0.00)),
    (50, "resnet18"): Scores(Figure(62.02, 1.55), Figure(1.41, 0.05)),
    (50, "resnet34"): Scores(Figure(47.97, 3.37), Figure(2.10, 0.10)),
    (50, "vgg11"): Scores(Figure(58.24, 1.63), Figure(3.03, 0.26)),
    (50, "alexnet"): Scores(Figure(52.42, 1.30), Figure(2.08, 0.07)),
}
"""`tab:cross_architecture`: FBPC made for the ConvNet, by images per class and network."""

RESNET18 = {
    (("resnet18",), "resnet18"): (50.00, 1.75),
    (("resnet18", "convnet"), "resnet18"): (54.90, 1.56),
    (("resnet18", "convnet"), "convnet"): (60.03, None),
}
"""`tab:resnet` and its text, one seed: accuracy and NLL by what FBPC is made for and scored on."""


class Corrupted(NamedTuple):
    """Accuracy on corrupted images, and by how many per cent it is below that on clean ones."""

    accuracy: float
    degradation: float


CORRUPTIONS = {
    "bpc-fkl": {
        "brightness": Corrupted(33.5, 40.3),
        "defocus_blur": Corrupted(34.0, 39.4),
        "elastic_transform": Corrupted(35.9, 36.0),
        "frost": Corrupted(25.1, 55.2),
        "gaussian_blur": Corrupted(33.7, 39.9),
        "jpeg_compression": Corrupted(39.1, 30.3),
        "motion_blur": Corrupted(32.7, 41.6),
        "pixelate": Corrupted(38.3, 31.6),
        "snow": Corrupted(28.9, 48.4),
        "spatter": Corrupted(41.2, 26.5),
    },
    "fbpc": {
        "brightness": Corrupted(48.9, 21.5),
        "defocus_blur": Corrupted(46.4, 25.7),
        "elastic_transform": Corrupted(47.6, 23.7),
        "frost": Corrupted(41.7, 33.0),
        "gaussian_blur": Corrupted(44.0, 29.3),
        "jpeg_compression": Corrupted(52.0, 16.4),
        "motion_blur": Corrupted(44.3, 28.8),
        "pixelate": Corrupted(51.0, 18.1),
        "snow": Corrupted(47.1, 24.4),
        "spatter": Corrupted(52.3, 16.1),
    },
}
"""`tab:cifar10-c`, by method and corruption, as we read the abbreviations; no severity is given."""
CORRUPTIONS_MEAN = {"bpc-fkl": Corrupted(34.3, 38.9), "fbpc": Corrupted(47.5, 23.7)}
"""Its last column."""

MEMORY_BY_NET = {
    ("fbpc", "lenet"): 0.02,
    ("fbpc", "convnet"): 0.32,
    ("fbpc", "resnet18"): 2.56,
    ("bpc-fkl", "lenet"): 0.11,
    ("bpc-fkl", "convnet"): 3.17,
    ("bpc-fkl", "resnet18"): 12.18,
}
"""`tab:gpu_memory`: GB at 10 per class, by method and network."""
MEMORY_BY_SIZE = {
    ("fbpc", 1): 0.04,
    ("fbpc", 10): 0.32,
    ("fbpc", 50): 1.59,
    ("bpc-fkl", 1): 0.41,
    ("bpc-fkl", 10): 3.17,
    ("bpc-fkl", 50): 15.59,
}
"""`tab:gpu_memory_ipc`: GB, ConvNet, by method and images per class."""
SECONDS = {
    ("bpc-fkl", 1): Figure(1.04, 0.10),
    ("bpc-fkl", 10): Figure(1.37, 0.13),
    ("bpc-fkl", 50): Figure(2.59, 0.86),
    ("fbpc", 1): Figure(1.5, 0.15),
    ("fbpc", 10): Figure(3.29, 0.51),
    ("fbpc", 50): Figure(8.38, 0.48),
}
"""`tab:wall_clock_time`: seconds of an update, ConvNet, by method and images per class."""

WITHOUT_DSA = {
    ("bpc-fkl", 1): Figure(37.26, 1.65),
    ("bpc-fkl", 10): Figure(50.48, 1.39),
    ("bpc-fkl", 50): Figure(60.75, 0.26),
    ("fbpc", 1): Figure(33.69, 2.73),
    ("fbpc", 10): Figure(55.07, 1.30),
    ("fbpc", 50): Figure(66.03, 0.21),
}
"""`tab:dsa`, accuracy without augmentation; its row with DSA is Table 1's."""

ORDER = ("random", "bpc-rkl", "bpc-fkl", "fbpc")
"""The methods by accuracy, as Table 1 has them at 10 and 50 images per class."""
