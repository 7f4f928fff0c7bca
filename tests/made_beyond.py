"""Cells beyond the paper as if they had been measured."""

from pseudocoreset.reproduce.beyond.stored import BeyondCell
from pseudocoreset.reproduce.cells import BEYOND, Cell


def made_scores(accuracy: float, nll: float, temperature: float = 0.8):
    """Scores by one posterior: a network a little worse than a chain, pooled a little better."""

    def scores(more: float) -> dict[str, float]:
        values = {"accuracy": accuracy / 100 + more, "nll": nll - 5 * more}
        return {**values, "ece": 0.04, "brier": 0.4}

    return {
        "single": scores(-0.02),
        "chain": scores(0.0),
        "pooled": scores(0.02),
        "pooled_temperature": temperature,
        "pooled_calibrated": {**scores(0.02), "ece": 0.02, "temperature": temperature},
        "chains": 10,
        "first_seed": 0,
        "sampling_steps": 2000,
        "protocol": {"sampler": "sghmc"},
        "seconds": 60.0,
    }


def made_beyond(
    name: str, ipc: int, accuracy: float, nll: float = 1.0, *, coresets: int = 2, **storage: object
) -> BeyondCell:
    """A cell of coresets whose accuracies differ by one point, in per cent."""
    numbers = {"numbers": 30720 * ipc, "bytes": 61440 * ipc, "stored": 10 * ipc, "seen": 40 * ipc}
    entries = [
        {
            "seed": seed,
            "fingerprint": f"{name} {seed}",
            "storage": {**numbers, "precision": "half", "form": "mosaic:2", **storage},
            "config": {"steps": 1000},
            "distill_s": 180.0,
            "distill_whole": True,
            "scores": {
                "sghmc": made_scores(accuracy + seed, nll),
                "last-layer": made_scores(accuracy + seed - 3, nll + 0.1),
            },
        }
        for seed in range(coresets)
    ]
    content = {
        "title": name,
        "data_fingerprint": "abc",
        "methods": ["fbpc-isotropic"],
        "recipe": "best",
        "changes": {},
        "experts": {"num": 20, "epochs": 30, "fingerprint": "f"},
        "experts_s": 120.0,
        "experts_whole": True,
        "coresets": entries,
        "device": "a device",
        "versions": {"torch": "2"},
    }
    return BeyondCell(Cell(BEYOND, name, ipc, None), content)
