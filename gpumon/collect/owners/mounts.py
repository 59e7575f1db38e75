"""Whose home folder a container was given, from the mount tables of the container and the host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

_HOME = re.compile(r"/home/([^/]+)\Z")
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True):
    """One line of a mount table."""

    device: str
    root: str
    """Which folder of the file system is mounted."""
    point: str
    """Where, as seen by the process."""


def parse(table: str) -> Iterator[Mount]:
    """Yield the mounts of a table of the form "mountinfo" (proc_pid_mountinfo(5))."""
    for line in table.split("\n"):
        fields = line.split(" ")
        if len(fields) >= 6:
            yield Mount(fields[2], _plain(fields[3]), _plain(fields[4]))


def by_device(table: str) -> dict[str, list[Mount]]:
    """Return the mounts of a table by their file system."""
    found: dict[str, list[Mount]] = {}
    for mount in parse(table):
        found.setdefault(mount.device, []).append(mount)
    return found


def homes(container: str, host: Mapping[str, list[Mount]]) -> frozenset[str]:
    """Return the names of all folders /home/NAME of the host that are mounted in the container.

    `container` is its mount table, `host` the host's `by_device`. What counts is the folder on the
    host, not where the container sees it. A folder below a home is not that home: people mount each
    other's data. Where the container has all homes, it has none: those of its table are only the
    ones in use just then.
    """
    folders = {
        _on_host(inside, outside)
        for inside in parse(container)
        for outside in host.get(inside.device, ())
    }
    if folders & {"/", "/home"}:
        return frozenset()
    found = [_HOME.match(folder) for folder in folders if folder is not None]
    return frozenset(home[1] for home in found if home is not None)


def _on_host(inside: Mount, outside: Mount) -> str | None:
    """Return the folder of the host that is mounted inside; None: not one below `outside`."""
    root = outside.root.rstrip("/")
    if inside.root != root and not inside.root.startswith(root + "/"):
        return None
    below = inside.root[len(root) :].rstrip("/")
    return outside.point.rstrip("/") + below or "/"


def _plain(text: str) -> str:
    """Return a path without the escapes that the kernel writes for blanks."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
