"""What the page of one host says beyond its row on the front page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.model import SCHEMA, Gpu, HostSnapshot, Process, encode
from gpumon.units import UNKNOWN, duration, mib
from gpumon.web.gpus import clocks, percent
from gpumon.web.health import Hint, Trouble, hints, troubles
from gpumon.web.holding import owners_by_rule
from gpumon.web.hosts import has_readings
from gpumon.web.readings import Reading, Reason, readings, reasons
from gpumon.web.words import counted


class ProcessRow(NamedTuple):
    """One process on one GPU or MIG instance."""

    gpu: str
    process: Process
    remark: str


class HostPage(NamedTuple):
    """The page of one host."""

    facts: list[tuple[str, str]]
    """Label and text."""
    problems: list[str]
    harmless: bool
    """Whether `problems` are worth a note only."""
    read_at: float | None
    """When the reading was taken that is shown, by the server's clock; None: there is none."""
    processes: list[ProcessRow]
    hidden: list[tuple[str, str]]
    """GPUs whose processes could not be read, each with the reason."""
    troubles: list[Trouble]
    hints: list[Hint]
    clocks: dict[int, str]
    """By index of a GPU: why its clocks are lowered; none where there is no reading."""
    unattributed: dict[tuple[int, str | None], str]
    """By index and UUID of a GPU: its memory that no listed process explains, where there is."""
    starred: bool
    """Whether an owner is one by a rule, so that the mark needs its words."""
    gpu_indices: list[int]
    readings: list[Reading]
    reasons: list[Reason]


class HostAnswer(msgspec.Struct, kw_only=True):
    """`/host/NAME.json`."""

    schema: int = SCHEMA
    simulated: bool
    revision: str
    time: float
    host: HostStatus
    detail: HostSnapshot | None
    """The host's own reading; None where there is none."""


def host_json(status: ClusterStatus, host: HostStatus, detail: HostSnapshot | None) -> bytes:
    """Return the host with its last reading, both as the reader may see them."""
    answer = HostAnswer(
        simulated=host.simulated,
        revision=status.revision,
        time=status.time,
        host=host,
        detail=detail,
    )
    return encode(answer)


def host_page(host: HostStatus, detail: HostSnapshot | None, now: float) -> HostPage:
    """Return what the page of `host` says; `detail` is its last reading, `now` epoch seconds."""
    gpus = [] if detail is None else detail.gpus
    processes = list(_processes(gpus))
    return HostPage(
        facts=_facts(host, detail),
        problems=_problems(host, detail),
        harmless=has_readings(host),
        read_at=None if host.age_seconds is None else now - host.age_seconds,
        processes=processes,
        hidden=list(_hidden(gpus)),
        troubles=troubles(gpus, now),
        hints=hints(gpus),
        clocks={gpu.index: clocks(gpu.clock_event_reasons) for gpu in gpus},
        unattributed={
            (gpu.index, gpu.uuid): mib(gpu.unattributed_mib)
            for gpu in gpus
            if gpu.unattributed_mib is not None and gpu.unattributed_mib > 0
        },
        starred=bool(owners_by_rule(host.gpus)) or any(_by_rule(row.process) for row in processes),
        gpu_indices=[gpu.index for gpu in gpus],
        readings=readings(gpus),
        reasons=reasons(gpus),
    )


def _facts(host: HostStatus, detail: HostSnapshot | None) -> list[tuple[str, str]]:
    facts = [("Address", host.address)]
    facts += [(name, value) for name, value in host.labels.items()]
    facts.append(("Driver", host.driver_version or UNKNOWN))
    facts.append(("CUDA", host.cuda_version or UNKNOWN))
    facts.append(("Agent", host.agent_version or UNKNOWN))
    if detail is None:
        return facts
    info = detail.host
    cores = "" if info.cpu_count is None else f" of {counted(info.cpu_count, 'core')}"
    loads = (info.load_1m, info.load_5m, info.load_15m)
    facts += [
        ("CPU", f"{percent(info.cpu_percent)}{cores}"),
        ("Load 1, 5, 15 min", " ".join(UNKNOWN if v is None else f"{v:.1f}" for v in loads)),
        ("RAM in use", _used(info.memory_total_mib, info.memory_available_mib)),
        ("Disk in use (/)", _used(info.disk_total_mib, info.disk_free_mib)),
        ("Up for", duration(info.uptime_seconds)),
    ]
    return facts


def _used(total: int | None, left: int | None) -> str:
    used = None if total is None or left is None else total - left
    return f"{mib(used)} of {mib(total)}"


def _problems(host: HostStatus, detail: HostSnapshot | None) -> list[str]:
    """Return all sentences about what is wrong, each once."""
    said = [host.reason, *host.errors]
    if detail is not None:
        said += [detail.sampler_error, *detail.errors]
    return list(dict.fromkeys(text for text in said if text))


def _processes(gpus: list[Gpu]) -> Iterator[ProcessRow]:
    for gpu in gpus:
        for process in gpu.processes or []:
            yield ProcessRow(str(gpu.index), process, _remark(process))
        for instance in gpu.mig:
            for process in instance.processes or []:
                name = f"{gpu.index} MIG {instance.index}"
                yield ProcessRow(name, process, _remark(process))


def _by_rule(process: Process) -> bool:
    """Return whether the owner of a process was found out by more than its uid."""
    return process.user is not None and process.user_by is not None


def _remark(process: Process) -> str:
    """Return what else is known of a process, the batch job first."""
    parts = [
        process.job,
        process.container,
        process.started_from and f"started from {process.started_from}",
        f"owner by {process.user_by}" if _by_rule(process) else None,
        process.note,
    ]
    return ", ".join(part for part in parts if part)


def _hidden(gpus: list[Gpu]) -> Iterator[tuple[str, str]]:
    for gpu in gpus:
        if gpu.processes is None and not gpu.mig:
            yield str(gpu.index), gpu.error or gpu.unknown.get("processes", "reason not known")
        for instance in gpu.mig:
            if instance.processes is None:
                yield f"{gpu.index} MIG {instance.index}", instance.error or "reason not known"
