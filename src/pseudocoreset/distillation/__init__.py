"""Making a coreset: a complete job, and the loop that does it."""

from pseudocoreset.distillation.distill import distill
from pseudocoreset.distillation.job import DistillOptions, Job, resolve
from pseudocoreset.distillation.loop import FARTHEST, SLOTS, run, start_points

__all__ = [
    "FARTHEST",
    "SLOTS",
    "DistillOptions",
    "Job",
    "distill",
    "resolve",
    "run",
    "start_points",
]
