"""The GPUs that this host has had: eight cards must not become seven without a word.

Keyed by UUID, so that a new order of the indices, a reload of the driver or another MIG layout
changes nothing. Pure: now is an argument.
"""

from __future__ import annotations

import msgspec

from gpumon.collect.health.kernel_log import Bus, parse_bus_id
from gpumon.collect.health.times import known
from gpumon.model import Gpu
from gpumon.units import clock

MOST_KNOWN = 64


class KnownGpu(msgspec.Struct):
    """A GPU as it was last listed."""

    index: int
    name: str | None = None
    pci_bus_id: str | None = None
    missing_since: float | None = None
    """Epoch seconds of the first reading without it; None while it is listed."""
    counted: int = 0
    """How many GPUs the driver counts without it."""


class KnownGpus:
    """What is known, by UUID."""

    def __init__(self, gpus: dict[str, KnownGpu] | None = None) -> None:
        self.gpus = gpus or {}

    def update(self, count: int | None, rows: list[Gpu], now: float) -> int:
        """Learn from a reading: the driver counts `count` GPUs (None: it could not be asked).

        `now` is epoch seconds. As long as a row has no UUID nothing new goes missing: that row may
        be the GPU that is not listed by name. Returns how many are missing of which nobody can say
        which ones they are.
        """
        if count is None:
            return 0
        new = [row for row in rows if row.uuid is not None and row.uuid not in self.gpus]
        self._drop_replaced(new)
        listed: set[str] = set()
        for row in rows:
            if row.uuid is not None:
                listed.add(row.uuid)
                self._learn(row.uuid, row)
        unnamed = len(rows) - len(listed)
        unlisted = [gpu for uuid, gpu in self.gpus.items() if uuid not in listed]
        for gpu in unlisted:
            if gpu.missing_since is None and not unnamed:
                gpu.missing_since = now
            gpu.counted = count
        self._bound()
        return max(0, sum(gpu.missing_since is None for gpu in unlisted) - unnamed)

    def missing(self, rows: list[Gpu], now: float, boot_wall: float = 0.0) -> list[Gpu]:
        """Return a row for each GPU that is missing, at its old index or at the next free one.

        `boot_wall` is the start of the machine. A GPU that has been missing since a time that is
        still to come, by today's clock, was so before that start; when is not known.
        """
        taken = {row.index for row in rows}
        free = max(taken, default=-1) + 1
        found: list[Gpu] = []
        lost = [(uuid, gpu) for uuid, gpu in self.gpus.items() if gpu.missing_since is not None]
        free = max([free, *(gpu.index + 1 for _, gpu in lost)])
        for uuid, gpu in sorted(lost, key=lambda pair: (pair[1].index, pair[0])):
            index = gpu.index
            if index in taken:
                index, free = free, free + 1
            taken.add(index)
            exact = known(gpu.missing_since or 0.0, now)
            since = clock(boot_wall if exact is None else exact, now)
            if exact is None:
                since = f"before the start of this machine at {since} (the clock was set back)"
            counts = f"the driver counts {gpu.counted} GPU{'' if gpu.counted == 1 else 's'}"
            found.append(
                Gpu(
                    index=index,
                    uuid=uuid,
                    pci_bus_id=gpu.pci_bus_id,
                    name=gpu.name,
                    error=f"missing since {since}: {counts}",
                    lost=True,
                    missing_since=round(boot_wall, 3) if exact is None else exact,
                )
            )
        return sorted(found, key=lambda row: row.index)

    def forget_missing(self) -> None:
        """Forget the GPUs that are missing: somebody knows."""
        self.gpus = {uuid: gpu for uuid, gpu in self.gpus.items() if gpu.missing_since is None}

    def merge(self, gpus: dict[str, KnownGpu]) -> None:
        """Add what was kept of before, where no other card stands in its place by now."""
        places = {
            gpu.pci_bus_id
            for uuid, gpu in self.gpus.items()
            if uuid not in gpus and gpu.pci_bus_id is not None
        }
        for uuid, gpu in gpus.items():
            if gpu.pci_bus_id not in places:
                self.gpus.setdefault(uuid, gpu)
        self._bound()

    def places(self) -> dict[Bus, str]:
        """Return the UUID of the GPU at each PCI address; the listed one where there are two."""
        found: dict[Bus, str] = {}
        for uuid, gpu in self.gpus.items():
            bus = None if gpu.pci_bus_id is None else parse_bus_id(gpu.pci_bus_id)
            if bus is not None and (gpu.missing_since is None or bus not in found):
                found[bus] = uuid
        return found

    def _learn(self, uuid: str, row: Gpu) -> None:
        gpu = self.gpus.setdefault(uuid, KnownGpu(row.index))
        gpu.index, gpu.missing_since = row.index, None
        gpu.name = row.name or gpu.name
        gpu.pci_bus_id = row.pci_bus_id or gpu.pci_bus_id

    def _drop_replaced(self, new: list[Gpu]) -> None:
        """Forget the GPUs in whose place a card stands that was never seen before."""
        places = {row.pci_bus_id for row in new if row.pci_bus_id is not None}
        if places:
            self.gpus = {
                uuid: gpu for uuid, gpu in self.gpus.items() if gpu.pci_bus_id not in places
            }

    def _bound(self) -> None:
        """Keep a bounded number: those that are listed, then those that went missing last."""
        if len(self.gpus) > MOST_KNOWN:
            order = sorted(
                self.gpus.items(),
                key=lambda pair: (
                    pair[1].missing_since is not None,
                    -(pair[1].missing_since or 0.0),
                ),
            )
            self.gpus = dict(order[:MOST_KNOWN])
