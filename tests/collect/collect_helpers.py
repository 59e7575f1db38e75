"""What several test files of this folder use."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: it starts processes of other users"
)
needs_unshare = pytest.mark.skipif(
    shutil.which("unshare") is None, reason="needs unshare (util-linux)"
)


def until(condition: Callable[[], Any], what: str, seconds: float = 10.0) -> Any:
    """Wait until `condition()` is true and return it; fail with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {seconds} s")
