"""The text of /proc/PID/cgroup -> the distinct paths in it."""

from __future__ import annotations

import re

_GONE = " (deleted)"
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


def paths(text: str) -> list[str]:
    """Return each path once, in the order of the text; the root is left out.

    Version 1 has one line a hierarchy, "4:memory:/docker/3f4e...", version 2 one line in all,
    "0::/system.slice/docker-3f4e....scope"; some hosts have both. Seen from a cgroup namespace, a
    path may begin with "/../..". Lines of any other form are skipped.
    """
    found: dict[str, None] = {}
    for line in text.split("\n"):
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/") and parts[2] != "/":
            found[parts[2].removesuffix(_GONE)] = None
    return list(found)


def unescape(name: str) -> str:
    """Return a name as it was before systemd made a unit name of it: "gpu\\x2dbox" -> "gpu-box"."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name)
