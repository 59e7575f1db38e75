"""What the agent costs: the parts of `bench/agent.py`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

# The fake NVML is imported from where the tests have it.
sys.path.append(str(ROOT / "tests"))
