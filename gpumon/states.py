"""The rules that name a state: of a GPU, of a MIG instance, of a host. Pure: now is an argument.

Every face (page, text, JSON, later messages, picking and reports) shows what these functions say.
A state is one word, with a reason in words where it needs one and with the time it began.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gpumon.config import Limits
from gpumon.summary import GpuSummary, Holder, MigSummary

GpuState = Literal["free", "busy", "idle", "fault", "unknown", "drained"]
HostState = Literal["fresh", "stale", "down", "never"]

GPU_STATES: tuple[GpuState, ...] = ("free", "busy", "idle", "fault", "unknown", "drained")
HOST_STATES: tuple[HostState, ...] = ("fresh", "stale", "down", "never")

DOWN_AFTER_SECONDS = 300.0
"""A host without an answer for this long is down rather than stale."""

FLOOR_MIB = 512
FLOOR_SHARE = 0.01
FLOOR_WITH_RESERVE_MIB = 1024
FLOOR_WITH_RESERVE_SHARE = 0.015
"""What a GPU that nobody holds may still have in use: contexts of display servers and daemons,
relative to the card (512 MiB on 24 GB, 1.4 GiB on 141 GB). Drivers before R510 count their own
reserve (0.3 to 1 GB and more) as used, hence the second pair where it is not told apart."""


class Window(msgspec.Struct, kw_only=True, frozen=True):
    """How long the current run has lasted, in seconds; None: not in such a run, or not known."""

    unused_for: float | None = None
    free_for: float | None = None
    observed_for: float = 0.0
    """How long the GPU has been watched without a gap; a run as long as this began earlier."""


class Named(msgspec.Struct, kw_only=True, frozen=True):
    """A state with what a person asks next."""

    state: GpuState
    reason: str | None = None
    since: float | None = None
    """Epoch seconds, by the server's clock for runs, by the host's for process starts."""
    since_at_least: bool = False
    """The state began at `since` or earlier: nobody watched before."""


def memory_floor_mib(total_mib: int | None, reserve_known: bool) -> int:
    """Return how much memory may be in use on a GPU that nobody holds."""
    floor, share = (
        (FLOOR_MIB, FLOOR_SHARE)
        if reserve_known
        else (FLOOR_WITH_RESERVE_MIB, FLOOR_WITH_RESERVE_SHARE)
    )
    return max(floor, int((total_mib or 0) * share))


def is_held(gpu: GpuSummary | MigSummary) -> bool | None:
    """Return whether a process or memory is on the GPU; None when that is not known.

    Display servers (graphics only) do not hold a GPU as long as its memory stays below the floor.
    Where GPU and host share their memory, the process list alone decides.
    """
    if any(not holder.graphics_only for holder in gpu.holders):
        return True
    if not (isinstance(gpu, GpuSummary) and gpu.unified_memory):
        if gpu.memory_used_mib is None:
            return None
        floor = memory_floor_mib(gpu.memory_total_mib, gpu.memory_reserved_mib is not None)
        if gpu.memory_used_mib > floor:
            return True
    return False if gpu.processes_known else None


def fault_of(gpu: GpuSummary) -> str | None:
    """Return what is broken about the GPU, in words; None when nothing is known to be."""
    if gpu.lost:
        return gpu.error or "the driver lost this GPU"
    if gpu.ecc_volatile_uncorrected:
        count = gpu.ecc_volatile_uncorrected
        return f"{count} uncorrected memory error{'s' if count > 1 else ''} since the last reset"
    if gpu.slowdown:
        return "slowed down by its hardware: " + ", ".join(
            reason.replace("_", " ") for reason in gpu.slowdown
        )
    return None


def host_state(
    since_answer: float | None,
    sample_age: float | None,
    *,
    poll_interval: float,
    rpc_timeout: float,
    sample_interval: float | None,
) -> HostState:
    """Name the state of a host.

    `since_answer` is the number of seconds since its last good answer by the server's monotonic
    clock (None: never one), `sample_age` how old the reading was in that answer. Fresh means that
    of two polls one was answered, with a reading that its agent took on time.
    """
    if since_answer is None:
        return "never"
    if since_answer > DOWN_AFTER_SECONDS:
        return "down"
    late_answer = 2 * poll_interval + rpc_timeout
    late_sample = late_answer + 2 * (sample_interval or 0.0)
    if since_answer > late_answer or sample_age is None or since_answer + sample_age > late_sample:
        return "stale"
    return "fresh"


def gpu_state(
    gpu: GpuSummary,
    window: Window,
    *,
    host: HostState,
    host_reason: str | None,
    drained: bool,
    limits: Limits,
    now: float,
) -> Named:
    """Name the state of a GPU; the first rule that fits wins. `now` is epoch seconds.

    A GPU in MIG mode is free only when all its instances are and busy as soon as one is held; its
    instances have states of their own (`mig_state`).
    """
    if host != "fresh":
        return Named(state="unknown", reason=host_reason or f"the host is {host}")
    fault = fault_of(gpu)
    if fault is not None:
        return Named(state="fault", reason=fault)
    if gpu.error is not None:
        return Named(state="unknown", reason=gpu.error)
    if drained:
        return Named(state="drained", reason="taken out of use in the configuration")
    if gpu.mig_mode:
        return _mig_parent(gpu)
    return _held_or_free(gpu, gpu.utilization_percent is not None, window, limits, now)


def mig_state(
    instance: MigSummary, window: Window, parent: Named, *, limits: Limits, now: float
) -> Named:
    """Name the state of a MIG instance; a parent that is unknown, broken or drained passes it on.

    The driver gives no utilization under MIG, so a held instance is busy, never idle.
    """
    if parent.state in ("unknown", "fault", "drained") and not instance.error:
        return parent
    if instance.error is not None:
        return Named(state="unknown", reason=instance.error)
    return _held_or_free(instance, False, window, limits, now)


def _mig_parent(gpu: GpuSummary) -> Named:
    if not gpu.mig:
        return Named(state="drained", reason="MIG is enabled, but no instance is configured")
    held = [is_held(instance) for instance in gpu.mig if instance.error is None]
    if any(held):
        holders = [holder for instance in gpu.mig for holder in instance.holders]
        return Named(state="busy", since=_oldest(holders))
    if len(held) < len(gpu.mig) or None in held:
        return Named(state="unknown", reason="not every MIG instance could be read")
    return Named(state="free")


def _held_or_free(
    gpu: GpuSummary | MigSummary, use_known: bool, window: Window, limits: Limits, now: float
) -> Named:
    held = is_held(gpu)
    if held is None:
        what = "its processes" if not gpu.processes_known else "its memory"
        return Named(state="unknown", reason=f"{what} could not be read")
    if not held:
        # No process and no memory: free even where the driver gives no utilization.
        return Named(
            state="free",
            since=None if window.free_for is None else now - window.free_for,
            since_at_least=window.free_for is not None and window.free_for >= window.observed_for,
        )
    idle_seconds = limits.idle_minutes * 60
    if use_known and window.unused_for is not None and window.unused_for >= idle_seconds:
        minutes = int(window.unused_for // 60)
        return Named(
            state="idle",
            reason=f"held, not used for {minutes} min",
            since=now - window.unused_for,
            since_at_least=window.unused_for >= window.observed_for,
        )
    reason = None
    if not gpu.holders:
        reason = f"{gpu.memory_used_mib} MiB in use, no process visible"
    return Named(state="busy", reason=reason, since=_oldest(gpu.holders))


def _oldest(holders: list[Holder]) -> float | None:
    """Return when the oldest of the holders' processes began, None when no start is known."""
    starts = [holder.started_at for holder in holders if holder.started_at is not None]
    return min(starts) if starts else None
