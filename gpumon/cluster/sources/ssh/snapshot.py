"""The parts of a host's output -> one HostSnapshot. What nvidia-smi does not tell is unknown."""

from __future__ import annotations

import re

from gpumon.cluster.sources.foreign import explain
from gpumon.cluster.sources.ssh import columns, processes
from gpumon.cluster.sources.ssh.processes import Listed
from gpumon.cluster.sources.ssh.script import Part
from gpumon.cluster.sources.ssh.table import Table, number, read_table
from gpumon.cluster.sources.trust import LATEST_EPOCH, MOST_GPUS
from gpumon.model import Gpu, HostInfo, HostSnapshot, MigInstance, Process
from gpumon.text import clean

NOT_ASKED = "not asked over SSH"
FOREIGN_PIDS = (
    "The login ends in a pid namespace of its own (a container), so it can't tell whose the "
    "processes are. Log in to the host itself, or run gpumon's agent there"
)

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
_REFUSED = re.compile(r'Field "([^"\n]{1,80})" is not a valid field to query')
_LOST = ("gpu is lost", "gpu requires reset")
_UNIFIED_NAMES = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra|Jetson)\b", re.IGNORECASE)
_GPU_LINE = re.compile(r"GPU (\d{1,3}): .*\(UUID: (GPU-[0-9A-Za-z-]{1,64})\)")
_MIG_LINE = re.compile(r"MIG (\S+)\s+Device\s+(\d{1,3}): \(UUID: (MIG-[0-9A-Za-z/-]{1,96})\)")


def refused_columns(gpus: Part) -> list[str]:
    """Return the names that this nvidia-smi does not know; it tells one at a time."""
    return _REFUSED.findall(gpus.text)


def snapshot(parts: dict[str, Part]) -> HostSnapshot:
    """Return the reading. `parts` holds at least "host", "gpus" and "processes"."""
    facts = _facts(parts["host"].text)
    found = HostSnapshot(
        sample_age_seconds=0.0,
        hostname=clean(facts.get("hostname", ""), 253),
        time=_epoch(facts.get("time", "")),
        host=_host(facts),
    )
    part = parts["gpus"]
    table = read_table(part.text, columns.NAMES, "name", MOST_GPUS)
    found.driver_version = next(
        (clean(row["driver_version"], 40) for row in table.rows if row.get("driver_version")), None
    )
    if not table.rows:
        _without_gpus(found, part)
        return found
    found.gpus = [_gpu(position, row) for position, row in enumerate(table.rows)]
    _count(found, table, part)
    _add_instances(found, parts.get("instances"))
    listed = processes.listed(parts["processes"].text)
    _add_processes(found, listed)
    _add_owners(found, facts, parts.get("ps"))
    for gpu in found.gpus:
        explain(gpu, gpu.error or NOT_ASKED)
    return found


def _facts(text: str) -> dict[str, str]:
    """Return "key value" lines and those of /proc/meminfo ("MemTotal:  123 kB") by their keys."""
    facts: dict[str, str] = {}
    for line in text.split("\n"):
        key, _, value = line.strip().partition(" ")
        facts.setdefault(key.rstrip(":"), value.strip())
    return facts


def _epoch(text: str) -> float | None:
    value = number(text)
    return value if value is not None and 0 < value < LATEST_EPOCH else None


def _host(facts: dict[str, str]) -> HostInfo:
    load = [number(word) for word in facts.get("load", "").split()[:3]] + [None] * 3
    return HostInfo(
        load_1m=load[0],
        load_5m=load[1],
        load_15m=load[2],
        memory_total_mib=_kib(facts.get("MemTotal")),
        memory_available_mib=_kib(facts.get("MemAvailable")),
        uptime_seconds=number(facts.get("uptime", "").partition(" ")[0]),
    )


def _kib(text: str | None) -> int | None:
    value = None if text is None else number(text.removesuffix("kB"))
    return None if value is None or value < 0 else int(value) // 1024


def _without_gpus(found: HostSnapshot, part: Part) -> None:
    """Say why nvidia-smi listed no GPU."""
    words = clean(part.text, 200)
    lower = part.text.lower()
    if "no devices were found" in lower:
        found.gpu_count = 0
        return
    told = f" It says: {words}" if words else f" It ended with exit code {part.code}, without words"
    if part.code == 127:
        kind = "no library"
        what = "nvidia-smi was not found. Install NVIDIA's driver, or put it on the login's PATH."
    elif "version mismatch" in lower:
        kind, what = "version mismatch", "the driver was upgraded: reboot the host."
    elif part.code == 126 or "insufficient permissions" in lower:
        kind, what = "no permission", "the login may not use nvidia-smi or /dev/nvidia*."
    elif part.code == 9 or "couldn't communicate" in lower or "driver not loaded" in lower:
        kind, what = "no driver", "nvidia-smi can't reach the driver: is it loaded?"
    elif part.code in (124, 137):
        kind, what = "failed", "nvidia-smi did not end and was stopped."
    else:
        kind, what = "failed", "nvidia-smi failed."
    found.error_kind = kind
    found.errors.append(what + told)


def _gpu(position: int, row: dict[str, str]) -> Gpu:
    index = number(row.get("index", ""))
    gpu = Gpu(index=position if index is None or not 0 <= index < 1000 else int(index))
    if index is None:
        gpu.error = "nvidia-smi told no index: this is its place in the list"
    columns.fill(gpu, row)
    lost = next((text for text in row.values() if text.strip("[]").lower() in _LOST), None)
    if lost is not None:
        gpu.lost, gpu.error = True, clean(lost.strip("[]"), 80)
    if gpu.memory_total_mib is not None and gpu.memory_used_mib is not None:
        if gpu.memory_used_mib > gpu.memory_total_mib:
            gpu.unknown["memory_used_mib"] = f"out of range (found {gpu.memory_used_mib} MiB)"
            gpu.memory_used_mib = None
    elif gpu.memory_total_mib is None and gpu.memory_used_mib is None:
        gpu.unified_memory = _shares_memory(gpu)
    return gpu


def _shares_memory(gpu: Gpu) -> bool:
    """Return whether the host's memory is the GPU's: by its name and its answer together."""
    answers = {gpu.unknown.get("memory_total_mib"), gpu.unknown.get("memory_used_mib")}
    silent = answers <= {"not available", "not supported"}
    return silent and not gpu.lost and bool(_UNIFIED_NAMES.search(gpu.name or ""))


def _count(found: HostSnapshot, table: Table, part: Part) -> None:
    """Compare how many GPUs the driver counts with how many are listed; pass on its words."""
    counts = {number(row["count"]) for row in table.rows if "count" in row}
    count = counts.pop() if len(counts) == 1 else None
    found.gpu_count = len(found.gpus) if count is None or count < 0 else int(count)
    if found.gpu_count != len(found.gpus):
        found.errors.append(
            f"the driver counts {found.gpu_count} GPUs, nvidia-smi lists {len(found.gpus)}"
        )
    if part.code != 0 or table.lines:
        words = "; ".join(table.lines[:4])
        found.errors.append(
            f"nvidia-smi ended with exit code {part.code}" + (f": {words}" if words else "")
        )


def _add_instances(found: HostSnapshot, part: Part | None) -> None:
    """Give the GPUs in MIG mode their instances, as `nvidia-smi -L` lists them."""
    by_gpu: dict[str, list[MigInstance]] = {}
    current: list[MigInstance] = []
    if part is not None and part.code == 0:
        for line in part.text.split("\n"):
            whole, instance = _GPU_LINE.search(line), _MIG_LINE.search(line)
            if whole:
                current = by_gpu.setdefault(whole[2], [])
            elif instance:
                current.append(
                    MigInstance(
                        index=int(instance[2]),
                        uuid=instance[3],
                        name=clean(instance[1], 40),
                    )
                )
    for gpu in found.gpus:
        if not gpu.mig_mode:
            continue
        gpu.unknown.setdefault("utilization_percent", "not available under MIG")
        gpu.mig = by_gpu.get(gpu.uuid or "", [])
        if gpu.uuid not in by_gpu:
            gpu.unknown["mig"] = "its MIG instances are not listed yet"


def _homes(found: HostSnapshot) -> list[Gpu | MigInstance]:
    """Return what can have processes: GPUs and MIG instances."""
    homes: list[Gpu | MigInstance] = []
    for gpu in found.gpus:
        homes += [gpu, *gpu.mig]
    return homes


def _add_processes(found: HostSnapshot, listed: Listed) -> None:
    homes = {home.uuid for home in _homes(found)}
    if listed.error is not None:
        found.errors.append(f"processes: {listed.error}")
    for gpu in found.gpus:
        why = listed.error or listed.unreadable.get(gpu.uuid or "")
        if gpu.uuid is None:
            why = why or "a GPU without a UUID can't be found in the list of processes"
        if why is None:
            gpu.processes = listed.by_uuid.get(gpu.uuid or "", [])
        else:
            gpu.unknown["processes"] = why
        for instance in gpu.mig:
            # The list names the GPU and not the instance on some drivers, so [] would be a guess.
            instance.processes = listed.by_uuid.get(instance.uuid or "")
    strays = sorted(uuid for uuid in {*listed.by_uuid, *listed.unreadable} if uuid not in homes)
    if strays:
        found.errors.append(
            f"nvidia-smi lists processes on {clean(', '.join(strays[:3]), 160)}, which is none of "
            "the GPUs that it lists"
        )


def _add_owners(found: HostSnapshot, facts: dict[str, str], ps: Part | None) -> None:
    rows: list[Process] = [row for home in _homes(found) for row in home.processes or []]
    if not rows:
        return
    namespace = facts.get("namespace")
    if namespace != _INITIAL_PID_NAMESPACE:
        found.errors.append(FOREIGN_PIDS)
        for row in rows:
            row.note = processes.NOT_OURS
        return
    clock, _, rows_of_ps = ("" if ps is None else ps.text).partition("\n")
    known = processes.seen(rows_of_ps)
    if not known and (ps is None or ps.code not in (0, 1)):
        words = clean(rows_of_ps, 120) or "it printed nothing"
        found.errors.append(f"ps told no owners: {words}")
    seen_at = _epoch(clock.removeprefix("time "))
    if found.time is None or seen_at is None:
        found.errors.append("the host's clock could not be read, so no start of a process is known")
        return
    processes.enrich(rows, known, listed_at=found.time, seen_at=seen_at)
