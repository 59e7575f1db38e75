"""One GPU in three characters: its mark, for the page's cells and for the columns of the text.

The state is told by the character and by the shape of the border, never by colour alone.
"""

from __future__ import annotations

from typing import NamedTuple

from gpumon.cluster.status import GpuStatus, MigStatus
from gpumon.states import GpuState

BUSY_USE_UNKNOWN = "#"
"""Held, but the driver gives no utilization, as under MIG."""


class Marks(NamedTuple):
    """The signs of one state."""

    page: str
    text: str


MARKS: dict[GpuState, Marks] = {
    "free": Marks("", "__"),
    "busy": Marks(BUSY_USE_UNKNOWN, BUSY_USE_UNKNOWN),
    "idle": Marks("z", "z"),
    "fault": Marks("!", "!!"),
    "unknown": Marks("?", "?"),
    "drained": Marks("–", "--"),
}


class Cell(NamedTuple):
    """What the page draws for a GPU or a MIG instance."""

    state: GpuState
    mark: str
    level: int
    """How full a busy cell is drawn, in tenths; 0 for the other states."""


def cell(gpu: GpuStatus | MigStatus) -> Cell:
    """Return the cell of a GPU; the instances of one in MIG mode have cells of their own."""
    percent = _use(gpu)
    if percent is None:
        return Cell(gpu.state, MARKS[gpu.state].page, 0)
    return Cell(gpu.state, str(percent), max(0, min(10, round(percent / 10))))


def text_mark(gpu: GpuStatus) -> str:
    """Return the mark of a GPU in at most three ASCII characters.

    A GPU in MIG mode that works gives free instances of all: "3/7".
    """
    if gpu.mig and gpu.state in ("free", "busy"):
        return f"{free_instances(gpu)}/{len(gpu.mig)}"
    percent = _use(gpu)
    return MARKS[gpu.state].text if percent is None else str(percent)


def free_instances(gpu: GpuStatus) -> int:
    """Return how many MIG instances of the GPU are free."""
    return sum(instance.state == "free" for instance in gpu.mig)


def _use(gpu: GpuStatus | MigStatus) -> int | None:
    """Return the number that stands in a busy cell; None where there is none."""
    if gpu.state != "busy" or isinstance(gpu, MigStatus):
        return None
    return gpu.utilization_percent
