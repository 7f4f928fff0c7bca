"""Bayesian pseudocoresets: a large labelled data set as a handful of synthetic points."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pseudocoreset.engine.environment  # noqa: F401 - before PyTorch is used

if TYPE_CHECKING:
    from pseudocoreset.coreset import Pseudocoreset
    from pseudocoreset.data import Data, from_arrays, from_dataset, load_data
    from pseudocoreset.distillation import distill
    from pseudocoreset.engine.options import option
    from pseudocoreset.engine.search import Among, Around, Epochs
    from pseudocoreset.errors import UserError
    from pseudocoreset.evaluation.compare import Comparison, compare
    from pseudocoreset.evaluation.corruptions import corrupt
    from pseudocoreset.evaluation.evaluate import Evaluation, evaluate
    from pseudocoreset.experts import ExpertStore, train_experts
    from pseudocoreset.forms import Chroma, Mosaic, Pixels
    from pseudocoreset.gallery import load
    from pseudocoreset.likelihoods import Categorical, Gaussian, Prediction
    from pseudocoreset.methods import (
        FBPC,
        VBPC,
        BPCContrastive,
        BPCForwardKL,
        BPCReverseKL,
        BPCWasserstein,
        Context,
        Estimate,
        FBPCIsotropic,
        Method,
        Points,
        Random,
        Unrolled,
    )
    from pseudocoreset.posterior import (
        SGHMC,
        SGLD,
        Ensemble,
        LastLayer,
        Posterior,
        Sampler,
        sample,
    )
    from pseudocoreset.scale import ProcessExecutor, RayExecutor
    from pseudocoreset.tuning import tune

__all__ = [
    "FBPC",
    "SGHMC",
    "SGLD",
    "VBPC",
    "Among",
    "Around",
    "BPCContrastive",
    "BPCForwardKL",
    "BPCReverseKL",
    "BPCWasserstein",
    "Categorical",
    "Chroma",
    "Comparison",
    "Context",
    "Data",
    "Ensemble",
    "Epochs",
    "Estimate",
    "Evaluation",
    "ExpertStore",
    "FBPCIsotropic",
    "Gaussian",
    "LastLayer",
    "Method",
    "Mosaic",
    "Pixels",
    "Points",
    "Posterior",
    "Prediction",
    "ProcessExecutor",
    "Pseudocoreset",
    "Random",
    "RayExecutor",
    "Sampler",
    "Unrolled",
    "UserError",
    "__version__",
    "compare",
    "corrupt",
    "distill",
    "evaluate",
    "from_arrays",
    "from_dataset",
    "load",
    "load_data",
    "option",
    "sample",
    "sample_posterior",
    "train_experts",
    "tune",
]

_PLACES = {
    "coreset": ("Pseudocoreset",),
    "data": ("Data", "from_arrays", "from_dataset", "load_data"),
    "distillation": ("distill",),
    "engine.options": ("option",),
    "engine.search": ("Among", "Around", "Epochs"),
    "errors": ("UserError",),
    "evaluation.compare": ("Comparison", "compare"),
    "evaluation.corruptions": ("corrupt",),
    "evaluation.evaluate": ("Evaluation", "evaluate"),
    "experts": ("ExpertStore", "train_experts"),
    "forms": ("Chroma", "Mosaic", "Pixels"),
    "gallery": ("load",),
    "likelihoods": ("Categorical", "Gaussian", "Prediction"),
    "methods": (
        "FBPC",
        "VBPC",
        "BPCContrastive",
        "BPCForwardKL",
        "BPCReverseKL",
        "BPCWasserstein",
        "Context",
        "Estimate",
        "FBPCIsotropic",
        "Method",
        "Points",
        "Random",
        "Unrolled",
    ),
    "posterior": ("SGHMC", "SGLD", "Ensemble", "LastLayer", "Posterior", "Sampler", "sample"),
    "scale": ("ProcessExecutor", "RayExecutor"),
    "tuning": ("tune",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import public names on first use, because importing PyTorch takes seconds."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("pseudocoreset")
        except PackageNotFoundError:
            return "source"
    if name not in _MODULES:
        raise AttributeError(f"module 'pseudocoreset' has no attribute {name!r}")
    found = getattr(import_module(f"pseudocoreset.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


def sample_posterior(*_: Any, **__: Any) -> Any:
    """Removed. Use `sample` instead."""
    from pseudocoreset.errors import UserError

    raise UserError("sample_posterior is now pseudocoreset.sample(coreset, sampler, chains=1).")
