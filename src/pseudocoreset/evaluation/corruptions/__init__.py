"""Corrupted images: the 19 corruptions of CIFAR-10-C at severities 1 to 5."""

from pseudocoreset.evaluation.corruptions.images import chosen_corruptions, corrupt
from pseudocoreset.evaluation.corruptions.table import CORRUPTIONS, PAPER, SEVERITIES

__all__ = ["CORRUPTIONS", "PAPER", "SEVERITIES", "chosen_corruptions", "corrupt"]
