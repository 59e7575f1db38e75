"""Real cgroups for the tests, in whatever hierarchies this machine has mounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Hierarchy:
    """One mounted hierarchy in which cgroups can be made; takes away what it made."""

    def __init__(self, kind: str, top: Path) -> None:
        self.kind = kind
        self._top = top
        self._made: list[Path] = []

    def put(self, pid: int, path: str) -> None:
        """Move a process into the cgroup `path`, made with its parents where they are missing."""
        folder = self._top
        for part in path.strip("/").split("/"):
            folder = folder / part
            if not folder.exists():
                folder.mkdir()
                self._made.append(folder)
        (folder / "cgroup.procs").write_text(str(pid))

    def clean(self) -> None:
        for folder in reversed(self._made):
            for pid in (folder / "cgroup.procs").read_text().split():
                (self._top / "cgroup.procs").write_text(pid)
            folder.rmdir()
        self._made.clear()


def hierarchy(kind: str) -> Hierarchy:
    """Return the hierarchy "v1" or "v2"; skips where this machine has none that can be written."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, system, options = line.split()[:4]
        # Any v1 hierarchy would do, but one without a controller needs no settings.
        fits = system == "cgroup2" if kind == "v2" else "name=systemd" in options.split(",")
        if fits and system.startswith("cgroup") and os.access(point, os.W_OK):
            return Hierarchy(kind, Path(point))
    pytest.skip(f"needs a writable hierarchy of cgroups {kind}: none is mounted here")
