"""`python -m harness`, for where the console script is not installed: an offline node with a source tree."""

import sys

from harness.cli import main

sys.exit(main())
