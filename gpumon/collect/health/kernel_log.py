"""XIDs in the kernel log: the second source beside the driver's events.

Reads /dev/kmsg (Documentation/ABI/testing/dev-kmsg in the kernel's source), or a file or pipe with
such records. Never blocks, reads each record once, and a bounded number of them a sample. It tells
what happened before the agent ran, and what the driver could not tell because it hung.
"""

from __future__ import annotations

import errno
import os
import re

import msgspec

from gpumon.collect.moment import Moment

KERNEL_LOG = "/dev/kmsg"

MOST_READS = 5000
"""Records a sample: the backlog of a large host takes a few samples, a flood no more than that."""

_RECORD_BYTES = 16 * 1024
"""Twice the most that the kernel writes into one record."""

_RECORD = re.compile(rb"(\d+),(\d+),(\d+),[^;]*;(.*)", re.DOTALL)
"""Priority and facility, number, microseconds since boot, flags; message."""

_XID = re.compile(
    rb"(?:nvidia [0-9a-fA-F:.]+: )?NVRM: Xid "
    rb"\((?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})[^)]*\): "
    rb"(\d{1,9})\b"
)
"""The beginning of a message: further on, the kernel quotes what users call their files. Also what
follows the address: ".0" in some drivers, " GPU-I:05" for a MIG instance."""

_KERNEL = 0
"""Facility of the kernel's own records. What a program writes into the log has another one."""

Bus = tuple[int, int, int]
"""PCI domain, bus, device."""


class LoggedXid(msgspec.Struct, frozen=True):
    """An XID as the kernel logged it. `at`: epoch seconds, by today's clock of the host."""

    bus: Bus
    code: int
    at: float


class KernelLog:
    """The log behind `path`; records up to number `after` of this boot are known already."""

    def __init__(self, path: str, after: int | None = None) -> None:
        self._path = path
        self._pending = b""
        self.sequence = after
        """Number of the last record that was read."""
        self._fd: int | None = None
        self.error: str | None = None
        """Why nothing can be read, in words; None while something can."""
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.error = _words(error)

    def read(self, now: Moment) -> list[LoggedXid]:
        """Return the XIDs of the records that are new, oldest first; never raises, never waits."""
        found: list[LoggedXid] = []
        for _ in range(MOST_READS):
            try:
                data = self._read()
            except BrokenPipeError:
                continue  # records were overwritten before they were read; the next one is there
            if not data:
                break
            *lines, self._pending = (self._pending + data).split(b"\n")
            self._pending = self._pending[:_RECORD_BYTES]
            for line in lines:
                xid = self._xid(line, now)
                if xid is not None:
                    found.append(xid)
        return found

    def close(self) -> None:
        """Close the log; nothing is read any more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self) -> bytes:
        """Return the next bytes, b"" when there are none now. Raises BrokenPipeError."""
        if self._fd is None:
            return b""
        try:
            return os.read(self._fd, _RECORD_BYTES)
        except BrokenPipeError:
            raise
        except BlockingIOError:
            pass
        except OSError as error:
            self.error = _words(error)
            self.close()
        return b""

    def _xid(self, line: bytes, now: Moment) -> LoggedXid | None:
        record = _RECORD.match(line)  # None: a blank first, a line of details of the one before
        if record is None:
            return None
        priority, sequence, microseconds = (int(number) for number in record.groups()[:3])
        if self.sequence is not None and sequence <= self.sequence:
            return None
        self.sequence = sequence
        xid = _XID.match(record[4]) if priority >> 3 == _KERNEL else None
        if xid is None:
            return None
        # The log's clock stands still while the machine sleeps, as the monotonic one does.
        age = max(0.0, now.monotonic - microseconds / 1e6)
        domain, bus, device = (int(part, 16) for part in xid.groups()[:3])
        return LoggedXid((domain, bus, device), int(xid[4]), now.wall - age)


def parse_bus_id(bus_id: str) -> Bus | None:
    """Return what "00000000:65:00.0" names; None where it is something else."""
    try:
        domain, bus, device = bus_id.split(":")
        return int(domain, 16), int(bus, 16), int(device.split(".")[0], 16)
    except ValueError:
        return None


def _words(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "no permission"
    return error.strerror or type(error).__name__
