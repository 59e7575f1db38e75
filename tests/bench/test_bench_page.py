"""The benchmark of the page runs and prints what it promises. Its figures are not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]


def test_every_size_and_every_budget_has_its_row() -> None:
    command = [sys.executable, str(ROOT / "bench" / "page.py"), "--quick", "--no-peers"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert sum("| front page |" in row for row in rows) == 2
    assert sum(row.startswith(("| 0 |", "| 500 |", "| 500 alone |")) for row in rows) == 3
    assert "front page, 504 GPUs, as it travels" in done.stdout
    assert "answers per second, 500 open pages" in done.stdout
