"""The driver's event sets: XIDs and uncorrectable memory errors as the driver tells of them.

Never waits for an event. All GPUs share one set, which costs one call a sample, until it says that
a GPU is lost: it may say so for ever, and never which one. From then on each GPU has a set of its
own, so that the lost one does not keep the events of the others. A GPU's events are asked for once;
where that is not possible the reason is kept in words, and it is tried again only where it may
succeed later.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from gpumon.collect import nvml
from gpumon.collect.nvml import Unknown
from gpumon.collect.questions import MINUTE

MOST_EVENTS = 256
"""Taken out of a set in one sample; the driver keeps the rest."""

_NO_XIDS = "not among the events of this GPU"


class _Set(msgspec.Struct, eq=False):
    """One event set, and the GPUs in it: index by the address of the handle."""

    made: Any
    gpus: dict[int, int] = {}


class EventSets:
    """The event sets of this opening of NVML."""

    def __init__(self) -> None:
        self._sets: list[_Set] = []
        self._apart = False
        """Whether each GPU has a set of its own."""
        self._due: dict[int, float] = {}
        self.refused: dict[int, str] = {}
        """Index -> why the driver tells no XIDs of this GPU."""

    def watch(self, index: int, handle: object, now: float) -> None:
        """Ask for the events of a GPU, unless that was done. `now`: seconds, monotonic."""
        if now < self._due.get(index, 0.0):
            return
        types = nvml.call("nvmlDeviceGetSupportedEventTypes", handle)
        if isinstance(types, Unknown):
            self._put_off(index, types, now)
            return
        wanted = types & (nvml.XID_EVENT | nvml.ECC_EVENT)
        if wanted:
            answer = self._register(index, handle, wanted)
            if isinstance(answer, Unknown):
                self._put_off(index, answer, now)
                return
        self._due[index] = math.inf
        self.refused.pop(index, None)
        if not wanted & nvml.XID_EVENT:
            self.refused[index] = _NO_XIDS

    def _register(self, index: int, handle: object, wanted: int) -> Unknown | None:
        """Register a GPU with the set of all, or with a new one."""
        which = self._sets[0] if self._sets and not self._apart else None
        if which is None:
            made = nvml.call("nvmlEventSetCreate")
            if isinstance(made, Unknown):
                return made
            which = _Set(made)
            self._sets.append(which)
        answer = nvml.call("nvmlDeviceRegisterEvents", handle, wanted, which.made)
        if isinstance(answer, Unknown):
            if not which.gpus:
                self._free(which)
            return answer
        which.gpus[nvml.address(handle)] = index
        return None

    def drain(self, now: float) -> list[tuple[int, int | None]]:
        """Return (index, XID) for each event since the last call; None: a memory error."""
        found: list[tuple[int, int | None]] = []
        for which in list(self._sets):
            for _ in range(MOST_EVENTS):
                event = nvml.call("nvmlEventSetWait_v2", which.made, 0)
                if isinstance(event, Unknown):
                    if event.code != nvml.TIMEOUT:
                        self._give_up(which, event, now)
                    break
                # The handle is compared, never used: the GPU may be lost.
                index = which.gpus.get(nvml.address(event.device))
                if index is not None:
                    is_xid = event.eventType == nvml.XID_EVENT
                    found.append((index, int(event.eventData) if is_xid else None))
        return found

    def _give_up(self, which: _Set, why: Unknown, now: float) -> None:
        """Give a set back that tells no more events; its GPUs get others, if they can be asked."""
        lost_among_others = why.code == nvml.GPU_IS_LOST and not self._apart
        for index in which.gpus.values():
            self.refused[index] = why.reason
            self._due[index] = now if lost_among_others else now + MINUTE
        self._apart = self._apart or lost_among_others
        self._free(which)

    def close(self) -> None:
        """Give the sets back; `watch` makes others. Before NVML is closed."""
        for which in list(self._sets):
            self._free(which)
        self._apart = False
        self._due.clear()
        self.refused.clear()

    def _free(self, which: _Set) -> None:
        nvml.call("nvmlEventSetFree", which.made)
        self._sets.remove(which)

    def _put_off(self, index: int, why: Unknown, now: float) -> None:
        self.refused[index] = why.reason
        self._due[index] = math.inf if why.settled else now + MINUTE
