"""`python -m gpumon` is the command `gpumon`."""

import sys

from gpumon.cli import main

sys.exit(main())
