"""The short form of a snapshot: what the front page, totals and states need, about 1 kB a host.

The agent puts it before the packed detail in `poll()`, so that a server with thousands of hosts
decodes little; the server makes it itself for sources that give whole snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpumon.model import (
    SCHEMA,
    Gpu,
    HealthLevel,
    HostSnapshot,
    MigInstance,
    Process,
    decoded,
)

SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
"""Clock event reasons that mean a fault of the hardware rather than a limit at work."""


# gc=False: a server keeps tens of thousands of these, and they can't be part of a cycle. Without it
# the garbage collector walks over them at every turn, a fifth of a sweep over 1,000 hosts.


class Holder(msgspec.Struct, kw_only=True, gc=False):
    """One owner on one GPU or MIG instance."""

    user: str | None = None
    """None: the processes' owner is not known."""
    pids: list[int] = []
    gpu_memory_used_mib: int | None = None
    """Sum over this owner's processes whose memory is known; None when none is."""
    started_at: float | None = None
    """Start of the oldest process; None when no start is known."""
    on_gpu_since: float | None = None
    """Since when it is on the GPU, where somebody watched it come: the later of `started_at` and of
    the last sample without it. None: nobody did, and `started_at` is the earliest possible."""
    graphics_only: bool = False
    program: str | None = None
    """Of the process that holds the most memory."""
    user_by: str | None = None
    """How `user` was found out, where for some of the processes it took more than their uid."""


class MigSummary(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """A MIG instance, as far as its state goes. Same names as in the model."""

    index: int
    uuid: str | None = None
    name: str | None = None
    error: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_reserved_mib: int | None = None
    processes_known: bool = False
    holders: list[Holder] = []
    unused_since: float | None = None
    free_since: float | None = None
    held_since: float | None = None
    watched_since: float | None = None


class GpuSummary(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """A GPU, as far as its state and its cell go. Same names as in the model."""

    index: int
    uuid: str | None = None
    name: str | None = None
    error: str | None = None
    lost: bool = False
    utilization_percent: int | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_reserved_mib: int | None = None
    unattributed_mib: int | None = None
    unified_memory: bool = False
    temperature_celsius: int | None = None
    power_draw_watts: float | None = None
    enforced_power_limit_watts: float | None = None
    slowdown: list[str] = []
    """Those clock event reasons that are in SLOWDOWNS."""
    ecc_volatile_uncorrected: int | None = None
    missing_since: float | None = None
    fault: str | None = None
    """The faults in the GPU's health that go on, the newest first, in one line."""
    warnings: list[str] = []
    """The warnings in its health that go on: it works, and wants attention."""
    processes_known: bool = False
    holders: list[Holder] = []
    mig_mode: bool | None = None
    mig: list[MigSummary] = []
    mig_known: bool = True
    """False: the list of instances could not be read."""
    unused_since: float | None = None
    free_since: float | None = None
    held_since: float | None = None
    fault_since: float | None = None
    """Of the sampler: since when the faults in its health go on, where that is known of all."""
    watched_since: float | None = None


class HostSummary(msgspec.Struct, kw_only=True):
    """A host, as far as the front page goes. Same names as in the model."""

    schema: int = SCHEMA
    sample_age_seconds: float | None = None
    sampler_error: str | None = None
    hostname: str = ""
    time: float | None = None
    sample_interval_seconds: float | None = None
    simulated: bool = False
    agent_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    gpu_count: int | None = None
    errors: list[str] = []
    error_kind: str | None = None
    cpu_percent: float | None = None
    memory_total_mib: int | None = None
    memory_available_mib: int | None = None
    gpus: list[GpuSummary] = []


def holders(processes: list[Process]) -> list[Holder]:
    """Return one Holder per owner, most GPU memory first, unknown owners together at the end."""
    by_user: dict[str | None, list[Process]] = {}
    for process in processes:
        by_user.setdefault(process.user, []).append(process)
    found = [_holder(user, owned) for user, owned in by_user.items()]
    found.sort(key=lambda h: (h.user is None, -(h.gpu_memory_used_mib or 0), h.user or ""))
    return found


def _holder(user: str | None, owned: list[Process]) -> Holder:
    memory = [p.gpu_memory_used_mib for p in owned if p.gpu_memory_used_mib is not None]
    starts = [p.started_at for p in owned if p.started_at is not None]
    largest = max(owned, key=lambda p: p.gpu_memory_used_mib or 0)
    return Holder(
        user=user,
        pids=sorted(p.pid for p in owned),
        gpu_memory_used_mib=sum(memory) if memory else None,
        started_at=min(starts) if starts else None,
        graphics_only=all(p.kinds == ["graphics"] for p in owned),
        program=largest.program,
        user_by=next((p.user_by for p in owned if p.user_by is not None), None),
    )


def _mig_summary(instance: MigInstance) -> MigSummary:
    return MigSummary(
        index=instance.index,
        uuid=instance.uuid,
        name=instance.name,
        error=instance.error,
        memory_total_mib=instance.memory_total_mib,
        memory_used_mib=instance.memory_used_mib,
        memory_reserved_mib=instance.memory_reserved_mib,
        processes_known=instance.processes is not None,
        holders=holders(instance.processes or []),
        unused_since=instance.unused_since,
        free_since=instance.free_since,
        held_since=instance.held_since,
        watched_since=instance.watched_since,
    )


def _going_on(gpu: Gpu, level: HealthLevel) -> Iterator[str]:
    return (event.text for event in gpu.health if event.level == level and event.ended_at is None)


MOST_FAULTS = 4
"""That stand in one line; the host's page shows all."""


def _faults(gpu: Gpu) -> str | None:
    found = list(dict.fromkeys(_going_on(gpu, "fault")))
    more = len(found) - MOST_FAULTS
    told = found[:MOST_FAULTS] + ([f"{more} more"] if more > 0 else [])
    return "; ".join(told) or None


def _fault_since(gpu: Gpu) -> float | None:
    """Return since when one of the faults in the GPU's health goes on; None: not known of all."""
    begun = [
        event.since for event in gpu.health if event.level == "fault" and event.ended_at is None
    ]
    known = [since for since in begun if since is not None]
    return min(known) if known and len(known) == len(begun) else None


def _gpu_summary(gpu: Gpu) -> GpuSummary:
    return GpuSummary(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        error=gpu.error,
        lost=gpu.lost,
        utilization_percent=gpu.utilization_percent,
        memory_total_mib=gpu.memory_total_mib,
        memory_used_mib=gpu.memory_used_mib,
        memory_reserved_mib=gpu.memory_reserved_mib,
        unattributed_mib=gpu.unattributed_mib,
        unified_memory=gpu.unified_memory,
        temperature_celsius=gpu.temperature_celsius,
        power_draw_watts=gpu.power_draw_watts,
        enforced_power_limit_watts=gpu.enforced_power_limit_watts,
        slowdown=[reason for reason in gpu.clock_event_reasons or [] if reason in SLOWDOWNS],
        ecc_volatile_uncorrected=gpu.ecc_volatile_uncorrected,
        missing_since=gpu.missing_since,
        fault=_faults(gpu),
        warnings=list(_going_on(gpu, "warning")),
        processes_known=gpu.processes is not None,
        holders=holders(gpu.processes or []),
        mig_mode=gpu.mig_mode,
        mig=[_mig_summary(instance) for instance in gpu.mig],
        mig_known="mig" not in gpu.unknown,
        unused_since=gpu.unused_since,
        free_since=gpu.free_since,
        held_since=gpu.held_since,
        fault_since=gpu.fault_since if gpu.fault_since is not None else _fault_since(gpu),
        watched_since=gpu.watched_since,
    )


def summarize(snapshot: HostSnapshot) -> HostSummary:
    """Return the short form of `snapshot`."""
    return HostSummary(
        schema=snapshot.schema,
        sample_age_seconds=snapshot.sample_age_seconds,
        sampler_error=snapshot.sampler_error,
        hostname=snapshot.hostname,
        time=snapshot.time,
        sample_interval_seconds=snapshot.sample_interval_seconds,
        simulated=snapshot.simulated,
        agent_version=snapshot.agent_version,
        driver_version=snapshot.driver_version,
        cuda_version=snapshot.cuda_version,
        gpu_count=snapshot.gpu_count,
        errors=snapshot.errors,
        error_kind=snapshot.error_kind,
        cpu_percent=snapshot.host.cpu_percent,
        memory_total_mib=snapshot.host.memory_total_mib,
        memory_available_mib=snapshot.host.memory_available_mib,
        gpus=[_gpu_summary(gpu) for gpu in snapshot.gpus],
    )


_summary_decoder = msgspec.json.Decoder(HostSummary)


def decode_summary(data: bytes | str) -> HostSummary:
    """Return the summary in `data`. Raises msgspec.MsgspecError, which names the path."""
    return decoded(_summary_decoder, data)
