"""The driver's event set: XIDs and uncorrectable memory errors as the driver tells of them.

Never waits for an event. A GPU's events are asked for once; where that is not possible the reason
is kept in words, and it is tried again only where it may succeed later.
"""

from __future__ import annotations

import math
from typing import Any

from gpumon.collect import nvml
from gpumon.collect.nvml import Unknown
from gpumon.collect.questions import MINUTE

MOST_EVENTS = 256
"""Taken out of the set in one sample; the driver keeps the rest."""

_NO_XIDS = "not among the events of this GPU"


class EventSet:
    """The event set of this opening of NVML, and the GPUs whose events it gets, by index."""

    def __init__(self) -> None:
        self._set: Any = None
        self._index_by_address: dict[int, int] = {}
        self._due: dict[int, float] = {}
        self._make_due = 0.0
        self.refused: dict[int, str] = {}
        """Index -> why the driver tells no XIDs of this GPU."""

    def watch(self, index: int, handle: object, now: float) -> None:
        """Ask for the events of a GPU, unless that was done. `now`: seconds, monotonic."""
        if now < self._due.get(index, 0.0) or now < self._make_due:
            return
        if self._set is None:
            made = nvml.call("nvmlEventSetCreate")
            if isinstance(made, Unknown):
                self._put_off(index, made, now)
                return
            self._set = made
        types = nvml.call("nvmlDeviceGetSupportedEventTypes", handle)
        if isinstance(types, Unknown):
            self._put_off(index, types, now)
            return
        wanted = types & (nvml.XID_EVENT | nvml.ECC_EVENT)
        answer = (
            nvml.call("nvmlDeviceRegisterEvents", handle, wanted, self._set) if wanted else None
        )
        if isinstance(answer, Unknown):
            self._put_off(index, answer, now)
            return
        self._due[index] = math.inf
        self._index_by_address[nvml.address(handle)] = index
        self.refused.pop(index, None)
        if not wanted & nvml.XID_EVENT:
            self.refused[index] = _NO_XIDS

    def drain(self, now: float) -> list[tuple[int, int | None]]:
        """Return (index, XID) for each event since the last call; None: a memory error."""
        found: list[tuple[int, int | None]] = []
        for _ in range(MOST_EVENTS if self._index_by_address else 0):
            event = nvml.call("nvmlEventSetWait_v2", self._set, 0)
            if isinstance(event, Unknown):
                if event.code not in (nvml.TIMEOUT, nvml.GPU_IS_LOST):
                    self.close()
                    self._make_due = now + MINUTE
                break
            # The handle is compared, never used: the GPU may be lost.
            index = self._index_by_address.get(nvml.address(event.device))
            if index is not None:
                is_xid = event.eventType == nvml.XID_EVENT
                found.append((index, int(event.eventData) if is_xid else None))
        return found

    def close(self) -> None:
        """Give the set back; `watch` makes another. Before NVML is closed."""
        if self._set is not None:
            nvml.call("nvmlEventSetFree", self._set)
        self._set = None
        self._index_by_address.clear()
        self._due.clear()
        self.refused.clear()

    def _put_off(self, index: int, why: Unknown, now: float) -> None:
        self.refused[index] = why.reason
        self._due[index] = math.inf if why.settled else now + MINUTE
