"""What the state file holds: its form, and reading it without trusting it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpumon.collect.health.kernel_log import LoggedXid
from gpumon.collect.health.known import KnownGpu
from gpumon.collect.health.ledger import Entry
from gpumon.text import clean

_ADVICE_LENGTH = 1000


class State(msgspec.Struct, kw_only=True):
    """What the state file holds."""

    boot_id: str | None = None
    boot_wall: float | None = None
    """When that boot was, by the clock that all times here are of."""
    log_sequence: int | None = None
    """Number of the last record of the kernel log that is known, in the boot `boot_id`."""
    unplaced: list[LoggedXid] = []
    """XIDs of the log whose GPU is not known."""
    gpus: dict[str, KnownGpu] = {}
    entries: dict[str, list[Entry]] = {}


def read(data: bytes, path: str, log: Callable[[str], None]) -> State:
    """Return the state in `data`, its texts cleaned; an empty one, and a line, if that is none."""
    try:
        state = msgspec.json.decode(data, type=State)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        log(f"{path} can't be used ({error}): a new one takes its place")
        return State()
    for gpu in state.gpus.values():
        gpu.name = clean(gpu.name) or None
    for entries in state.entries.values():
        entries[:] = [entry for entry in entries if entry.sources]
        for entry in entries:
            entry.text, entry.advice = clean(entry.text), clean(entry.advice, _ADVICE_LENGTH)
    return state
