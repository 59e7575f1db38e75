"""The benchmark of /metrics runs and prints what it promises. Its figures are not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]


def test_server_and_agent_have_their_rows_and_samples() -> None:
    command = [sys.executable, str(ROOT / "bench" / "scrape.py"), "--quick", "--no-peers"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    samples = {
        row[0]: int(row[2].replace(",", "")) for row in rows if row[0].startswith("| server,")
    }
    assert samples["| server, 100 hosts"] > 10_000
    assert sum(row[0].startswith("| agent, ") for row in rows) == 2
    assert "bytes a GPU, server" in done.stdout
