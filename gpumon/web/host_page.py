"""What the page of one host says beyond its row on the front page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.model import SCHEMA, Gpu, HostSnapshot, Process, encode
from gpumon.units import UNKNOWN, duration, mib
from gpumon.web.gpus import percent
from gpumon.web.readings import Reading, Reason, readings, reasons
from gpumon.web.words import counted


class ProcessRow(NamedTuple):
    """One process on one GPU or MIG instance."""

    gpu: str
    process: Process


class HostPage(NamedTuple):
    """The page of one host."""

    facts: list[tuple[str, str]]
    """Label and text."""
    problems: list[str]
    processes: list[ProcessRow]
    hidden: list[tuple[str, str]]
    """GPUs whose processes could not be read, each with the reason."""
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
    """Return the host with its last reading, without command lines: they may hold secrets."""
    answer = HostAnswer(
        simulated=host.simulated,
        revision=status.revision,
        time=status.time,
        host=host,
        detail=None if detail is None else _without_commands(detail),
    )
    return encode(answer)


def host_page(host: HostStatus, detail: HostSnapshot | None) -> HostPage:
    """Return what the page of `host` says; `detail` is its last reading."""
    gpus = [] if detail is None else detail.gpus
    return HostPage(
        facts=_facts(host, detail),
        problems=_problems(host, detail),
        processes=list(_processes(gpus)),
        hidden=list(_hidden(gpus)),
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
            yield ProcessRow(str(gpu.index), process)
        for instance in gpu.mig:
            for process in instance.processes or []:
                yield ProcessRow(f"{gpu.index} MIG {instance.index}", process)


def _hidden(gpus: list[Gpu]) -> Iterator[tuple[str, str]]:
    for gpu in gpus:
        if gpu.processes is None and not gpu.mig:
            yield str(gpu.index), gpu.error or gpu.unknown.get("processes", "reason not known")
        for instance in gpu.mig:
            if instance.processes is None:
                yield f"{gpu.index} MIG {instance.index}", instance.error or "reason not known"


def _without_commands(detail: HostSnapshot) -> HostSnapshot:
    def bare(processes: list[Process] | None) -> list[Process] | None:
        if processes is None:
            return None
        return [msgspec.structs.replace(process, command=None) for process in processes]

    gpus = [
        msgspec.structs.replace(
            gpu,
            processes=bare(gpu.processes),
            mig=[
                msgspec.structs.replace(instance, processes=bare(instance.processes))
                for instance in gpu.mig
            ],
        )
        for gpu in detail.gpus
    ]
    return msgspec.structs.replace(detail, gpus=gpus)
