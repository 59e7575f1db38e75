"""Reading one process in /proc: what a sample needs, with as few reads as that takes.

Errors are those of the file system; `processes.py` gives them their meaning.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable

import msgspec

from gpumon.collect.deadline import Deadline

PROC = "/proc"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the host's own pid namespace (include/linux/proc_ns.h)."""
PID_MAX_LIMIT = 4_194_304
"""No kernel gives higher pids (include/linux/threads.h)."""

_COMMAND_LINE_BYTES = 16 * 1024
"""An argument list can have megabytes; nobody sees more than its beginning."""
_CGROUP_BYTES = 64 * 1024
_ENVIRONMENT_BYTES = 128 * 1024
_MOUNTS_BYTES = 1024 * 1024

_MOST_KEPT = 512
"""Open files; a process may have 1024 by default."""
_kept: dict[str, int] = {}
"""Descriptors by path, see `keep_open`."""

_memory = Deadline(0.25, 16)
"""For what lies in the memory of processes: all that may be stuck costs a sample 4 s at most."""

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk sleep",
    "T": "stopped",
    "t": "tracing stop",
    "Z": "zombie",
    "X": "dead",
    "x": "dead",
    "I": "idle",
    "P": "parked",
}


class Stat(msgspec.Struct, frozen=True):
    """What /proc/PID/stat says."""

    comm: bytes
    """The kernel's name of the process: at most 15 bytes, any of them."""
    state: str
    parent: int
    """Its pid; 0: none, or none that this pid namespace can see."""
    cpu_ticks: int
    start_ticks: int
    """Since boot; with the pid the identity of the process."""
    resident_pages: int


def read_stat(folder: str) -> Stat:
    """Return the state of the process whose /proc folder is `folder`."""
    return parse_stat(_read(f"{folder}/stat", 4096))


def parse_stat(data: bytes) -> Stat:
    """Take the line apart. The name stands in brackets and may hold brackets, blanks, newlines."""
    opened, closed = data.index(b"("), data.rindex(b")")
    rest = data[closed + 2 :].split()
    state = rest[0].decode("ascii", "replace")
    return Stat(
        comm=data[opened + 1 : closed],
        state=_STATES.get(state, state),
        parent=int(rest[1]),
        cpu_ticks=int(rest[11]) + int(rest[12]),
        start_ticks=int(rest[19]),
        resident_pages=int(rest[21]),
    )


def read_uid(folder: str) -> int:
    """Return the real uid of the process: who started it.

    The owner of the folder is the effective one, so root for a set-user-id program.
    """
    for line in _read(f"{folder}/status", 4096).split(b"\n"):
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    raise ValueError(f"{folder}/status: a line Uid: was expected, found none")


def read_arguments(folder: str) -> list[str]:
    """Return the beginning of the argument list, undecodable bytes replaced.

    Programs that rewrite their title leave it as one argument, padded with NULs or blanks; the
    padding is dropped. [] for kernel threads and zombies, which have none. Raises TimeoutError when
    the memory of the process does not answer.
    """
    data = _read_memory(f"{folder}/cmdline", _COMMAND_LINE_BYTES)
    data = data.rstrip(b"\0 ")
    return data.decode("utf-8", "replace").split("\0") if data else []


def read_cgroups(folder: str) -> str:
    """Return the cgroups of the process, one line a hierarchy; "" where the kernel has none."""
    try:
        return _read(f"{folder}/cgroup", _CGROUP_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def read_environment(folder: str) -> bytes:
    """Return the environment that the process was started with.

    Raises ValueError if it is huge, TimeoutError when the memory of the process does not answer.
    """
    data = _read_memory(f"{folder}/environ", _ENVIRONMENT_BYTES)
    if len(data) == _ENVIRONMENT_BYTES:
        raise ValueError(f"{folder}/environ: {_ENVIRONMENT_BYTES} bytes or more")
    return data


def read_mounts(folder: str) -> str:
    """Return the mount table of the process, form "mountinfo". Raises ValueError if it is huge.

    Only this file is read in several pieces: the kernel hands out one page at a time.
    """
    pieces: list[bytes] = []
    room = _MOUNTS_BYTES
    fd = os.open(f"{folder}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while piece := os.read(fd, room):
            pieces.append(piece)
            room -= len(piece)
            if room <= 0:
                raise ValueError(f"{folder}/mountinfo: more than {_MOUNTS_BYTES} bytes")
    finally:
        os.close(fd)
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def mount_namespace(folder: str) -> int:
    """Return the number of the mount namespace of the process."""
    return os.stat(f"{folder}/ns/mnt").st_ino


def pid_max(proc: str = "/proc") -> int:
    """Return the highest pid that this kernel gives, and its limit where that can't be read."""
    try:
        return int(_read(f"{proc}/sys/kernel/pid_max", 64))
    except (OSError, ValueError):
        return PID_MAX_LIMIT


def in_initial_pid_namespace(proc: str = "/proc") -> bool:
    """Return whether pids here are the host's; False where that can't be told."""
    try:
        return os.stat(f"{proc}/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    """Return whether the process exists, also where the host hides it from /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _read_memory(path: str, most: int) -> bytes:
    """Read a file that the kernel takes from the memory of the process (see deadline.py)."""
    return _memory.call(path, lambda: _read(path, most))


def keep_open(paths: Iterable[str]) -> None:
    """Keep these files in folders of processes open, as far as that is allowed, and no others.

    To open one takes longer than to read it. An open one belongs to its process and not to the pid:
    it never shows another process, and says so when its own has ended.
    """
    wanted = set(paths)
    for path in _kept.keys() - wanted:
        os.close(_kept.pop(path))
    for path in wanted - _kept.keys():
        if len(_kept) >= _most_kept():
            break
        with contextlib.suppress(OSError):  # it has ended meanwhile
            _kept[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _most_kept() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_KEPT if allowed == resource.RLIM_INFINITY else min(_MOST_KEPT, allowed // 2)


def _read(path: str, most: int) -> bytes:
    kept = _kept.get(path)
    if kept is not None:
        try:
            return os.pread(kept, most, 0)
        except ProcessLookupError:  # another process may have its pid by now
            os.close(_kept.pop(path))
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, most)
    finally:
        os.close(fd)
    return data
