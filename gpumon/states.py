"""The rules that name a state: of a GPU, of a MIG instance, of a host. Pure: now is an argument.

Every face (page, text, JSON, later messages, picking and reports) shows what these functions say.
A state is one word, with a reason in words where it needs one and with the time it began.
"""

from __future__ import annotations

from collections.abc import Iterable
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


class Window(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """How long the runs that still go on have lasted, in seconds.

    Runs end at the last sample: what happened since then is not known. None: not in such a run, or
    not known.
    """

    unused_for: float | None = None
    held_for: float | None = None
    free_for: float | None = None
    fault_for: float | None = None
    observed_for: float = 0.0
    """How long the GPU has been watched without a gap; a run as long as this began earlier."""
    held_at_least: bool = False
    fault_at_least: bool = False
    """Whether that run may have begun earlier; who tells of it may not be who told of the rest."""
    sample_age: float = 0.0
    """How long ago the last sample was taken."""


class Named(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """A state with what a person asks next."""

    state: GpuState
    reason: str | None = None
    since: float | None = None
    """Epoch seconds, by the server's clock for runs, by the host's for process starts."""
    since_at_least: bool = False
    """The state began at `since` or earlier: nobody watched before."""
    since_at_most: bool = False
    """The state began at `since` or later: then the process began, and nobody saw it come."""


def memory_floor_mib(total_mib: int | None, reserve_known: bool) -> int:
    """Return how much memory may be in use on a GPU that nobody holds."""
    floor, share = (
        (FLOOR_MIB, FLOOR_SHARE)
        if reserve_known
        else (FLOOR_WITH_RESERVE_MIB, FLOOR_WITH_RESERVE_SHARE)
    )
    return floor if total_mib is None else max(floor, int(total_mib * share))


def is_held(gpu: GpuSummary | MigSummary) -> bool | None:
    """Return whether a process or memory is on the GPU; None when that is not known.

    Display servers (graphics only) do not hold a GPU as long as its memory stays below the floor.
    Where GPU and host share their memory, the process list alone decides. A GPU in MIG mode is held
    as soon as one of its instances is.
    """
    for holder in gpu.holders:
        if not holder.graphics_only:
            return True
    if isinstance(gpu, GpuSummary) and gpu.mig_mode:
        held = [is_held(instance) for instance in gpu.mig]
        if any(held):
            return True
        return False if gpu.mig_known and gpu.error is None and None not in held else None
    if not (isinstance(gpu, GpuSummary) and gpu.unified_memory):
        if gpu.memory_used_mib is None:
            return None
        floor = memory_floor_mib(gpu.memory_total_mib, gpu.memory_reserved_mib is not None)
        if gpu.memory_used_mib > floor:
            return True
    if isinstance(gpu, GpuSummary) and not gpu.mig_known:
        return None  # there may be instances, held ones even
    return False if gpu.processes_known and gpu.error is None else None


def is_unused(gpu: GpuSummary | MigSummary, limits: Limits) -> bool | None:
    """Return whether no kernel to speak of ran; None when the driver does not say.

    It never says under MIG.
    """
    if isinstance(gpu, MigSummary) or gpu.mig_mode or gpu.utilization_percent is None:
        return None
    return gpu.utilization_percent <= limits.used_percent


def is_free(gpu: GpuSummary | MigSummary, limits: Limits) -> bool | None:
    """Return whether nobody has the GPU; None when that is not known.

    Not held is enough where the driver gives no utilization. A GPU that is used though no process
    is visible on it (the process lists of a container's host can be empty) is nobody's to take.
    """
    held = is_held(gpu)
    if held is None:
        return None
    used_by_somebody_unseen = not gpu.holders and is_unused(gpu, limits) is False
    return not held and not used_by_somebody_unseen


def occupants(gpu: GpuSummary | MigSummary) -> list[Holder]:
    """Return those who hold the GPU: display servers only where nobody else is on it.

    For a GPU in MIG mode: those of all its instances too, one Holder per instance and owner.
    """
    on_gpu = gpu.holders
    if isinstance(gpu, GpuSummary) and gpu.mig:
        on_gpu = [*on_gpu, *(holder for instance in gpu.mig for holder in instance.holders)]
    return [holder for holder in on_gpu if not holder.graphics_only] or on_gpu


def on_gpu_since(holder: Holder) -> tuple[float, bool] | None:
    """Return since when a holder is on the GPU, and whether that is only the earliest possible.

    By the host's clock. None: nobody knows.
    """
    if holder.on_gpu_since is not None:
        return holder.on_gpu_since, False
    return None if holder.started_at is None else (holder.started_at, True)


def earliest(found: Iterable[tuple[float, bool] | None]) -> tuple[float | None, bool]:
    """Return the earliest of moments as `on_gpu_since` gives them; those not known are left out."""
    known = [moment for moment in found if moment is not None]
    return min(known) if known else (None, False)


def fault_of(gpu: GpuSummary) -> str | None:
    """Return all that is broken about the GPU, in words; None when nothing is known to be."""
    if gpu.lost:
        return gpu.error or "the driver lost this GPU"
    found = [] if gpu.fault is None else [gpu.fault]
    if gpu.ecc_volatile_uncorrected is not None and gpu.ecc_volatile_uncorrected > 0:
        errors = uncorrected_errors(gpu.ecc_volatile_uncorrected)
        if errors not in (gpu.fault or ""):  # the sampler's list of faults may have it already
            found.append(errors)
    if gpu.slowdown:
        slowed = ", ".join(reason.replace("_", " ") for reason in gpu.slowdown)
        found.append(f"slowed down by its hardware: {slowed}")
    return "; ".join(found) or None


RESET_WANTED = "reset it (nvidia-smi --gpu-reset) or reboot the host"
"""What to do about a GPU of which the driver says so itself."""


def uncorrected_errors(count: int) -> str:
    """Return the words for `count` uncorrected memory errors."""
    return f"{count} uncorrected memory error{'s' if count > 1 else ''} since the last reset"


def believed_interval(sample_interval: float | None) -> float:
    """Return the seconds between an agent's samples, within reason.

    Its word on its own interval must not make a reading of yesterday fresh.
    """
    return 0.0 if sample_interval is None else min(max(sample_interval, 0.0), DOWN_AFTER_SECONDS)


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
    late_answer = 2 * poll_interval + rpc_timeout
    if since_answer > max(DOWN_AFTER_SECONDS, late_answer):
        return "down"
    if since_answer > late_answer or sample_age is None:
        return "stale"
    late_sample = late_answer + 2 * believed_interval(sample_interval)
    if since_answer + max(sample_age, 0.0) > late_sample:
        return "stale"
    return "fresh"


def not_fresh(host: HostState) -> str:
    """Return why nothing is known of the GPUs of a host in this state, which is not "fresh"."""
    return "the host has never answered" if host == "never" else f"the host is {host}"


def whole_gpu(
    gpu: GpuSummary,
    window: Window,
    *,
    host: HostState,
    host_reason: str | None,
    drained: bool,
    now: float,
) -> Named | None:
    """Name the state that a GPU has whatever is on it, and that its MIG instances share.

    None: it works, so it depends on who is on it.
    """
    if host != "fresh":
        return Named(state="unknown", reason=host_reason or not_fresh(host))
    fault = fault_of(gpu)
    if fault is not None:
        return Named(
            state="fault",
            reason=fault,
            since=_began(window.fault_for, window, now),
            since_at_least=window.fault_at_least,
        )
    if gpu.error is not None:
        return Named(state="unknown", reason=gpu.error)
    if drained:
        return Named(state="drained", reason="taken out of use in the configuration")
    return None


def gpu_state(
    gpu: GpuSummary, window: Window, whole: Named | None, *, limits: Limits, now: float
) -> Named:
    """Name the state of a GPU; the first rule that fits wins. `now` is epoch seconds.

    `whole` is what `whole_gpu` says of it. A GPU in MIG mode is free only when all its instances
    are and busy as soon as one is held; its instances have states of their own (`mig_state`).
    """
    if whole is not None:
        return whole
    if gpu.mig_mode and gpu.mig_known and not gpu.mig:
        return Named(state="drained", reason="MIG is enabled, but no instance is configured")
    return _held_or_free(gpu, window, limits, now)


def mig_state(
    instance: MigSummary, window: Window, whole: Named | None, *, limits: Limits, now: float
) -> Named:
    """Name the state of a MIG instance. `whole` is what `whole_gpu` says of its GPU.

    The driver gives no utilization under MIG, so a held instance is busy, never idle.
    """
    if whole is not None:
        return whole
    if instance.error is not None:
        return Named(state="unknown", reason=instance.error)
    return _held_or_free(instance, window, limits, now)


def _held_or_free(
    gpu: GpuSummary | MigSummary, window: Window, limits: Limits, now: float
) -> Named:
    free = is_free(gpu, limits)
    if free is None:
        return Named(state="unknown", reason=_what_is_missing(gpu))
    if free:
        return Named(
            state="free",
            since=_began(window.free_for, window, now),
            since_at_least=_is_open(window.free_for, window),
        )
    # Idle counts from when it was both held and unused: a GPU that was free for a day and got its
    # job a minute ago is not idle yet.
    unused, held = window.unused_for, window.held_for
    if unused is not None and held is not None and is_unused(gpu, limits):
        idle_for = min(unused, held)
        if idle_for >= limits.idle_minutes * 60:
            return Named(
                state="idle",
                reason=f"held, not used for {int(idle_for // 60)} min",
                since=_began(idle_for, window, now),
                since_at_least=window.held_at_least if held <= unused else _is_open(unused, window),
            )
    who = [on_gpu_since(holder) for holder in occupants(gpu)]
    if who and None not in who:
        since, at_most = earliest(who)
        return Named(state="busy", since=since, since_at_most=at_most)
    return Named(
        state="busy",
        reason=_nobody_visible(gpu),
        since=_began(window.held_for, window, now),
        since_at_least=window.held_at_least,
    )


def _began(seconds: float | None, window: Window, now: float) -> float | None:
    """Return when a run of `seconds` began, epoch seconds."""
    return None if seconds is None else now - window.sample_age - seconds


def _is_open(seconds: float | None, window: Window) -> bool:
    """Return whether a run of `seconds` may have begun before anybody watched."""
    return seconds is not None and seconds >= window.observed_for


def _what_is_missing(gpu: GpuSummary | MigSummary) -> str:
    if isinstance(gpu, GpuSummary) and gpu.mig_mode:
        return "not every MIG instance could be read"
    if isinstance(gpu, GpuSummary) and not gpu.mig_known:
        return "whether MIG is on could not be read"
    return f"its {'memory' if gpu.processes_known else 'processes'} could not be read"


def _nobody_visible(gpu: GpuSummary | MigSummary) -> str | None:
    """Say why a GPU counts as held though no process is on the list; None where one is."""
    if occupants(gpu):
        return None
    if is_held(gpu) and gpu.memory_used_mib is not None:
        return f"{gpu.memory_used_mib} MiB in use, no process visible"
    if isinstance(gpu, GpuSummary) and gpu.utilization_percent is not None:
        return f"{gpu.utilization_percent} % used, no process visible"
    return "in use, no process visible"
