"""Prometheus' own judgement of a text, where its tool is installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def complaints(text: str | bytes) -> str:
    """Return what `promtool check metrics` has to say: nothing, of a good text."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing; it comes with Debian's package prometheus")
    data = text.encode() if isinstance(text, str) else text
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=data, capture_output=True, timeout=20
    )
    return (done.stdout + done.stderr).decode()
