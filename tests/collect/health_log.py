"""Kernel logs for tests: records as /dev/kmsg gives them."""

from __future__ import annotations

import time
from pathlib import Path

KERNEL_NOTICE, USER_NOTICE = 5, 1 << 3 | 5
"""Priority and facility of a record, of the kernel's own and of a program's."""


def bus(gpu) -> str:
    """Return the address of a fake GPU as the driver logs it: "0000:17:00"."""
    return gpu["pci.bus_id"][4:].removesuffix(".0").lower()


class Log:
    """A kernel log in a file. `ago`: how many seconds old the record is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sequence = 100
        path.touch()

    def write(self, message: str, *, ago: float = 0.0, priority: int = KERNEL_NOTICE) -> None:
        self.sequence += 1
        microseconds = max(0, int((time.monotonic() - ago) * 1e6))
        record = f"{priority},{self.sequence},{microseconds},-;{message}\n SUBSYSTEM=pci\n"
        with self.path.open("a") as file:
            file.write(record)

    def xid(self, gpu, code: int, **options: float) -> None:
        self.write(f"NVRM: Xid (PCI:{bus(gpu)}): {code}, pid=4242, name=python, Ch 1", **options)
