"""`python -m ladle.cli` is `ladle`."""

import sys

from ladle.cli import main

sys.exit(main())
