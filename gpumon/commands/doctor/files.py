"""What lies on the disk: configuration, tokens, the agent's state."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from gpumon.commands.check import Report
from gpumon.commands.doctor.finding import Finding, fault, ok, warning
from gpumon.config import Config
from gpumon.version import __version__

SCARCE_MIB = 100
_CONFIG = "See docs/configuration.md; gpumon check shows what would be used"


def versions() -> Iterator[Finding]:
    """Say what runs here."""
    yield ok("version", f"gpumon {__version__}, Python {sys.version.split()[0]}")


def configuration(report: Report) -> Iterator[Finding]:
    """Say what `gpumon check` says."""
    for words in report.faults:
        yield fault("configuration", words, _CONFIG)
    for words in report.warnings:
        yield warning("configuration", words, _CONFIG)
    if report.config is not None and not report.faults and not report.warnings:
        yield ok("configuration", str(report.config.path or "none: every default holds"))


def tokens(path: Path | None) -> Iterator[Finding]:
    """Count what is in the token file, and never tell it. What is weak, `gpumon check` says."""
    name = "token"
    if path is None:
        yield ok(name, "none configured: the agent answers this machine alone, or everybody")
        return
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return  # the configuration's line says why
    held = [line for line in lines if line and not line.startswith("#")]
    if held:
        count = "1 token" if len(held) == 1 else f"{len(held)} tokens"
        yield ok(name, f"{count} in {path}, mode {mode:04o}")


def state(config: Config) -> Iterator[Finding]:
    """Look at the folder in which the agent remembers this host's GPUs."""
    name = "state"
    file = config.agent.state_file
    if file is None:
        yield ok(name, "in systemd's StateDirectory, if the service has one; no file configured")
        return
    folder = file.parent
    if not folder.is_dir():
        yield fault(name, f"the folder {folder} is missing", f"Make it: install -d {folder}")
        return
    free = os.statvfs(folder)
    free_mib = free.f_bavail * free.f_frsize // 1024**2
    if not os.access(folder, os.W_OK | os.X_OK):
        yield fault(
            name, f"this user may not write in {folder}", "chown it to the user of the service"
        )
    elif free_mib < SCARCE_MIB:
        yield warning(name, f"{free_mib} MiB left on the disk of {folder}", "Make room there")
    else:
        yield ok(name, f"{folder} can be written, {free_mib} MiB left")
