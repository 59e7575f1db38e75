"""Fixtures of the cluster tests."""

from __future__ import annotations

import sys
from pathlib import Path

# The certificates that the HTTP tests make on the spot serve here too.
sys.path.append(str(Path(__file__).parents[1] / "http"))
# So does the browser of the web tests.
sys.path.append(str(Path(__file__).parents[1] / "web"))
# And the samples of the agent's tests.
sys.path.append(str(Path(__file__).parents[1] / "agent"))
