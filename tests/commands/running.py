"""The command as a person runs it: real processes, a folder of their own, bounded waits."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

WAIT_SECONDS = 30.0


class Command:
    """Runs gpumon in a folder of its own, where it finds no configuration but the test's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GPUMON_", "FAKE_NVML", "LD_LIBRARY_PATH"))
        }
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return subprocess.run(
            [sys.executable, "-m", "gpumon", *arguments],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line of bash that begins with a subcommand, to the end."""
        return subprocess.run(
            ["bash", "-c", f"{shlex.quote(sys.executable)} -m gpumon {line}"],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a daemon; it is ended with the test."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gpumon", *arguments],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def stop(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """End a daemon as systemd does; return its exit code and all that it said."""
        process.terminate()
        out, err = process.communicate(timeout=15)
        return process.returncode, out + err

    def end_all(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            with contextlib.suppress(ValueError):
                process.communicate(timeout=15)


def get(url: str, accept: str = "*/*") -> str:
    """Return the body of a page, whatever its status."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Ask until it holds; refused connections count as not yet. Fails after WAIT_SECONDS."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if holds():
                return
        time.sleep(0.05)
    pytest.fail(f"not within {WAIT_SECONDS:.0f} s: {what}")
