"""What the scripts of this folder share: how they end, and how they ask processes of their own."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pseudocoreset.errors import UserError

LONGEST_S = 900


def exit_with(main: Callable[[], int | None]) -> NoReturn:
    """Run a script; its exit code is what `main` gives, a person's mistake one sentence and 2."""
    try:
        sys.exit(main())
    except UserError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)


def asked(
    script: str,
    *given: str,
    environment: Mapping[str, str] | None = None,
    longest_s: float | None = LONGEST_S,
) -> dict[str, Any]:
    """What a script, run as a process of its own, printed last, as JSON; or why it `failed`."""
    try:
        done = subprocess.run(
            [sys.executable, script, *given],
            env=environment,
            capture_output=True,
            text=True,
            timeout=longest_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {longest_s} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    lines = done.stderr.strip().splitlines() or ["it said nothing"]
    return {"failed": f"exit code {done.returncode}: {lines[-1]}"}
