"""Since when a GPU is unused, held, free or broken: runs of samples.

Both watch: the agent every sample of its own host, the server what its polls bring. All moments are
by the watcher's monotonic clock. A sample that does not say (None), or a gap between two samples,
ends a run: not knowing is not idling. On the server, what the agent knows of its own GPUs
(`unused_since`, `free_since`, `held_since`, `fault_since`, `watched_since`, and `on_gpu_since` of
those who hold them) goes before what the polls showed, since the agent sees every sample. Where no
agent tells, the server's polls are the watcher, and what they found at their first look may have
begun earlier.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpumon.arrivals import Arrivals
from gpumon.config import Limits
from gpumon.states import Window, fault_of, is_free, is_held, is_unused
from gpumon.summary import GpuSummary, HostSummary, MigSummary

STEADY_SECONDS = 2.0
"""A start told by the agent that moves by less than this has not moved: the way of each answer
takes its own time."""
CLOCK_SECONDS = 10.0
"""Two clocks that part by more than this between two samples: one was set."""


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """When the runs of one GPU or MIG instance began; None: not in such a run."""

    observed: float
    """Since when it is watched without a gap, by the agent where that tells."""
    looked: float
    """Since when we ourselves watch it without a gap."""
    unused: float | None = None
    held: float | None = None
    """By those who hold it now."""
    free: float | None = None
    fault: float | None = None
    held_at_least: bool = False
    fault_at_least: bool = False
    """Whether it was so at the first look already."""
    arrivals: Arrivals | None = None
    """Where nobody else tells who came when."""
    index: int | None = None
    """Of a whole GPU."""
    uuid: str | None = None
    """The last one that was told."""
    unread: bool = False
    """Whether the last sample could not say who or what is on it."""


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
            held_at_least=held is not None and runs.held_at_least,
            fault_at_least=fault is not None and runs.fault_at_least,
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
    wall: float | None = None,
) -> Watch:
    """Return the watch after a reading that was taken at the moment `sampled`.

    The same sample once more changes nothing. More than `longest_gap` seconds between two samples
    end all runs. `wall` is the moment by the calendar, for hosts that do not tell their time. Fills
    in `on_gpu_since` of the holders in `summary` where nobody else tells it and we saw them come.
    """
    if before is not None and summary.time is not None and summary.time == before.taken_at:
        for key, gpu in _places(summary):
            if (runs_of := before.runs.get(key)) is not None and runs_of.arrivals is not None:
                runs_of.arrivals.fill_in(gpu)
        return before
    unbroken = before is not None and sampled - before.sampled <= longest_gap
    known = before.runs if before is not None and unbroken else {}
    sample = _Sample(sampled, summary.time, wall, limits)
    if before is not None and summary.time is not None and before.taken_at is not None:
        set_by = (summary.time - before.taken_at) - (sampled - before.sampled)
        sample.clock_set_by = set_by if abs(set_by) > CLOCK_SECONDS else 0.0
    runs = {key: sample.extend(_known(known, key, gpu), gpu) for key, gpu in _places(summary)}
    return Watch(sampled=sampled, taken_at=summary.time, runs=runs)


def _known(runs: dict[str, Runs], key: str, gpu: GpuSummary | MigSummary) -> Runs | None:
    """Return the runs of a GPU so far.

    A row without UUID is a GPU that can't be read: it stands for the one that had its index.
    """
    found = runs.get(key)
    if found is None and runs and isinstance(gpu, GpuSummary):
        for candidate in runs.values():
            same = gpu.uuid is None or candidate.uuid in (None, gpu.uuid)
            if candidate.index == gpu.index and same:
                return candidate
    return found


def _unread(gpu: GpuSummary | MigSummary) -> bool:
    if isinstance(gpu, GpuSummary) and fault_of(gpu) is not None:
        return False
    return gpu.error is not None or is_held(gpu) is None


def _places(summary: HostSummary) -> Iterator[tuple[str, GpuSummary | MigSummary]]:
    """Yield each GPU and MIG instance with what it is known by."""
    for gpu in summary.gpus:
        yield gpu_key(gpu), gpu
        for instance in gpu.mig:
            yield mig_key(gpu, instance), instance


class _Sample:
    """One moment, by both clocks."""

    def __init__(
        self, sampled: float, taken_at: float | None, wall: float | None, limits: Limits
    ) -> None:
        self.sampled = sampled
        self.taken_at = taken_at
        self.calendar = wall if taken_at is None else taken_at
        self.limits = limits
        self.clock_set_by = 0.0
        """By how many seconds the host's clock was set since the sample before."""

    def extend(self, before: Runs | None, gpu: GpuSummary | MigSummary) -> Runs:
        """Return the runs of a GPU with this sample added."""
        old = Runs(observed=self.sampled, looked=self.sampled)
        if before is not None and before.unread:
            # What is seen now may have begun while nobody could look: this is a first look.
            old = msgspec.structs.replace(old, arrivals=before.arrivals, uuid=before.uuid)
        elif before is not None:
            old = before
        arrivals = self._arrivals(old, gpu)
        held, held_at_least = self._held(old, gpu, arrivals)
        fault, fault_at_least = self._fault(old, gpu)
        new = Runs(
            observed=old.observed,
            looked=old.looked,
            unused=self._start(is_unused(gpu, self.limits), old.unused, gpu.unused_since),
            held=held,
            free=self._start(is_free(gpu, self.limits), old.free, gpu.free_since),
            fault=fault,
            held_at_least=held_at_least,
            fault_at_least=fault_at_least,
            arrivals=arrivals,
            index=gpu.index if isinstance(gpu, GpuSummary) else None,
            uuid=gpu.uuid or old.uuid,
            unread=_unread(gpu),
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

    def _arrivals(self, old: Runs, gpu: GpuSummary | MigSummary) -> Arrivals | None:
        """Return who came when, as far as we saw; None where an agent tells."""
        if gpu.held_since is not None:
            return None
        known = old.arrivals or Arrivals()
        if self.clock_set_by:
            known = known.moved(self.clock_set_by)
        arrivals = known.next(gpu, sampled=self.sampled, taken_at=self.calendar)
        arrivals.fill_in(gpu)
        return arrivals

    def _held(
        self, old: Runs, gpu: GpuSummary | MigSummary, arrivals: Arrivals | None
    ) -> tuple[float | None, bool]:
        """Return since when those who hold the GPU are known to do so, and whether at least."""
        start = self._start(is_held(gpu), old.held, gpu.held_since)
        if start is None:
            return None, False
        if arrivals is None:
            watched, held = gpu.watched_since, gpu.held_since
            return start, watched is not None and held is not None and held <= watched
        theirs = arrivals.held_from(gpu, self._by_our_clock)
        if theirs is not None:
            start = max(start, theirs)
        return start, start <= old.looked

    def _fault(self, old: Runs, gpu: GpuSummary | MigSummary) -> tuple[float | None, bool]:
        """Return since when the GPU is broken, and whether at least."""
        if not isinstance(gpu, GpuSummary) or fault_of(gpu) is None:
            return None, False
        told = self._by_our_clock(gpu.fault_since)
        if told is not None and gpu.watched_since is not None:
            start = self._start(True, old.fault, gpu.fault_since)
            return start, gpu.fault_since == gpu.watched_since
        start, at_least = old.fault, old.fault_at_least
        if start is None:
            start, at_least = self.sampled, old.looked == self.sampled
        if told is not None and told < start + STEADY_SECONDS:
            # Health knows when its faults began. Of a slowdown it knows nothing.
            start = start if start - told < STEADY_SECONDS else told
            at_least = at_least and bool(gpu.slowdown)
        return start, at_least

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
        if told is None or self.taken_at is None or told > self.taken_at + STEADY_SECONDS:
            return None
        # Starts are told in tenths of a second, so one of this very sample may lie after it.
        return self.sampled - max(0.0, self.taken_at - told)
