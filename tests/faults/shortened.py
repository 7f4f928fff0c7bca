"""`reproduce` made small where it has no option for it; in processes of their own only."""

import json
import os
from typing import Any

from pseudocoreset import SGHMC, recipes
from pseudocoreset.posterior import named_sampler
from pseudocoreset.reproduce import measure_cell as measuring
from pseudocoreset.reproduce.exact import measure as trials
from pseudocoreset.reproduce.exact.measure import METHODS

NET = "convnet:depth=2,width=4"


def shorten() -> None:
    """Make small what `reproduce` has no option for; no trial of minutes is measured anew."""
    measuring.NET = NET
    tiny = named_sampler("tuned", SGHMC(epochs=2, every=1))
    measuring.SAMPLERS = (tiny, tiny)
    few = {"samples": 2, "gamma": 2.0, "max_map_steps": 4, "covariance_steps": 2, "real_batch": 4}
    few |= {"from_epoch": 1}
    for sections in recipes._shipped().values():
        for values in sections.get("paper", {}).values():
            values.update({name: few[name] for name in few if name in values})
    trials.measure_trial = lambda *_: exact_trial()


def shorten_on_ray() -> None:
    """Let the workers of a cluster do so too, if this file is where they import from."""
    environment = {"worker_process_setup_hook": "shortened.shorten"}
    os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps({"runtime_env": environment})


def exact_trial() -> dict[str, Any]:
    """What a trial of an exact model finds, made up."""
    distances = {method: {"forward": 1.0, "reverse": 2.0} for method in METHODS}
    return {"seconds": 1.0, "n": 9, "distances": {"1": distances, "5": distances}}
