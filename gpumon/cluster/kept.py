"""What of one picture of the cluster holds for the next one.

Between two samples of a host the rows of its GPUs stay the same: runs end at the last sample, so a
GPU becomes idle by a new one only, and what time alone changes (a host that grows stale, an age)
stands on the host, whose state and reason the rows are made of, too. What was made of the same is
the same. Of 1,000 hosts about half bring news between two pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gpumon.cluster.shares import Share, share_of
from gpumon.cluster.status import GpuStatus, HostStatus

STEADY_SECONDS = 0.05
"""The wall clock may run away from the monotonic one by so much before rows are made anew: times
in them are of the one, measured by the other."""


class _Rows(msgspec.Struct, frozen=True, gc=False):
    made_of: tuple[object, ...]
    offset: float
    gpus: list[GpuStatus]


class Kept:
    """One per fleet; used for one picture at a time."""

    def __init__(self) -> None:
        self._rows: dict[str, _Rows] = {}
        self._shares: dict[str, Share] = {}
        self._old_rows: dict[str, _Rows] = {}
        self._old_shares: dict[str, Share] = {}

    def turn(self) -> None:
        """Begin another picture: what the last one did not use is forgotten."""
        self._old_rows, self._rows = self._rows, {}
        self._old_shares, self._shares = self._shares, {}

    def rows(
        self,
        host: str,
        made_of: tuple[object, ...],
        offset: float,
        make: Callable[[], list[GpuStatus]],
    ) -> list[GpuStatus]:
        """Return the rows of a host's GPUs: those of before where they are made of the same.

        `offset`: the wall clock's seconds ahead of the monotonic one.
        """
        rows = self._old_rows.get(host)
        if rows is None or rows.made_of != made_of or abs(rows.offset - offset) > STEADY_SECONDS:
            rows = _Rows(made_of, offset, make())
        self._rows[host] = rows
        return rows.gpus

    def share(self, host: HostStatus, gpus: Sequence[GpuStatus]) -> Share:
        """Return what the host adds to the sums: as before where its rows are the same ones."""
        share = self._old_shares.get(host.name)
        if share is None or share.gpus is not gpus or share.fresh != (host.state == "fresh"):
            share = share_of(host, gpus)
        self._shares[host.name] = share
        return share
