"""The readings of one GPU as text, for lists and tables."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.cluster.status import GpuStatus, MigStatus
from gpumon.units import UNKNOWN, mib


def percent(value: float | None) -> str:
    """Return "73%", "-" for unknown."""
    return UNKNOWN if value is None else f"{value:.0f}%"


def memory(gpu: GpuStatus | MigStatus) -> str:
    """Return "70.2G of 80.0G", with "-" for what is unknown."""
    if gpu.memory_used_mib is None:
        if isinstance(gpu, GpuStatus) and gpu.unified_memory:
            return "shared with host"
        if gpu.memory_total_mib is None:
            return UNKNOWN
    return f"{mib(gpu.memory_used_mib)} of {mib(gpu.memory_total_mib)}"


def temperature(celsius: float | None) -> str:
    """Return "65 °C", "-" for unknown."""
    return UNKNOWN if celsius is None else f"{celsius:.0f} °C"


def clocks(reasons: Sequence[str] | None) -> str:
    """Return why the clocks are lowered: "sw power cap", "none", "-" for unknown."""
    if reasons is None:
        return UNKNOWN
    return ", ".join(reason.replace("_", " ") for reason in reasons) or "none"


def watts(draw: float | None, limit: float | None) -> str:
    """Return "310 of 700 W", "310 W", "-" for unknown."""
    if draw is None:
        return UNKNOWN
    return f"{draw:.0f} W" if limit is None else f"{draw:.0f} of {limit:.0f} W"


def memory_percent(gpu: GpuStatus | MigStatus) -> float | None:
    """Return how full the memory is; None where it isn't known."""
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    if used is None or total is None or total <= 0:
        return None
    return 100 * used / total
