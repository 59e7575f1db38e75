"""Which host lists which GPU: one machine under two names shows here, and a GPU that has moved."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from gpumon.cluster.record import Record
from gpumon.summary import HostSummary

MOST_TWINS = 4
"""So many hosts that list the same GPUs are named."""


class Listings:
    """The hosts of every GPU, for one picture of the cluster."""

    def __init__(self, records: Iterable[Record]) -> None:
        readings = [
            (record.entry.name, record.reading.summary.gpus)
            for record in records
            if record.reading is not None
        ]
        listed = [
            gpu.uuid
            for _, gpus in readings
            for gpu in gpus
            if gpu.uuid is not None and gpu.missing_since is None
        ]
        self._listed = set(listed)
        """UUIDs of the GPUs that a host lists, and not only misses."""
        self._hosts: dict[str, list[str]] = {}
        """UUID of a GPU -> the hosts that list it, where any is listed twice."""
        self._alike: dict[tuple[str, ...], dict[str, None]] = {}
        if len(self._listed) < len(listed):
            for host, gpus in readings:
                for gpu in gpus:
                    if gpu.uuid is not None and gpu.missing_since is None:
                        self._hosts.setdefault(gpu.uuid, []).append(host)

    def __contains__(self, uuid: str | None) -> bool:
        """Return whether some host has this GPU."""
        return uuid in self._listed

    def twins(self, host: str, summary: HostSummary) -> tuple[list[str], int]:
        """Return the first of the other hosts that list a GPU of this one, and how many there are.

        A thousand entries that all lead to one machine are counted once for all of them.
        """
        if not self._hosts:
            return [], 0
        shared = tuple(
            gpu.uuid
            for gpu in summary.gpus
            if gpu.uuid is not None and len(self._hosts.get(gpu.uuid, ())) > 1
        )
        if not shared:
            return [], 0
        alike = self._alike.get(shared)
        if alike is None:
            found = (self._hosts[uuid] for uuid in shared)
            alike = self._alike[shared] = dict.fromkeys(name for names in found for name in names)
        others = list(islice((name for name in alike if name != host), MOST_TWINS))
        return others, len(alike) - (host in alike)
