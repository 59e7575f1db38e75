"""Pushes go from the agent over real HTTP into the fleet: with what the tests of all three use."""

import sys
from pathlib import Path

for area in ("http", "cluster"):
    sys.path.append(str(Path(__file__).parents[1] / area))
