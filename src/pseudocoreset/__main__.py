"""`python -m pseudocoreset`."""

import sys

from pseudocoreset.cli import main

if __name__ == "__main__":
    sys.exit(main())
