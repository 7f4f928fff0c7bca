"""Settings for a person's own data and network, searched on held-out points."""

from pseudocoreset.tuning.tune import Tuned, TuneOptions, tune

__all__ = ["TuneOptions", "Tuned", "tune"]
