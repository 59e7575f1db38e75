"""Other tools, each installed in a virtual environment of its own, away from this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

INSTALL_SECONDS = 120
PACKAGES = {"gpustat": "gpustat", "nvitop": "nvitop", "glances": "glances[gpu]"}
REMARKS = {"glances": " (GPUs only, no processes)"}


@dataclass(frozen=True)
class Peer:
    """A tool that is installed."""

    name: str
    version: str
    python: Path
    """Of its virtual environment."""

    @property
    def title(self) -> str:
        """The name as the tables have it."""
        return f"{self.name} {self.version}{REMARKS.get(self.name, '')}"

    def command(self, *arguments: str) -> list[str]:
        """Return its own command."""
        return [str(self.python.parent / self.name), *arguments]


def install(say: Callable[[str], None]) -> tuple[list[Peer], list[str]]:
    """Install what is not there yet; return the tools, and a sentence for each that is missing."""
    peers: list[Peer] = []
    missing: list[str] = []
    for name, package in PACKAGES.items():
        try:
            peers.append(_install(name, package, say))
        except (OSError, subprocess.SubprocessError) as error:
            missing.append(f"{name} is left out: it could not be installed ({_reason(error)})")
    return peers, missing


def install_one(name: str, package: str, say: Callable[[str], None]) -> Peer:
    """Install one more where it is not there yet. Raises OSError or SubprocessError."""
    return _install(name, package, say)


def _install(name: str, package: str, say: Callable[[str], None]) -> Peer:
    folder = cache() / name
    python = folder / "bin" / "python"
    if _version(python, name) is None:
        say(f"installing {package} into {folder}")
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
        )
    version = _version(python, name)
    if version is None:
        raise OSError("it is not there after the installation")
    return Peer(name, version, python)


def cache() -> Path:
    """Return the folder that all of it is in; it may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gpumon-bench"


def _version(python: Path, name: str) -> str | None:
    """Return the version of an installed tool, None where it is not installed."""
    script = f"import importlib.metadata as m; print(m.version({name!r}))"
    try:
        return _run([str(python), "-I", "-c", script]).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS
    )
    return done.stdout


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = str(error.stderr).strip().splitlines()
        return lines[-1] if lines else f"exit code {error.returncode}"
    return str(error)
