"""What the scripts of this folder share: how they end, start processes, and read settings."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NoReturn

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.distillation import DistillOptions, Job, resolve
from pseudocoreset.engine.options import parsed
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.methods import method_class

LONGEST_S = 900


def exit_with(main: Callable[[], int | None]) -> NoReturn:
    """Run a script; its exit code is what `main` gives, a person's mistake one sentence and 2."""
    try:
        sys.exit(main())
    except UserError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)


def job_of(
    settings: Mapping[str, Any],
    data: Data,
    stores: Sequence[ExpertStore],
    recipe: str = "paper",
    start: Pseudocoreset | None = None,
) -> Job:
    """The job that settings by name describe: `method`, `recipe`, and the options of both."""
    named = dict(settings)
    kind, recipe = method_class(named.pop("method", "fbpc")), named.pop("recipe", recipe)
    chosen: dict[type, dict[str, Any]] = {kind: {}, DistillOptions: {}}
    owners = {field.name: owner for owner in chosen for field in fields(owner)}
    for name, value in named.items():
        if name not in owners:
            raise UserError(f"`{name}` is no option of {kind.name}.", name)
        chosen[owners[name]][name] = parsed(owners[name], name, value)
    method, options = (owner(**values) for owner, values in chosen.items())
    return resolve(data, stores, method, options, recipe, start=start)


def run_script(
    script: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What a script, run as a process of its own, printed last, as JSON; or why it `failed`."""
    try:
        done = subprocess.run(
            [sys.executable, script, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {LONGEST_S} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    lines = done.stderr.strip().splitlines() or ["it said nothing"]
    return {"failed": f"exit code {done.returncode}: {lines[-1]}"}
