"""GPU memory of a device or MIG instance: one reading for both versions of NVML's call."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gpumon.collect import nvml
from gpumon.collect.nvml import Unknown
from gpumon.collect.questions import Questions
from gpumon.model import OUT_OF_RANGE

MIB = 1024 * 1024
LARGEST_BYTES = 2**50
"""No card has a pebibyte: what is above is no amount of memory."""

_OLDER = frozenset({2, nvml.NOT_SUPPORTED, nvml.FUNCTION_NOT_FOUND, nvml.ARGUMENT_VERSION_MISMATCH})
"""What a driver that lacks the newer version answers to it."""

_UNIFIED_NAMES = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra|Jetson)\b", re.IGNORECASE)


class Memory(msgspec.Struct, frozen=True):
    """Bytes, or Unknown, for each amount. `unified`: the host's memory is the GPU's."""

    total: int | Unknown
    used: int | Unknown
    reserved: int | Unknown
    free: int | Unknown
    unified: bool = False


def read(questions: Questions, handle: object, name: str | None) -> Memory:
    """Return the memory of the device; `name` of the GPU tells unified memory from a failure.

    The newer version keeps the driver's own reserve apart; the older one counts it as used.
    """
    newer = questions.ask("memory v2", nvml.call, "nvmlDeviceGetMemoryInfo", handle, nvml.MEMORY_V2)
    if not isinstance(newer, Unknown):
        return _checked(newer, reserved=newer.reserved)
    if newer.code not in _OLDER:
        return _none(newer)
    older = questions.ask("memory v1", nvml.call, "nvmlDeviceGetMemoryInfo", handle)
    if not isinstance(older, Unknown):
        return _checked(older, reserved=Unknown("the driver counts its reserve as used"))
    if newer.code == older.code == nvml.NOT_SUPPORTED and _UNIFIED_NAMES.search(name or ""):
        return _none(Unknown("unified memory: GPU and host share it"), unified=True)
    return _none(older)


def mib(amount: int | Unknown) -> int | None:
    """Return the whole MiB of an amount of memory, None where it is unknown."""
    return None if isinstance(amount, Unknown) else amount // MIB


def _checked(info: Any, reserved: int | Unknown) -> Memory:
    total = _within(info.total, 1, LARGEST_BYTES)
    most = LARGEST_BYTES if isinstance(total, Unknown) else total
    if not isinstance(reserved, Unknown):
        reserved = _within(reserved, 0, most)
    return Memory(total, _within(info.used, 0, most), reserved, _within(info.free, 0, most))


def _within(amount: int, low: int, high: int) -> int | Unknown:
    return amount if low <= amount <= high else Unknown(f"{OUT_OF_RANGE} (found {amount} bytes)")


def _none(why: Unknown, unified: bool = False) -> Memory:
    return Memory(why, why, why, why, unified)
