"""The figures that Kim, Lee and Lee (NeurIPS 2023) print for CIFAR-10, to stand beside ours.

Mean and standard deviation over five seeds; accuracy in per cent. Which of the two definitions of
the NLL they print, they do not say.
"""

from typing import NamedTuple

DATA = "cifar10"
"""The data set that all figures here are of."""


class Figure(NamedTuple):
    """A mean over seeds and its standard deviation, which one seed has none of."""

    mean: float
    std: float | None


class Scores(NamedTuple):
    """What a cell of the paper's Table 1 holds."""

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
