"""What the agent remembers of the last half hour, so that it alone can say since when.

A sampler sees one moment, and is replaced when it hangs. The agent outlives it: it watches the runs
of each GPU (`gpumon.windows`) and keeps its utilization of the last 30 minutes as running sums.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from gpumon.config import Limits
from gpumon.model import Gpu, HostSnapshot, MigInstance
from gpumon.summary import GpuSummary, HostSummary, MigSummary
from gpumon.windows import Runs, Watch, advance, gpu_key, mig_key

KEPT_SECONDS = 1800.0
SHORT_SECONDS = 300.0
ENOUGH = 0.9
"""A mean is given when this share of its time was covered by samples that knew the utilization."""

Means = tuple[float | None, float | None]
"""Of one GPU: the mean utilization of SHORT_SECONDS and of KEPT_SECONDS, in percent."""
_NO_MEANS: Means = (None, None)


class _Sums:
    """Running sums of one GPU, an entry a sample: known seconds, and percent times seconds.

    Those of a sample are added when the next one comes, which ends its time. So the difference of
    two entries is what lies between their samples, however many that are.
    """

    def __init__(self, samples: int) -> None:
        self.covered = array("d", bytes(8 * samples))
        self.total = array("d", bytes(8 * samples))
        self.newest: int | None = None

    def add(self, weight: float, percent: int | None) -> None:
        known = weight if self.newest is not None else 0.0
        self.covered.append((self.covered[-1] if self.covered else 0.0) + known)
        self.total.append((self.total[-1] if self.total else 0.0) + known * (self.newest or 0))
        self.newest = None if percent is None else min(percent, 100)

    def drop(self, samples: int) -> None:
        del self.covered[:samples]
        del self.total[:samples]


class Usage:
    """Watches the samples of one host. Times are seconds of the monotonic clock."""

    def __init__(self, interval: float, limits: Limits) -> None:
        self._interval = interval
        self._limits = limits
        self._watch: Watch | None = None
        self._times = array("d")
        self._sums: dict[str, _Sums] = {}

    def longest_gap(self) -> float:
        """Return after how many seconds without a sample all runs end."""
        return 3 * self._interval + 10

    def add(self, summary: HostSummary, now: float) -> tuple[Means, ...]:
        """Take in a sample of the moment `now`, and fill in what it can't know by itself.

        That is `unused_since`, `free_since`, `held_since`, `fault_since`, `watched_since`, and
        `on_gpu_since` of its holders. Returns the means of its GPUs, which a snapshot only has (see
        `complete`).
        """
        self._watch = advance(
            self._watch,
            summary,
            sampled=now,
            limits=self._limits,
            longest_gap=self.longest_gap(),
        )
        self._keep(summary, now)
        if summary.time is None:
            return (_NO_MEANS,) * len(summary.gpus)
        to_wall = summary.time - now
        recent = bisect_right(self._times, now - SHORT_SECONDS)
        first = bisect_right(self._times, now - KEPT_SECONDS)
        means = []
        for gpu in summary.gpus:
            key = gpu_key(gpu)
            _fill(gpu, self._watch.runs[key], to_wall)
            sums = self._sums[key]
            means.append(
                (self._mean(sums, recent, SHORT_SECONDS), self._mean(sums, first, KEPT_SECONDS))
            )
            for instance in gpu.mig:
                _fill(instance, self._watch.runs[mig_key(gpu, instance)], to_wall)
        return tuple(means)

    def _keep(self, summary: HostSummary, now: float) -> None:
        # A sample speaks for the time up to the next one, but not for a gap.
        weight = min(now - self._times[-1], 2 * self._interval) if self._times else 0.0
        old = bisect_left(self._times, now - KEPT_SECONDS)
        del self._times[:old]
        for sums in self._sums.values():
            sums.drop(old)
        known = {gpu_key(gpu): gpu.utilization_percent for gpu in summary.gpus}
        for key in known:
            if key not in self._sums:
                self._sums[key] = _Sums(len(self._times))
        self._times.append(now)
        for key, sums in list(self._sums.items()):
            sums.add(weight, known.get(key))
            if key not in known and sums.covered[0] == sums.covered[-1]:
                del self._sums[key]  # gone for longer than anything is kept

    def _mean(self, sums: _Sums, first: int, seconds: float) -> float | None:
        """Return the mean utilization since the sample at `first`, which was `seconds` ago.

        Each sample is weighted by the time that it stands for.
        """
        covered = sums.covered[-1] - sums.covered[first]
        total = sums.total[-1] - sums.total[first]
        if sums.newest is not None:
            covered += self._interval
            total += self._interval * sums.newest
        if covered < ENOUGH * seconds:
            return None
        return round(total / covered, 1)


def complete(snapshot: HostSnapshot, summary: HostSummary, means: tuple[Means, ...]) -> None:
    """Fill in the snapshot of a sample what `Usage.add` knew of it."""
    for whole, short, (short_mean, long_mean) in zip(
        snapshot.gpus, summary.gpus, means, strict=True
    ):
        _copy(short, whole)
        whole.utilization_5m_percent, whole.utilization_30m_percent = short_mean, long_mean
        for instance, brief in zip(whole.mig, short.mig, strict=True):
            _copy(brief, instance)


def _copy(short: GpuSummary | MigSummary, whole: Gpu | MigInstance) -> None:
    whole.unused_since = short.unused_since
    whole.free_since = short.free_since
    whole.held_since = short.held_since
    if isinstance(whole, Gpu) and isinstance(short, GpuSummary):
        whole.fault_since = short.fault_since
    whole.watched_since = short.watched_since


def _fill(gpu: GpuSummary | MigSummary, runs: Runs, to_wall: float) -> None:
    gpu.unused_since = _wall(runs.unused, to_wall)
    gpu.free_since = _wall(runs.free, to_wall)
    gpu.held_since = _wall(runs.held, to_wall)
    if isinstance(gpu, GpuSummary):
        # Where it was so at the first look already, it is told as old as the watch.
        gpu.fault_since = _wall(runs.observed if runs.fault_at_least else runs.fault, to_wall)
    gpu.watched_since = _wall(runs.observed, to_wall)


def _wall(moment: float | None, to_wall: float) -> float | None:
    return None if moment is None else round(moment + to_wall, 1)
