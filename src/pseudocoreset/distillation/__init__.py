"""Making a coreset: a complete job, and the loop that does it."""

from pseudocoreset.distillation.distill import distill
from pseudocoreset.distillation.job import DistillOptions, Job, resolve
from pseudocoreset.distillation.loop import FARTHEST, run
from pseudocoreset.distillation.rules import SLOTS
from pseudocoreset.distillation.start import start_points
from pseudocoreset.distillation.stores import check_stores

__all__ = [
    "FARTHEST",
    "SLOTS",
    "DistillOptions",
    "Job",
    "check_stores",
    "distill",
    "resolve",
    "run",
    "start_points",
]
