"""The agent is tested over the real HTTP server: with what its tests use."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "http"))
