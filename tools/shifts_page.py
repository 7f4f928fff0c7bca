"""The table of docs/shifts.md, from results/ood/."""

import json
from pathlib import Path

from pseudocoreset.reproduce.text_table import TextTable

TITLES = {"cifar100": "CIFAR-100", "fashion-mnist": "Fashion-MNIST"}
MEASURES = {"entropy": "entropy", "mutual_information": "mutual information"}
RATES = {"auroc": "AUROC", "fpr95": "FPR95"}


def ood_table(results: Path) -> str:
    """How well uncertainty detects other data: one file of `evaluate --ood --json` a row."""
    columns = [(measure, rate) for measure in MEASURES for rate in RATES]
    rows = []
    for path in sorted((results / "ood").glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))["ood"]
        rates = [f"{found['pooled'][measure][rate]:.3f}" for measure, rate in columns]
        rows.append((TITLES[found["data"]], f"{found['images']:,}", *rates))
    names = [f"{MEASURES[measure]}: {RATES[rate]}" for measure, rate in columns]
    return TextTable(("other data", "images", *names), [rows]).markdown()
