"""web-gpu-monitor's static page: one file that any web server hands out, red and green rows."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.agent.nvgpu import processes, processes_known
from gpumon.cluster.status import ClusterStatus
from gpumon.model import Gpu
from gpumon.units import UNKNOWN, clock, mib
from gpumon.web.earlier.readings import Detail, gpus_now, not_to_take
from gpumon.web.templates import page_template

LOAD_PERCENT, MEMORY_LOAD_PERCENT = 5, 2
"""From this load on, or above this memory load, a GPU is red; so it is with a user on it."""
MEMORY_HELD_MIB = 512
"""Held memory that makes a GPU red as well: load alone overlooks a program that waits."""
RELOAD_SECONDS = 60


class Row(NamedTuple):
    """One GPU of the page."""

    number: int
    name: str
    load: str
    memory_load: str
    memory: str
    users: str
    taken: bool | None
    """Red, green, or neither."""
    word: str
    """The same in a word, for those who see no colour."""


class Card(NamedTuple):
    """One host of the page."""

    host: str
    rows: list[Row]
    reason: str | None
    """Why there are no rows."""


def static_page(status: ClusterStatus, detail: Detail) -> str:
    """Return the page as HTML. It needs no other file."""
    cards = [
        Card(
            host.name,
            [_row(gpu, not_to_take(host).get(gpu.index)) for gpu in gpus_now(host, detail)],
            None if host.state == "fresh" else host.reason or "it has not answered yet",
        )
        for host in sorted(status.hosts, key=lambda host: host.name)
    ]
    text: str = page_template("static.tpl").render(
        title=status.title,
        cards=cards,
        simulated=status.simulated,
        reload=RELOAD_SECONDS,
        written=clock(status.time),
    )
    return text


_WORDS = {True: "in use", False: "not in use", None: "not known"}
_KEPT_OUT = {"fault": "broken", "drained": "drained", "unknown": "not known"}


def _row(gpu: Gpu, kept_out: str | None) -> Row:
    """Return the row of a GPU; `kept_out` is its state where it is not for anybody to take."""
    taken = _taken(gpu)
    if not taken and kept_out is not None:
        taken, word = None, _KEPT_OUT[kept_out]
    else:
        word = _WORDS[taken]
    users = list(dict.fromkeys(process.user or "?" for process in processes(gpu)))
    return Row(
        number=gpu.index,
        name=gpu.name or "unknown GPU",
        load=_percent(gpu.utilization_percent),
        memory_load=_percent(gpu.memory_utilization_percent),
        memory=f"{mib(gpu.memory_used_mib)} / {mib(gpu.memory_total_mib)}",
        users=", ".join(users),
        taken=taken,
        word=word,
    )


def _taken(gpu: Gpu) -> bool | None:
    load, memory_load = gpu.utilization_percent, gpu.memory_utilization_percent
    signs = [
        next(processes(gpu), None) is not None,
        load is not None and load >= LOAD_PERCENT,
        memory_load is not None and memory_load > MEMORY_LOAD_PERCENT,
        gpu.memory_used_mib is not None and gpu.memory_used_mib > MEMORY_HELD_MIB,
    ]
    if any(signs):
        return True
    # Green takes a reading that says so; a GPU in MIG mode tells no load, its instances count.
    known = processes_known(gpu) and gpu.memory_used_mib is not None
    return False if known and (load is not None or gpu.mig_mode) else None


def _percent(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value}%"
