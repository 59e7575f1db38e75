"""Whether something keeps this machine's clock right, as the kernel has it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

from gpumon.commands.doctor.finding import Finding, ok, warning

TIME_ERROR = 5
"""What adjtimex(2) returns while nothing has set the clock."""

_TIMEX_BYTES = 256  # struct timex has 208; its first field, modes, is 0: only read


def kernel_clock_state() -> int:
    """Return the kernel's word on the clock; -1 where it gives none."""
    return int(
        ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    )


def clock(state: Callable[[], int] = kernel_clock_state) -> Iterator[Finding]:
    """Look at the clock."""
    found = state()
    if found == TIME_ERROR:
        yield warning(
            "clock",
            "no time service keeps this machine's clock right",
            "Install one: apt-get install chrony, or systemctl enable --now systemd-timesyncd",
        )
    elif found < 0:
        yield warning("clock", "the kernel does not tell whether it is right", "Check: timedatectl")
    else:
        yield ok("clock", "kept right by a time service")
