"""Bars of one GPU: how much it is used, how full its memory is.

Their colour is blue, or, where the colours go by use, that of gpumonitor's page: green, yellow or
red.
The number stands beside every bar, so nothing is told by colour alone.
"""

from __future__ import annotations

from gpumon.cluster.status import GpuStatus, MigStatus
from gpumon.web.gpus import memory_percent

UTILIZATION_STEPS = (10.0, 50.0)
MEMORY_STEPS = (10.0, 75.0)
"""Up to the first green, up to the second yellow, above red; memory by its whole percents."""


def bar(part: GpuStatus | MigStatus, kind: str, colors: str) -> str:
    """Return the markup of a bar, "" where nothing is known; `kind` is "use" or "memory"."""
    if kind == "memory":
        percent = memory_percent(part)
    else:
        percent = part.utilization_percent if isinstance(part, GpuStatus) else None
    if percent is None:
        return ""
    tenths = max(0, min(10, round(percent / 10)))
    colour = f" {_colour(percent, kind)}" if colors == "use" else ""
    return f'<span class="bar{colour}" aria-hidden="true"><i class="u{tenths}"></i></span> '


def _colour(percent: float, kind: str) -> str:
    low, high = MEMORY_STEPS if kind == "memory" else UTILIZATION_STEPS
    whole = int(percent)
    return "green" if whole <= low else "yellow" if whole <= high else "red"
