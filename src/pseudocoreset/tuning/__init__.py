"""Search settings for your own data and network on held-out points."""

from importlib.util import find_spec

from pseudocoreset.errors import UserError

if find_spec("optuna") is None:
    raise UserError("`tune` needs the package optuna: install pseudocoreset[tune].")

from pseudocoreset.tuning.cost import plan_tune
from pseudocoreset.tuning.driver import Tuned, search
from pseudocoreset.tuning.entry import held_out, tune
from pseudocoreset.tuning.first_trial import TuneOptions

__all__ = ["TuneOptions", "Tuned", "held_out", "plan_tune", "search", "tune"]
