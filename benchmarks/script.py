"""How the scripts of this folder end: a person's mistake is one sentence and exit code 2."""

import sys
from collections.abc import Callable
from typing import NoReturn

from pseudocoreset.errors import UserError


def exit_with(main: Callable[[], int | None]) -> NoReturn:
    """Run a script; its exit code is what `main` gives."""
    try:
        sys.exit(main())
    except UserError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
