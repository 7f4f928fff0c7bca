"""Bayesian pseudocoresets: a large labelled data set as a handful of synthetic images."""

import pseudocoreset.environment  # noqa: F401 - before PyTorch is used

# isort: split
from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import ImageData, from_dataset, load_data
from pseudocoreset.distill import distill
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import Evaluation, evaluate
from pseudocoreset.experts import ExpertSettings, ExpertStore, train_experts
from pseudocoreset.posterior import Posterior, Protocol, named_protocol, sample_posterior
from pseudocoreset.settings import DistillSettings

__all__ = [
    "DistillSettings",
    "Evaluation",
    "ExpertSettings",
    "ExpertStore",
    "ImageData",
    "Posterior",
    "Protocol",
    "Pseudocoreset",
    "UserError",
    "distill",
    "evaluate",
    "from_dataset",
    "load_data",
    "named_protocol",
    "sample_posterior",
    "train_experts",
]
