"""Since when a GPU is unused, held, free or broken: runs of samples.

Both watch: the agent every sample of its own host, the server what its polls bring. All moments are
by the watcher's monotonic clock. A sample that does not say (None), or a gap between two samples,
ends a run: not knowing is not idling. On the server, what the agent knows of its own GPUs
(`unused_since`, `free_since`, `watched_since`) goes before what the polls showed, since the agent
sees every sample.
"""

from __future__ import annotations

import msgspec

from gpumon.config import Limits
from gpumon.states import Window, fault_of, is_free, is_held, is_unused, occupants
from gpumon.summary import GpuSummary, HostSummary, MigSummary

STEADY_SECONDS = 2.0
"""A start told by the agent that moves by less than this has not moved: the way of each answer
takes its own time."""


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """When the runs of one GPU or MIG instance began; None: not in such a run."""

    observed: float
    """Since when it is watched without a gap."""
    unused: float | None = None
    held: float | None = None
    free: float | None = None
    fault: float | None = None


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of all GPUs of one host, as of its last sample. GPUs that are gone are not in it."""

    sampled: float
    taken_at: float | None
    """The same moment by the host's clock, which tells one sample from the next."""
    runs: dict[str, Runs]

    def window(self, key: str, now: float) -> Window:
        """Return the runs of a GPU (see `gpu_key`, `mig_key`) as durations."""
        runs = self.runs.get(key)
        sample_age = max(0.0, now - self.sampled)
        if runs is None:
            return Window(sample_age=sample_age)
        end = self.sampled
        unused, held, free, fault = runs.unused, runs.held, runs.free, runs.fault
        return Window(
            unused_for=None if unused is None else max(0.0, end - unused),
            held_for=None if held is None else max(0.0, end - held),
            free_for=None if free is None else max(0.0, end - free),
            fault_for=None if fault is None else max(0.0, end - fault),
            observed_for=end - runs.observed,
            sample_age=sample_age,
        )


def gpu_key(gpu: GpuSummary) -> str:
    """Return what a GPU is known by: its UUID, else its index."""
    return gpu.uuid or f"#{gpu.index}"


def mig_key(gpu: GpuSummary, instance: MigSummary) -> str:
    """Return what a MIG instance is known by: its UUID, else its place on its GPU."""
    return instance.uuid or f"{gpu_key(gpu)}/{instance.index}"


def advance(
    before: Watch | None,
    summary: HostSummary,
    *,
    sampled: float,
    limits: Limits,
    longest_gap: float,
) -> Watch:
    """Return the watch after a reading that was taken at the moment `sampled`.

    The same sample once more changes nothing. More than `longest_gap` seconds between two samples
    end all runs.
    """
    if before is not None and summary.time is not None and summary.time == before.taken_at:
        return before
    unbroken = before is not None and sampled - before.sampled <= longest_gap
    known = before.runs if before is not None and unbroken else {}
    sample = _Sample(sampled, summary.time, limits)
    runs: dict[str, Runs] = {}
    for gpu in summary.gpus:
        key = gpu_key(gpu)
        runs[key] = sample.extend(known.get(key), gpu)
        for instance in gpu.mig:
            key = mig_key(gpu, instance)
            runs[key] = sample.extend(known.get(key), instance)
    return Watch(sampled=sampled, taken_at=summary.time, runs=runs)


class _Sample:
    """One moment, by both clocks."""

    def __init__(self, sampled: float, taken_at: float | None, limits: Limits) -> None:
        self.sampled = sampled
        self.taken_at = taken_at
        self.limits = limits

    def extend(self, before: Runs | None, gpu: GpuSummary | MigSummary) -> Runs:
        """Return the runs of a GPU with this sample added."""
        first_look = before is None
        old = Runs(observed=self.sampled) if before is None else before
        held_already = self._oldest_process(gpu) if first_look else None
        new = Runs(
            observed=old.observed,
            unused=self._start(is_unused(gpu, self.limits), old.unused, gpu.unused_since),
            # Who holds a GPU that is seen for the first time has held it since its process began.
            held=self._start(is_held(gpu), old.held, held_already),
            free=self._start(is_free(gpu, self.limits), old.free, gpu.free_since),
            fault=self._start(
                isinstance(gpu, GpuSummary) and fault_of(gpu) is not None, old.fault, None
            ),
        )
        told = self._by_our_clock(gpu.watched_since)
        if told is not None:
            steady = abs(told - new.observed) < STEADY_SECONDS
            return new if steady else msgspec.structs.replace(new, observed=told)
        # The agent puts a start later than we do: there was a use between two polls, or the agent
        # itself began anew. Nothing before that start is vouched for.
        moved = [
            start
            for start, earlier in ((new.unused, old.unused), (new.free, old.free))
            if start is not None and earlier is not None and start > earlier
        ]
        if moved:
            return msgspec.structs.replace(new, observed=max(new.observed, *moved))
        return new

    def _start(self, in_run: bool | None, before: float | None, told: float | None) -> float | None:
        """Return when the run began; `told` is what the agent says, by the host's clock."""
        if not in_run:
            return None
        start = self._by_our_clock(told)
        if start is None:
            return self.sampled if before is None else before
        if before is not None and abs(start - before) < STEADY_SECONDS:
            return before
        return start

    def _by_our_clock(self, told: float | None) -> float | None:
        """Return a moment of the host's clock by the server's; None when it makes no sense."""
        if told is None or self.taken_at is None or told > self.taken_at:
            return None
        return self.sampled - (self.taken_at - told)

    def _oldest_process(self, gpu: GpuSummary | MigSummary) -> float | None:
        starts = [holder.started_at for holder in occupants(gpu) if holder.started_at is not None]
        return min(starts) if starts else None
