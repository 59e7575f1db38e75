"""The processes of one device: NVML's three lists merged, one row per pid."""

from __future__ import annotations

import struct

from gpumon.collect import nvml
from gpumon.collect.memory import MIB
from gpumon.collect.moment import Round
from gpumon.collect.nvml import Unknown
from gpumon.collect.questions import Questions
from gpumon.model import Process

UNRELIABLE = Unknown("process list unreliable (driver and binding do not fit)")
"""The records make no sense: pid 0, pids that can't be, more memory than the card has."""

_KINDS = (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute"))
_VERSIONS = (("_v3", nvml.PROCESS_V2), ("_v2", nvml.PROCESS_V2), ("", nvml.PROCESS_V1))
_SYMBOLS: dict[str, list[tuple[str, struct.Struct]]] = {
    kind: [(f"nvmlDeviceGet{word}RunningProcesses{suffix}", layout) for suffix, layout in _VERSIONS]
    for kind, word in _KINDS
}
_MISSING = frozenset({nvml.FUNCTION_NOT_FOUND, nvml.ARGUMENT_VERSION_MISMATCH})

_SHORTEST_WINDOW = 2.0
"""Seconds; the driver takes its samples up to a second apart and hands them out late."""
_AHEAD_SECONDS = 60.0
"""How long a round may take; a sample from further ahead is from before the clock was set back."""


def read(
    questions: Questions,
    handle: object,
    *,
    most_bytes: int,
    pid_max: int,
    outside_instances: bool = False,
) -> tuple[list[Process] | None, str | None]:
    """Return the rows and why they are missing or incomplete, in words.

    Rows are None where the compute list can't be read, and where no list that could be read named
    a process while another one failed: that is not "no process". A list that the GPU does not
    support is no failure. A record outside `pid_max` or `most_bytes` makes all of them unreliable.
    `outside_instances` leaves out what runs in MIG instances.
    """
    rows: dict[int, Process] = {}
    failed: str | None = None
    for kind, _ in _KINDS:
        records = _records(questions, kind, handle)
        if isinstance(records, Unknown):
            if kind == "compute":
                return None, records.reason
            if records.code not in (nvml.NOT_SUPPORTED, *_MISSING):
                failed = f"the {kind} list could not be read: {records.reason}"
            continue
        for pid, used, *instance in records:
            if not 0 < pid <= pid_max or (used > most_bytes and used != nvml.NO_MEMORY_VALUE):
                return None, UNRELIABLE.reason
            if outside_instances and instance and instance[0] != nvml.NO_INSTANCE:
                continue
            _merge(rows.setdefault(pid, Process(pid=pid)), kind, used)
    if failed is not None and not rows:
        return None, failed
    return list(rows.values()), failed


def add_sm_share(questions: Questions, handle: object, rows: list[Process], this: Round) -> None:
    """Set the share of the SMs that each process used lately, in percent.

    The driver names only processes that were busy since the time it is given, so one that it does
    not name is at 0. A sample from another time or above 100 % is no answer for its process.
    """
    if not rows:
        return
    since = this.now.wall - max(this.elapsed or 0.0, _SHORTEST_WINDOW)
    samples = questions.ask(
        "process utilization", nvml.utilization_samples, handle, max(0, int(since * 1e6))
    )
    if isinstance(samples, Unknown):
        if samples.code != nvml.NOT_FOUND:
            return
        samples = []
    newest: dict[int, tuple[int, float | None]] = {}
    for pid, stamp, share, *_ in samples:
        if share > 100 or not since <= stamp / 1e6 <= this.now.wall + _AHEAD_SECONDS:
            newest.setdefault(pid, (0, None))
        elif stamp >= newest.get(pid, (0, None))[0]:
            newest[pid] = (stamp, float(share))
    for row in rows:
        row.sm_utilization_percent = newest.get(row.pid, (0, 0.0))[1]


def _records(questions: Questions, kind: str, handle: object) -> list[tuple[int, ...]] | Unknown:
    records: list[tuple[int, ...]] | Unknown = UNRELIABLE
    for symbol, layout in _SYMBOLS[kind]:
        records = questions.ask(symbol, nvml.process_records, symbol, handle, layout)
        if not (isinstance(records, Unknown) and records.code in _MISSING):
            break
    return records


def _merge(row: Process, kind: str, used: int) -> None:
    """Count a process that several lists name once; they all give its whole memory."""
    if kind not in row.kinds:
        row.kinds.append(kind)
    if used != nvml.NO_MEMORY_VALUE:
        row.gpu_memory_used_mib = max(row.gpu_memory_used_mib or 0, used // MIB)
