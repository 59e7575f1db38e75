"""Whose home folder a container was given, from the mount tables of the container and the host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from gpumon.collect import procfs

_HOME = re.compile(r"/home/([^/]+)\Z")
_ESCAPED = re.compile(r"\\([0-7]{3})")

_TELL_SECONDS = 90.0
"""A process is looked at once a minute; what was found then is told until the next time."""

Points = Mapping[tuple[str, str], frozenset[str]]
"""Where the host has a folder of a file system, by (device, folder)."""


class Mount(msgspec.Struct, frozen=True):
    """One line of a mount table."""

    device: str
    root: str
    """Which folder of the file system is mounted."""
    point: str
    """Where, as seen by the process."""


class Homes:
    """Reads the homes that processes were given; in one sample each mount table once.

    Not longer than one sample: the number of a mount namespace is soon that of another one.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._host: Points | None = None
        self._found: dict[int, frozenset[str] | None] = {}
        self._errors: list[str] = []
        self._now = 0.0
        self._cut: tuple[float, str] | None = None
        """Until when what is told of a table that is too long."""

    def begin(self, now: float, errors: list[str]) -> None:
        """Begin a sample at `now` (seconds, monotonic)."""
        self._now, self._errors = now, errors
        self._host = None
        self._found.clear()
        if self._cut is not None:
            until, sentence = self._cut
            if now < until:
                errors.append(sentence)
            else:
                self._cut = None

    def of(self, folder: str) -> frozenset[str] | None:
        """Return whose homes the process of this /proc folder was given; None: it is not known."""
        try:
            namespace = procfs.mount_namespace(folder)
        except OSError:
            return self._read(folder)
        if namespace not in self._found:
            self._found[namespace] = self._read(folder)
        return self._found[namespace]

    def _read(self, folder: str) -> frozenset[str] | None:
        try:
            if self._host is None:
                # Not the agent's own, which its unit may keep from seeing /home.
                self._host = points_of_homes(procfs.read_mounts(f"{self._proc}/1"))
            return homes(procfs.read_mounts(folder), self._host)
        except OSError:
            return None
        except ValueError as error:
            sentence = (
                f"A mount table is too long to be read whole ({error}): the rule home_mount names "
                "nobody there."
            )
            if sentence not in self._errors:
                self._errors.append(sentence)
            self._cut = self._now + _TELL_SECONDS, sentence
            return None


def parse(table: str) -> Iterator[Mount]:
    """Yield the mounts of a table of the form "mountinfo" (proc_pid_mountinfo(5))."""
    for line in table.split("\n"):
        fields = line.split(" ", 6)
        if len(fields) >= 6:
            yield Mount(fields[2], _plain(fields[3]), _plain(fields[4]))


def points_of_homes(table: str) -> Points:
    """Return the mounts of the host's table through which a home can be seen: few of thousands."""
    found: dict[tuple[str, str], set[str]] = {}
    for mount in parse(table):
        point = mount.point.rstrip("/")
        if point in ("", "/home") or _HOME.match(point):
            found.setdefault((mount.device, mount.root.rstrip("/")), set()).add(point)
    return {key: frozenset(points) for key, points in found.items()}


def homes(container: str, host: Points) -> frozenset[str]:
    """Return the names of all folders /home/NAME of the host that are mounted in the container.

    `container` is its mount table, `host` the host's `points_of_homes`. What counts is the folder
    on the host, not where the container sees it. A folder below a home is not that home: people
    mount each other's data. Where the container has all homes, it has none: those of its table are
    only the ones in use just then.
    """
    inside = {(mount.device, mount.root.rstrip("/")) for mount in parse(container)}
    folders = {
        point + below
        for device, root in inside
        for above, below in _splits(root)
        for point in host.get((device, above), ())
    }
    if folders & {"", "/home"}:
        return frozenset()
    found = [_HOME.match(folder) for folder in folders]
    return frozenset(home[1] for home in found if home is not None)


def _splits(root: str) -> Iterator[tuple[str, str]]:
    """Yield how a folder can lie below what the host mounts: itself, or one or two levels down.

    What lies deeper can't be a home, whether the host mounts "/", "/home" or one home there.
    """
    above = root
    yield above, ""
    for _ in range(2):
        if not above:
            return
        above = above.rpartition("/")[0]
        yield above, root[len(above) :]


def _plain(text: str) -> str:
    """Return a path without the escapes that the kernel writes for blanks."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
