"""Since when a process is on a GPU, as far as somebody watched it come.

Neither driver nor kernel tells when a process opened a GPU. A process that began seven hours ago
may have taken it ten seconds ago. So it is the watcher who knows: it is on the GPU since the later
of its own start and the last sample without it. Of a process that was there at the first look,
only its start is known, and it can't be there for longer.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpumon.states import occupants
from gpumon.summary import GpuSummary, Holder, MigSummary

_OTHER_PROCESS_SECONDS = 2.0
"""A start so much later than the first sight of a pid is that of another process."""


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One process on one GPU."""

    first: float
    """The first sample with it, by the watcher's monotonic clock."""
    without: float | None
    """The last sample without it, by the host's clock; None: there was none."""
    user: str | None = None
    """None: nobody knows whose it is."""


class Arrivals(msgspec.Struct, frozen=True):
    """All processes on one GPU or MIG instance, by pid."""

    listed_at: float | None = None
    """The last sample with a list of processes, by the host's clock; None: there was none."""
    pids: dict[int, Arrival] = {}

    def next(
        self, gpu: GpuSummary | MigSummary, *, sampled: float, taken_at: float | None
    ) -> Arrivals:
        """Return the arrivals after a sample. One without a list of processes changes nothing."""
        if not gpu.processes_known:
            return self
        found = {}
        for holder in gpu.holders:
            for pid in holder.pids:
                known = self.pids.get(pid)
                if known is None or not _same(known.user, holder.user):
                    known = Arrival(sampled, self.listed_at, holder.user)
                found[pid] = known
        return Arrivals(taken_at, found)

    def moved(self, seconds: float) -> Arrivals:
        """Return them by the host's clock after that was set by so much."""
        return Arrivals(
            None if self.listed_at is None else self.listed_at + seconds,
            {
                pid: Arrival(
                    one.first, None if one.without is None else one.without + seconds, one.user
                )
                for pid, one in self.pids.items()
            },
        )

    def fill_in(self, gpu: GpuSummary | MigSummary) -> None:
        """Set `on_gpu_since` of those holders whose processes were all seen to come.

        What the agent told of them stays: it saw more samples.
        """
        for holder in gpu.holders:
            if holder.on_gpu_since is not None:
                continue
            last = [one.without for one in self._of(holder)]
            known = [moment for moment in last if moment is not None]
            if known and len(known) == len(last):
                came = min(known)
                start = holder.started_at
                holder.on_gpu_since = round(came if start is None else max(came, start), 3)

    def held_from(
        self, gpu: GpuSummary | MigSummary, by_our_clock: Callable[[float | None], float | None]
    ) -> float | None:
        """Return the first sample with one of those who hold the GPU now; None: nobody is listed.

        By the watcher's clock. Others may have held it before: that is not theirs.
        """
        firsts = []
        for holder in occupants(gpu):
            seen = [one.first for one in self._of(holder)]
            if seen:
                first, start = min(seen), by_our_clock(holder.started_at)
                other = start is not None and start > first + _OTHER_PROCESS_SECONDS
                firsts.append(start if other and start is not None else first)
        return min(firsts, default=None)

    def _of(self, holder: Holder) -> list[Arrival]:
        return [self.pids[pid] for pid in holder.pids if pid in self.pids]


def _same(before: str | None, now: str | None) -> bool:
    """Return whether a pid may be the same process still, by its user: another one's is another."""
    return before is None or now is None or before == now
