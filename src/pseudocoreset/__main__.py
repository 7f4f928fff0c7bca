"""`python -m pseudocoreset`."""

import sys

from pseudocoreset.cli import main

sys.exit(main())
