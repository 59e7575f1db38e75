"""How far another machine's JSON is believed: its text is cleaned, its lists and times bounded.

Agents clean what they send. But whoever took over one host must not reach the terminals of those
who look at the cluster, nor fill the server's memory.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from gpumon.cluster.status import ClusterStatus, GpuStatus, HostStatus, MigStatus
from gpumon.model import SCHEMA, HostSnapshot, decode_snapshot
from gpumon.summary import GpuSummary, HostSummary, MigSummary, decode_summary
from gpumon.text import clean

MOST_GPUS = 64
MOST_INSTANCES = 16
MOST_HOLDERS = 1000
"""Per GPU. A host has sixteen GPUs, a GPU seven instances; beyond these somebody is joking."""
MOST_ERRORS = 100
MOST_HOSTS = 20_000
"""Of another server."""
LONGEST_TEXT = 1024
LATEST_EPOCH = 1e11
"""The year 5138: calendars break not far behind it."""

_LARGEST_INT = 2**63 - 1
"""What JSON encoders and databases can hold."""

_PIECE = LONGEST_TEXT // 2
_MANY_DIGITS = b"0" * 19
_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_PRINTABLE = bytes(range(0x20, 0x7F))
_HARMLESS_ESCAPE = re.compile(rb'\\(?:["\\/]|u0026|u003[ceCE])')

_Decoded = TypeVar("_Decoded", HostSummary, HostSnapshot, ClusterStatus)
_status_decoder = msgspec.json.Decoder(ClusterStatus)


class TooNew(ValueError):
    """The other side speaks another schema. `schema` is its number."""

    def __init__(self, schema: int) -> None:
        super().__init__(f"schema {schema}")
        self.schema = schema


def foreign_summary(data: bytes) -> HostSummary:
    """Return the summary in `data`.

    Raises TooNew where it can't be read because its schema is another one, else ValueError, which
    says what was expected and found.
    """
    try:
        summary = decode_summary(data) if _is_clean(data) else _cleaned(data, HostSummary)
    except (ValueError, RecursionError) as error:
        schema = _schema_of(data)
        if schema not in (None, SCHEMA):
            raise TooNew(schema) from error
        raise ValueError(_first_line(error)) from error
    _bound(summary)
    return summary


def foreign_snapshot(data: bytes) -> HostSnapshot:
    """Return the snapshot in `data`. Raises ValueError, which says what was expected and found."""
    try:
        return decode_snapshot(data) if _is_clean(data) else _cleaned(data, HostSnapshot)
    except (ValueError, RecursionError) as error:
        raise ValueError(_first_line(error)) from error


def foreign_status(data: bytes) -> ClusterStatus:
    """Return another server's `/status.json`. Raises as `foreign_summary` does."""
    try:
        status = _status_decoder.decode(data) if _is_clean(data) else _cleaned(data, ClusterStatus)
    except (ValueError, RecursionError) as error:
        schema = _schema_of(data)
        if schema not in (None, SCHEMA):
            raise TooNew(schema) from error
        raise ValueError(_first_line(error)) from error
    _at_most(MOST_HOSTS, status.hosts, "hosts")
    names = {host.name for host in status.hosts}
    if len(names) < len(status.hosts) or "" in names:
        raise ValueError("expected hosts with names of their own, found one twice or without")
    for host in status.hosts:
        _bound_host(host)
    return status


def foreign_host_detail(data: bytes) -> HostSnapshot | None:
    """Return the detail in another server's `/host/NAME.json`. Raises ValueError."""
    try:
        return msgspec.convert(_clean(msgspec.json.decode(data)), _HostAnswer).detail
    except (ValueError, RecursionError) as error:
        raise ValueError(_first_line(error)) from error


class _HostAnswer(msgspec.Struct):
    detail: HostSnapshot | None = None


def _bound_host(host: HostStatus) -> None:
    """Raise ValueError for lists and times beyond reason."""
    _at_most(2 * MOST_GPUS, host.gpus, "GPUs")  # those of now, and those that are missing
    _at_most(MOST_ERRORS, host.errors + host.notes, "errors and notes")
    _at_most(MOST_ERRORS, host.via, "servers on the way")
    if len(host.labels) > MOST_ERRORS:
        raise ValueError(f"expected at most {MOST_ERRORS} labels, found {len(host.labels)}")
    moments = [host.age_seconds, host.answered_at]
    for gpu in host.gpus:
        _at_most(MOST_INSTANCES, gpu.mig, f"MIG instances on GPU {gpu.index}")
        _at_most(MOST_ERRORS, gpu.warnings, "warnings")
        parts: list[GpuStatus | MigStatus] = [gpu, *gpu.mig]
        for part in parts:
            _at_most(MOST_HOLDERS, part.holders, "owners on one GPU")
            moments.append(part.since)
            for holder in part.holders:
                moments += [holder.started_at, holder.on_gpu_since]
    if not all(_is_time(moment) for moment in moments):
        raise ValueError("expected times of this millennium, found one that no calendar holds")


def bounded(summary: HostSummary) -> None:
    """Forget times that no calendar holds. Raises ValueError for lists beyond reason."""
    _bound(summary)


def _is_clean(data: bytes) -> bool:
    """Return whether nothing in the JSON text needs a closer look. Costs microseconds."""
    if data.translate(None, _PRINTABLE):
        return False
    if b"\\" in data and b"\\" in _HARMLESS_ESCAPE.sub(b"", data):
        return False
    if _MANY_DIGITS in data.translate(_DIGITS):
        return False
    # A quote in every piece: no text can be longer than two of them. Else each text is measured.
    if all(data.find(b'"', at, at + _PIECE) >= 0 for at in range(0, len(data) - _PIECE, _PIECE)):
        return True
    return max(map(len, data.split(b'"'))) <= LONGEST_TEXT


def _cleaned(data: bytes, kind: type[_Decoded]) -> _Decoded:
    return msgspec.convert(_clean(msgspec.json.decode(data)), kind)


def _clean(value: Any) -> Any:
    """Return decoded JSON with all text cleaned, and None for numbers that nothing can hold."""
    if isinstance(value, str):
        return clean(value, LONGEST_TEXT)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key, LONGEST_TEXT): _clean(item) for key, item in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST_INT:
        return None
    return value


def _schema_of(data: bytes) -> int | None:
    try:
        return msgspec.json.decode(data, type=_Schema).schema
    except (ValueError, RecursionError):
        return None


class _Schema(msgspec.Struct):
    schema: int | None = None


def _first_line(error: Exception) -> str:
    return clean(str(error).partition("\n")[0], 200)


def _bound(summary: HostSummary) -> None:
    """Raise ValueError for lists beyond reason; forget times that no calendar holds."""
    _at_most(MOST_GPUS, summary.gpus, "GPUs")
    _at_most(MOST_ERRORS, summary.errors, "errors")
    if not _is_time(summary.time):
        summary.time = None
    for gpu in summary.gpus:
        _at_most(MOST_INSTANCES, gpu.mig, f"MIG instances on GPU {gpu.index}")
        _bound_times(gpu)
        for instance in gpu.mig:
            _bound_times(instance)


def _bound_times(gpu: GpuSummary | MigSummary) -> None:
    _at_most(MOST_HOLDERS, gpu.holders, "owners on one GPU")
    if not _is_time(gpu.unused_since):
        gpu.unused_since = None
    if not _is_time(gpu.free_since):
        gpu.free_since = None
    if not _is_time(gpu.held_since):
        gpu.held_since = None
    if isinstance(gpu, GpuSummary) and not _is_time(gpu.fault_since):
        gpu.fault_since = None
    for holder in gpu.holders:
        if not _is_time(holder.started_at):
            holder.started_at = None
        if not _is_time(holder.on_gpu_since):
            holder.on_gpu_since = None


def _at_most(most: int, found: list[Any], what: str) -> None:
    if len(found) > most:
        raise ValueError(f"expected at most {most} {what}, found {len(found)}")


def _is_time(value: float | None) -> bool:
    return value is None or -LATEST_EPOCH < value < LATEST_EPOCH
