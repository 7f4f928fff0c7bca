"""Published figures for CIFAR-10, and our goals.

Accuracy in per cent, and the NLL where a paper has one, at 1, 10 and 50 images per class; what
stores something else than images has the storage of this many. They are as the papers or their
authors' code print them; those that are `remembered` were not read again.
"""

from dataclasses import dataclass

from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import SIZES


@dataclass(frozen=True)
class Published:
    """A method's figures by size."""

    name: str
    accuracy: tuple[float, float, float]
    nll: tuple[float, float, float] | None = None
    remembered: bool = False
    stores: str = "images"
    """What is stored."""

    @property
    def posterior(self) -> bool:
        """Whether it predicts by a posterior; the others train one network."""
        return self.nll is not None

    @property
    def title(self) -> str:
        """Its name, marked where it is remembered."""
        return f"{self.name}†" if self.remembered else self.name

    def at(self, ipc: int) -> tuple[float, float | None]:
        """Accuracy and NLL at a size."""
        place = SIZES.index(ipc)
        return self.accuracy[place], None if self.nll is None else self.nll[place]


def _of_paper(method: str, name: str) -> Published:
    rows = [paper.TABLE1[method, ipc] for ipc in SIZES]
    accuracy = tuple(row.accuracy.mean for row in rows)
    nll = tuple(row.nll.mean for row in rows)
    return Published(name, accuracy, nll)  # type: ignore[arg-type]


OTHER = "something else"
PUBLISHED = (
    _of_paper("random", "random images (Kim et al. 2023)"),
    _of_paper("bpc-rkl", "BPC-rKL (Kim et al. 2023)"),
    _of_paper("bpc-fkl", "BPC-fKL (Kim et al. 2023)"),
    _of_paper("fbpc-isotropic", "FBPC-isotropic (Kim et al. 2023)"),
    _of_paper("fbpc", "FBPC (Kim et al. 2023)"),
    Published("VBPC (ICLR 2025)", (55.1, 69.8, 76.7), (1.34, 0.89, 0.71), remembered=True),
    Published("random images, a teacher's soft labels", (21.1, 46.3, 62.1)),
    Published("MTT", (46.2, 65.4, 71.6)),
    Published("DATM", (46.9, 66.8, 76.1)),
    Published("NCFM, 4 images a slot", (49.5, 71.8, 77.4)),
    Published("RaT-BPTT", (53.2, 69.4, 75.3)),
    Published("AT-BPTT", (54.4, 72.4, 78.7)),
    Published("AT-BPTT++ (its authors' README)", (55.7, 74.9, 81.0)),
    Published("IDC, tiles", (50.0, 67.5, 74.5), stores=OTHER),
    Published("FreD", (60.6, 70.3, 75.8), stores=OTHER),
    Published("RTP", (66.4, 71.2, 73.6), stores=OTHER),
    Published("HMN", (65.7, 73.7, 76.9), stores=OTHER),
    Published("SPEED", (63.2, 73.5, 77.7), stores=OTHER),
    Published("NSD", (68.5, 73.4, 75.2), stores=OTHER),
    Published("DDiF", (66.5, 74.0, 77.5), stores=OTHER),
    Published("GSDD", (67.6, 75.5, 77.7), stores=OTHER),
    Published("AutoPalette", (58.6, 74.3, 79.4), stores=OTHER),
)


@dataclass(frozen=True)
class Goal:
    """What was to be reached, by size: accuracy in per cent and NLL."""

    title: str
    cell: str
    way: str
    """single, chain, pooled or pooled_calibrated."""
    at_least: dict[int, tuple[float, float]]
    data: str = paper.DATA


GOALS = (
    Goal("one chain", "best", "chain", {1: (64, 1.06), 10: (74, 0.80), 50: (77, 0.70)}),
    Goal(
        "ten chains pooled, at least",
        "best",
        "pooled",
        {1: (66, 1.02), 10: (75, 0.76), 50: (79, 0.65)},
    ),
    Goal(
        "ten chains pooled, moonshot",
        "best",
        "pooled",
        {1: (69, 0.98), 10: (77, 0.72), 50: (81.5, 0.60)},
    ),
    Goal(
        "FBPC, pixels, hard labels, one chain",
        "fbpc",
        "chain",
        {1: (39, 1.78), 10: (66.5, 1.02), 50: (74.5, 0.78)},
    ),
    Goal("Fashion-MNIST, one chain", "best", "chain", {10: (87, 0.37)}, "fashion-mnist"),
    Goal("Fashion-MNIST, ten chains pooled", "best", "pooled", {10: (89.4, 0.30)}, "fashion-mnist"),
)
ECE_GOAL = 0.03
"""At most so large is to be the ECE of the pooled posterior at one temperature."""
MINUTES_GOAL = {1: 5.0, 10: 12.0, 50: 40.0}
"""From the data to the scored coreset."""
