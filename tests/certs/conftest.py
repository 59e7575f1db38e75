"""What the tests of the HTTP server and of the cluster use serves here too."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "http"), str(TESTS / "cluster"), str(TESTS / "agent")]
